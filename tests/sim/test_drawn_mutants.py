"""The forty drawn mutants: their lines are in the tree, and none of them is left alive without a reason."""

from __future__ import annotations

import json

from mutants.drawn import LIST, ROOT, SURVIVES

MUTANTS = json.loads(LIST.read_text())


def test_the_lines_of_each_mutant_are_in_the_tree() -> None:
    """A change of such a line changes the list too, or its mutant could not be judged again."""
    gone = [each["number"] for each in MUTANTS if _text(each["file"]).count(each["before"] + "\n") != 1]

    assert gone == []


def test_each_mutant_is_killed_or_changes_nothing() -> None:
    """The list names the test that kills it, which exists, or the reason why no test can."""
    alive = [each["number"] for each in MUTANTS if each["now"] == SURVIVES and not each.get("equivalent")]
    killers = [(each["tests"], each["now"]) for each in MUTANTS if "::" in each["now"]]
    lost = [f"{folder}/{name}" for folder, name in killers if not _has(folder, name)]

    assert alive == []
    assert lost == []
    assert len(MUTANTS) == 40


def _has(folder: str, name: str) -> bool:
    file, _, test = name.partition("::")
    return f"def {test.partition('[')[0]}(" in _text(f"{folder}/{file}")


def _text(path: str) -> str:
    return (ROOT / path).read_text()
