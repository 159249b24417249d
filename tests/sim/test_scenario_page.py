"""docs/SCENARIOS.md is true: every example runs, every verb and every option is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from strandline.core.errors import ErrorCode
from strandline_sim.scenario.language import ScenarioFailed, shipped
from strandline_sim.scenario.run import VERBS, run_text
from strandline_sim.scenario.truth import CHECKED
from strandline_sim.scenario.verbs.wire import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "SCENARIOS.md").read_text(encoding="utf-8")
MORE = Path(__file__).with_name("verbs.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```scenario\n(.*?)```", PAGE + MORE, re.DOTALL)
ITEMS = dict(re.findall(r"^- `([a-z-]+)`: (.*)$", PAGE, re.MULTILINE))
"""What the page says of each verb."""


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_example_comes_true(number: int) -> None:
    """An example prints exactly what the page, or verbs.md, shows."""
    transcript = run_text(EXAMPLES[number], f"example {number + 1}")

    assert transcript.text() == EXAMPLES[number]


def test_every_verb_is_described() -> None:
    """The page describes exactly the existing verbs."""
    assert set(ITEMS) == set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_its_options_and_an_example(name: str) -> None:
    """Every option is on the page, and an example uses the verb."""
    assert [option for option in VERBS[name].options if f"{option}=" not in ITEMS[name]] == []
    assert any(re.search(rf"^{name}\b", text, re.MULTILINE) for text in EXAMPLES)


def test_the_lists_of_the_page_are_complete() -> None:
    """Kinds of messages and properties are those of the code; the errors on the page exist."""
    messages = PAGE.partition("## Places, links and messages")[2].partition("\n## ")[0]
    kinds = re.findall(r"^\| `([a-z-]+)` \|", messages, re.MULTILINE)
    (properties,) = re.findall(r"^Checked: (.*)\.$", PAGE, re.MULTILINE)
    errors = re.findall(r"^expect-error \S+ (\w+)$", PAGE + MORE, re.MULTILINE)

    assert kinds == list(KINDS)
    assert properties.split(", ") == list(CHECKED)
    assert set(errors) <= set(ErrorCode.__members__)


PHRASES = PAGE.partition("## How to say it")[2].partition("\n## ")[0].splitlines()
NO_COMMANDS = ("silently", "stabilize", "set ", "preload ", "nodes ", "topic ")
B_ASKS = "strandline-scenario 1\nset durability=page-cache\nnodes A B C\ntopic lines replicas=A,B,C\nappend A r0..r5\n"
A_ANSWERS = B_ASKS + "deliver B->A\n"


@pytest.mark.parametrize("row", [line for line in PHRASES if "`" in line])
def test_the_phrases_can_be_played(row: str) -> None:
    """Everything in one row of the table can be said in this order, when B has asked A or A has answered B."""
    phrases = [phrase.replace("\\|", "|") for phrase in re.findall(r"`([^`]+)`", row.split(" | ", 1)[1])]
    commands = "\n".join(phrase for phrase in phrases if not phrase.startswith(NO_COMMANDS))
    failures = []
    for scene in (B_ASKS, A_ANSWERS):
        try:
            run_text(scene + commands + "\n", "phrases", compare=False)
        except ScenarioFailed as failed:
            failures.append(str(failed))

    assert len(failures) < 2, failures


def test_every_scenario_that_the_page_names_ships() -> None:
    """What a reader is asked to run is in the package."""
    table = PAGE.partition("## Scenarios to read")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:table|tr\d+)_\w+)`", table))

    assert named and named <= {path.stem for path in shipped()}
