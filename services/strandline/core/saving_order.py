"""Decides what of a step is saved first, so that all of it can become durable at once.

Saves of many partitions lie between answers and requests of others, and each of those would need its own sync. A save
says nothing of another partition, so it may be moved in front of them.

Invariant: nothing is moved in front of a change of its own log that it follows from: the HW of a log that begins again
is above everything that the log held before.
"""

from __future__ import annotations

from strandline.core.effects import (
    AdvanceLogStart,
    DeleteLog,
    Effect,
    OpenLog,
    RestartLog,
    SaveEpochs,
    SaveHighWatermarks,
    SaveMetadata,
    SaveReconciledEpochs,
    Truncate,
)
from strandline.core.types import TopicPartition

_SAVES = frozenset({SaveEpochs, SaveHighWatermarks, SaveMetadata, SaveReconciledEpochs})
_RESHAPES = (AdvanceLogStart, DeleteLog, OpenLog, RestartLog, Truncate)


def saves_first(effects: list[Effect]) -> list[Effect]:
    """The effects of a step, saves in front; the order is kept among saves and among the others.

    A single save costs one sync wherever it is, and stays there.
    """
    if len(effects) < 2 or sum(type(effect) in _SAVES for effect in effects) < 2:
        return effects
    first: list[Effect] = []
    rest: list[Effect] = []
    reshaped: set[TopicPartition] = set()
    for effect in effects:
        if isinstance(effect, _RESHAPES):
            reshaped.add(effect.tp)
        if type(effect) in _SAVES and reshaped.isdisjoint(_logs_of(effect)):
            first.append(effect)
        else:
            rest.append(effect)
    return first + rest


def _logs_of(effect: Effect) -> tuple[TopicPartition, ...]:
    if isinstance(effect, SaveEpochs):
        return (effect.tp,)
    if isinstance(effect, SaveHighWatermarks):
        return tuple(effect.high_watermarks)
    if isinstance(effect, SaveReconciledEpochs):
        return tuple(effect.epochs)
    return ()
