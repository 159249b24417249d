"""A store of several controllers that is restored from a copy: who notices, and what breaks where nobody does (C40)."""

from __future__ import annotations

import pytest

from strandline.core.reign import ReignCore
from strandline.sim.scenario.run import run_text
from strandline.sim.scenario.shipped import FOLDER

NAME = "tr18_restored_store_of_several_controllers"


def test_controllers_that_compare_no_revision_serve_what_nodes_know_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """I23 breaks: a reign serves, and does not know what a node was sent."""
    text = (FOLDER / f"{NAME}.scenario").read_text(encoding="utf-8")
    commands = "".join("#\n" if line.startswith("expect-") else f"{line}\n" for line in text.splitlines())
    monkeypatch.setattr(ReignCore, "_shows_less", lambda *_: False)

    assert "!! I23 is broken" in run_text(commands, NAME, compare=False).text()
