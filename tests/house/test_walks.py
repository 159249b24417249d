"""The walks in docs/ARCHITECTURE.md name existing things, and stay short enough to follow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "services" / "strandline"
PLACES = (SOURCES, ROOT / "analytics" / "strandline_analytics", ROOT)
MOST_FILES = 12
MOST_FORMS = {"State event, file by file": 6}
"""Where it is not 5."""

_PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
_WALKS = {
    title: body
    for title, body in re.findall(r"^### (.+?)\n(.*?)(?=^##)", _PAGE, re.MULTILINE | re.DOTALL)
    if title.endswith(", file by file")
}
_STEP = re.compile(r"^\d+\. `([^`]+)`: ((?:`\w+`(?:, )?)+)\. ", re.MULTILINE)
_FORM = re.compile(r"^- `(\w+)` in `([^`]+)`: ", re.MULTILINE)


def _source(name: str) -> str:
    """The text of a file that a walk names; empty if there is none."""
    found = [place / name for place in PLACES if (place / name).is_file()]
    return found[0].read_text() if found else ""


def _steps(walk: str) -> list[tuple[str, list[str]]]:
    """Each step's file and the names in it."""
    return [(name, re.findall(r"\w+", names)) for name, names in _STEP.findall(_WALKS[walk])]


def test_the_walks_are_there() -> None:
    """A produce, a fetch response at both ends, and a state event, each with steps and forms."""
    assert {"Produce", "Fetch response at the leader", "Fetch response at the follower", "State event"} <= {
        title.removesuffix(", file by file") for title in _WALKS
    }


@pytest.mark.parametrize("walk", _WALKS)
def test_every_line_of_a_walk_is_read(walk: str) -> None:
    """A step or form written in another way would escape the checks below."""
    lines = re.findall(r"^(?:\d+\.|-) .*", _WALKS[walk], re.MULTILINE)

    assert len(lines) == len(_STEP.findall(_WALKS[walk])) + len(_FORM.findall(_WALKS[walk]))
    assert _steps(walk) and _FORM.findall(_WALKS[walk])


@pytest.mark.parametrize("walk", _WALKS)
def test_a_step_names_a_file_and_what_is_defined_there(walk: str) -> None:
    """A step names a function, method or class of its file."""
    missing = [
        f"{file}: {name}"
        for file, names in _steps(walk)
        for name in names
        if not re.search(rf"^ *(?:async )?(?:def|class) {name}\b", _source(file), re.MULTILINE)
    ]

    assert missing == []


@pytest.mark.parametrize("walk", _WALKS)
def test_a_form_is_found_in_its_file(walk: str) -> None:
    """A form names the type, field or variable that holds the data."""
    missing = [
        f"{file}: {name}" for name, file in _FORM.findall(_WALKS[walk]) if not re.search(rf"\b{name}\b", _source(file))
    ]

    assert missing == []


@pytest.mark.parametrize("walk", _WALKS)
def test_a_walk_is_short(walk: str) -> None:
    """A walk has at most 12 files, and 5 forms of a batch or 6 of a state event."""
    assert len({file for file, _ in _steps(walk)}) <= MOST_FILES
    assert len(_FORM.findall(_WALKS[walk])) <= MOST_FORMS.get(walk, 5)
