"""What the machine of a coordinator reports as state events, kept until the step that produced it is left.

Invariant: a machine reports and never reads what it reported, so nothing that it decides depends on it.
"""

from __future__ import annotations

from strandline.core.effects import Effect, Emit
from strandline.core.state_events import StateEvent
from strandline.core.types import LeaderEpoch, TopicPartition


class Reports:
    """Of one shard; ``tp`` is the coordinator's own partition and ``leader_epoch`` its coordinator epoch."""

    def __init__(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        self.leader_epoch = leader_epoch
        self.tp = tp
        self._waiting: list[Effect] = []

    def add(self, event: StateEvent, place: TopicPartition | None = None) -> None:
        """Report ``event``; ``place`` is the partition it is about, None for the coordinator's own."""
        self._waiting.append(Emit(place or self.tp, event))

    def leave(self, out: list[Effect]) -> None:
        """Let everything out that was reported."""
        if self._waiting:
            out += self._waiting
            self._waiting.clear()
