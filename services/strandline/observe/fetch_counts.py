"""Counts how each follower of a led partition fetches, for one row per follower in every `COUNT_MS`.

Replication does not depend on it.
"""

from __future__ import annotations

from strandline.core.errors import ErrorCode
from strandline.core.state_events import FetchStats
from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch

COUNT_MS = 10_000


class FetchCounts:
    """The fetches of one partition since the last rows."""

    __slots__ = ("_counts", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self._counts: dict[NodeId, _Count] = {}

    def fetched(self, replica: NodeId, now_ms: int) -> None:
        """A fetch was counted."""
        self._of(replica).fetched(now_ms)

    def refused(self, replica: NodeId, code: ErrorCode) -> None:
        """A fetch was refused."""
        errors = self._of(replica).errors
        errors[code.name] = errors.get(code.name, 0) + 1

    def sent(self, replica: NodeId, size_bytes: int) -> None:
        """An answer carried so many bytes."""
        self._of(replica).bytes += size_bytes

    def _of(self, replica: NodeId) -> _Count:
        if replica not in self._counts:
            self._counts[replica] = _Count()
        return self._counts[replica]

    def take(self, now_ms: int, leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch) -> list[FetchStats]:
        """One FETCH_STATS for each follower that fetched; counting starts again at 0."""
        interval_ms, self.since_ms = now_ms - self.since_ms, now_ms
        rows = [
            FetchStats(
                interval_ms=interval_ms,
                replica_id=replica,
                n_fetch=count.n_fetch,
                n_error=count.errors,
                max_gap_us=count.max_gap_ms * 1_000,
                bytes=count.bytes,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
            )
            for replica, count in sorted(self._counts.items())
        ]
        for count in self._counts.values():
            count.begin_anew()
        return [row for row in rows if row.n_fetch or row.n_error]


class _Count:
    __slots__ = ("bytes", "errors", "last_ms", "max_gap_ms", "n_fetch")

    def __init__(self) -> None:
        # The gap of a fetch to the one before it counts, whichever interval that one was in.
        self.last_ms: int | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        self.n_fetch = self.max_gap_ms = self.bytes = 0
        self.errors: dict[str, int] = {}

    def fetched(self, now_ms: int) -> None:
        if self.last_ms is not None:
            self.max_gap_ms = max(self.max_gap_ms, now_ms - self.last_ms)
        self.last_ms = now_ms
        self.n_fetch += 1
