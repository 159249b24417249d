"""When the saves of a step become durable: once, before anything that others could see, and before the step ends."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from scripted_core import ScriptedCore, driver_with

from strandline.core.log import effects as want
from strandline.core.log.events import Ticked
from strandline.runtime.performers import WITHOUT_SYNC, behind_saves

SAVES = {want.SaveEpochs, want.SaveHighWatermarks, want.SaveReconciledEpochs, want.SaveMetadata}
VISIBLE = sorted(set(get_args(want.Effect)) - WITHOUT_SYNC, key=lambda kind: kind.__name__)


class NotedLogs:
    """Notes what is done, in order."""

    def __init__(self) -> None:
        self.saves_wait = False
        self.done: list[str] = []

    def save(self, effect: Any) -> None:
        """Anything that is saved."""
        self.saves_wait = True
        self.done.append("save")

    def see(self, effect: Any) -> None:
        """Anything that others see."""
        self.done.append("seen")

    def sync_saves(self) -> None:
        """The one sync."""
        if self.saves_wait:
            self.done.append("sync")
        self.saves_wait = False

    def table(self) -> dict[type[object], Any]:
        """Performers of every effect."""
        kinds = get_args(want.Effect)
        return behind_saves({kind: self.save if kind in SAVES else self.see for kind in kinds}, self)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", VISIBLE)
def test_the_first_visible_effect_is_behind_one_sync(kind: type[object]) -> None:
    """However many saves wait; the next visible effect needs no other sync."""
    logs = NotedLogs()
    table = logs.table()
    for each in (want.SaveEpochs, want.Emit, want.OpenLog, want.SaveMetadata, kind, kind):
        table[each](None)

    assert logs.done == ["save", "seen", "seen", "save", "sync", "seen", "seen"]


def test_all_that_is_sent_or_answered_is_visible() -> None:
    """A new effect needs a decision; these are what peers, clients and the log's readers meet."""
    names = {kind.__name__ for kind in VISIBLE}

    assert {name for name in map(_name, get_args(want.Effect)) if name.startswith(("Send", "Answer"))} <= names
    assert {"Append", "AppendReplicated", "Flush", "Halt"} <= names
    assert names.isdisjoint(map(_name, SAVES))


def _name(kind: type[object]) -> str:
    return kind.__name__


def test_a_step_ends_with_the_sync_of_what_it_saved() -> None:
    """File effects count from the moment they are asked for (ADR 1), so no save waits for the next step."""
    logs = NotedLogs()
    core = ScriptedCore({Ticked: lambda _: [want.SaveMetadata(None)]})  # type: ignore[arg-type]  # nobody looks at it
    driver = driver_with(core, {})
    driver.attach(logs.table(), logs.sync_saves)
    driver.step(Ticked(1))

    assert logs.done == ["save", "sync"]
