"""What a stall of the high watermark is once it has left Spark; imports no Spark.

Invariant: episodes are found by S18 alone; nothing here joins or cuts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One episode of S18; [t0, t1) in us, by the controller's clock."""

    cluster_id: str
    topic_id: str
    topic: str
    partition: int
    t0: int
    t1: int
    hw: int
    ended_by: str
    blockers: tuple[int, ...]
    is_under_min: bool

    @property
    def key(self) -> tuple[str, str | None, int | None]:
        """The partition it happened to."""
        return self.cluster_id, self.topic_id, self.partition


def stall_from(row: Mapping[str, Any]) -> Stall:
    """A row of `stats.s18_stalls.stalls` as a value."""
    return Stall(
        cluster_id=row["cluster_id"],
        topic_id=row["topic_id"],
        topic=row["topic"],
        partition=row["partition"],
        t0=row["t0"],
        t1=row["t1"],
        hw=row["hw"],
        ended_by=row["ended_by"],
        blockers=tuple(row["blockers"] or ()),
        is_under_min=row["is_under_min"],
    )
