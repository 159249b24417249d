"""When the saves of a step become durable: all at once, before the first effect that others could see.

Invariant: nothing is sent, answered or appended while a save of the same step waits, and none waits behind the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.core import effects as want
from strandline.core.events import Event
from strandline.runtime.log_performers import Perform
from strandline.runtime.ports import Logs

WITHOUT_SYNC = frozenset(
    {
        # Saves, and what changes files in the order that it needs by itself.
        want.SaveEpochs, want.SaveHighWatermarks, want.SaveReconciledEpochs, want.SaveMetadata, want.SaveProducers,
        want.OpenLog, want.DeleteLog, want.Truncate, want.RestartLog, want.AdvanceLogStart,
        # Known to this process alone.
        want.NoteDurable, want.ApplyRetention, want.BelieveMetadata, want.IgnoreMetadata, want.Emit,
    }
)  # fmt: skip
"""Effects that may precede the sync; `Emit` does, for a state event says what this process decided."""


def behind_saves(table: Mapping[type[object], Perform], logs: Logs) -> dict[type[object], Perform]:
    """The performers, each of an effect that others could see behind the sync of what was saved."""
    return {kind: perform if kind in WITHOUT_SYNC else _behind(perform, logs) for kind, perform in table.items()}


def _behind(perform: Perform, logs: Logs) -> Perform:
    def performed(effect: Any) -> Event | None:
        if logs.saves_wait:
            logs.sync_saves()
        return perform(effect)

    return performed
