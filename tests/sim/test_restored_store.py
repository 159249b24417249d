"""A store of several controllers that is restored from a copy: who notices, and what breaks where nobody does (C40)."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.core.reigns.reign import ReignCore
from strandline_sim.runs.run import run_seed
from strandline_sim.scenario.language import FOLDER
from strandline_sim.scenario.run import run_text

NAME = "tr18_restored_store_of_several_controllers"


def test_controllers_that_compare_no_revision_serve_what_nodes_know_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """I23 breaks: a reign serves, and does not know what a node was sent."""
    text = (FOLDER / f"{NAME}.scenario").read_text(encoding="utf-8")
    commands = "".join("#\n" if line.startswith("expect-") else f"{line}\n" for line in text.splitlines())
    monkeypatch.setattr(ReignCore, "_shows_less", lambda *_: False)

    assert "!! I23 is broken" in run_text(commands, NAME, compare=False).text()


def test_seeds_in_which_a_store_is_restored_break_nothing() -> None:
    """Somebody notices each time, an operator recovers, and everything that was acknowledged is there."""
    outcomes = [run_seed(seed, "store-trouble") for seed in range(12)]

    assert [outcome.violation for outcome in outcomes] == [None] * 12
    assert sum(outcome.counts["controller recovered"] for outcome in outcomes) > 2


def test_seeds_of_controllers_that_compare_no_revision_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """I23 breaks within a few seeds: it is looked at, and restores lose what nodes were sent."""
    honest = ReignCore._shows_less

    def unconcerned(core: ReignCore, event: Any, question: Any) -> bool:
        honest(core, event, question)
        return False

    monkeypatch.setattr(ReignCore, "_shows_less", unconcerned)
    found = (run_seed(seed, "store-trouble").violation for seed in range(24))

    assert next((each.name for each in found if each is not None), "") == "I23"
