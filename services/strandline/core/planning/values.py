"""The input of a plan, and the plan.

Invariant: equal input, in any order, gives an equal plan; a plan with refusals has no moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Goal(IntEnum):
    """The goals of a plan, in order: a later goal never breaks an earlier one (C90). That no two replicas of a
    partition are on one node holds before and after every step."""

    DRAINED = 1
    """Draining nodes hold nothing."""
    RACKS = 2
    """A rack holds at most ceil(replication factor / racks) replicas of a partition."""
    REPLICAS = 3
    """Every node holds its share of replicas by weight, within 1."""
    LEADERS = 4
    """Every node is first replica of its share of partitions by weight, within 1."""
    BYTES = 5
    """Every node holds its share of bytes by weight, within 10 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """A node that may hold replicas: no observer."""

    node_id: int
    rack: str | None = None
    weight: float = 1.0
    """Its share of replicas, leaders and bytes, relative to the others'."""
    draining: bool = False
    away: bool = False
    """Without a session or shutting down: it gets nothing, and unless it is draining it keeps what it has (C87)."""
    full: bool = False
    """Its disk is nearly full: it gets nothing, and may give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A partition as it will be when the reassignments under way have ended."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    """The current ISR: a move copies from one of these."""
    size_bytes: int | None = None
    """Size of one replica; None if unknown."""
    replication_factor: int | None = None
    """The wanted number of replicas; None to keep the current number."""

    @property
    def name(self) -> str:
        """`orders-0`."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """New replicas for one partition, the preferred leader first; only another order if nothing is copied."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int | None
    reasons: tuple[str, ...]

    @property
    def name(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def adding(self) -> tuple[int, ...]:
        """Nodes that get a copy."""
        return tuple(node_id for node_id in self.after if node_id not in self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Moves in the order of their goals, then of names."""

    moves: tuple[Move, ...] = ()
    remaining: tuple[str, ...] = ()
    """Goals that are not met afterwards, each with where and why."""
    refusals: tuple[str, ...] = ()
    """Why no plan is possible, each with names and a remedy."""


def names(items: list[str], most: int = 4) -> str:
    """`a, b and 3 more`."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")
