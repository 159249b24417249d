"""docs/SCENARIOS.md is true: every example runs, every verb and every option is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from strandline.core.errors import ErrorCode
from strandline.sim.scenario.run import VERBS, run_text
from strandline.sim.scenario.truth import CHECKED
from strandline.sim.scenario.verbs_wire import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "SCENARIOS.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```scenario\n(.*?)```", PAGE, re.DOTALL)
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_example_comes_true(number: int) -> None:
    """An example prints exactly what the page shows."""
    transcript = run_text(EXAMPLES[number], f"example {number + 1} of docs/SCENARIOS.md")

    assert transcript.text() == EXAMPLES[number]


def test_every_verb_has_a_section() -> None:
    """The page describes the verbs there are, and no other."""
    assert set(SECTIONS) == set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_a_section_uses_its_verb_and_names_its_options(name: str) -> None:
    """Each section has an example with its verb, and says every option of it."""
    section = SECTIONS[name]

    assert re.search(rf"```scenario\n(.*\n)*{name}\b", section)
    assert [option for option in VERBS[name].options if f"{option}=" not in section] == []


def test_the_lists_of_the_page_are_complete() -> None:
    """Kinds of messages and properties are those of the code; errors shown are errors there are."""
    kinds = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    properties = re.findall(r"^\| (I\d+(?:, I\d+)?) \|", PAGE, re.MULTILINE)
    errors = re.findall(r"^expect-error \S+ (\w+)$", PAGE, re.MULTILINE)

    assert kinds == list(KINDS)
    assert ", ".join(properties).split(", ") == list(CHECKED)
    assert set(errors) <= set(ErrorCode.__members__)
