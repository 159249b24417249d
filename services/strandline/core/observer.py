"""What a data node's core shows of itself while it decides; an observer changes nothing.

A core runs without an observer. `observe.reporting` is the observer of services and simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from strandline.core.effects import Effect
from strandline.core.leader import LeaderReplica
from strandline.core.messages import FetchResult
from strandline.core.node_state import NodeState
from strandline.core.types import NodeId, Offset, TopicPartition


class NodeObserver(Protocol):
    """Is called after something happened. It may add `Emit` effects to ``out``, and nothing else."""

    def leads(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """A reign began."""
        ...

    def follows(self, tp: TopicPartition, now_ms: int) -> None:
        """This node follows or observes a partition."""
        ...

    def leaves(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """A reign ends."""
        ...

    def appended(self, leader: LeaderReplica, now_ms: int) -> None:
        """Records were appended up to the log end."""
        ...

    def hw_rose(
        self, leader: LeaderReplica, old: Offset, cause: str, blockers: Iterable[NodeId], now_ms: int, out: list[Effect]
    ) -> None:
        """The HW rose from ``old``; ``blockers`` had held it back."""
        ...

    def isr_changed(self, leader: LeaderReplica, now_ms: int, out: list[Effect], *, initiator: str) -> None:
        """The committed ISR may have changed."""
        ...

    def fetched(self, leader: LeaderReplica, replica: NodeId, now_ms: int) -> None:
        """A replica's fetch was counted."""
        ...

    def refused(self, replica: NodeId, results: Iterable[FetchResult]) -> None:
        """A replica's fetch was looked at; some of its results may be refusals."""
        ...

    def served(self, leader: LeaderReplica, replica: NodeId, end: Offset) -> None:
        """A replica was sent records up to ``end``."""
        ...

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Time passed."""
        ...


Observe = Callable[[NodeState], NodeObserver]
"""Makes the observer of one core."""


class NobodyObserves:
    """The observer that ignores everything."""

    def __init__(self, state: NodeState) -> None:
        """``state`` is not looked at."""

    def leads(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """Nothing."""

    def follows(self, tp: TopicPartition, now_ms: int) -> None:
        """Nothing."""

    def leaves(self, leader: LeaderReplica, out: list[Effect]) -> None:
        """Nothing."""

    def appended(self, leader: LeaderReplica, now_ms: int) -> None:
        """Nothing."""

    def hw_rose(
        self, leader: LeaderReplica, old: Offset, cause: str, blockers: Iterable[NodeId], now_ms: int, out: list[Effect]
    ) -> None:
        """Nothing."""

    def isr_changed(self, leader: LeaderReplica, now_ms: int, out: list[Effect], *, initiator: str) -> None:
        """Nothing."""

    def fetched(self, leader: LeaderReplica, replica: NodeId, now_ms: int) -> None:
        """Nothing."""

    def refused(self, replica: NodeId, results: Iterable[FetchResult]) -> None:
        """Nothing."""

    def served(self, leader: LeaderReplica, replica: NodeId, end: Offset) -> None:
        """Nothing."""

    def ticked(self, now_ms: int, out: list[Effect]) -> None:
        """Nothing."""
