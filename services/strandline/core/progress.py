"""What a leader knows of one follower: its remote LEO, and since when it is caught up (M5, M43).

Invariant: ``remote_leo`` is set only by a fetch of the current leader epoch that passed the divergence
check, and is unknown again at every new epoch: a leader counts no replica that has not fetched from it.
"""

from __future__ import annotations

from strandline.core.types import NodeEpoch, NodeId, Offset


class FollowerProgress:
    """One assigned follower or observer, in one leader epoch."""

    __slots__ = (
        "barrier_seen",
        "claim_limit",
        "last_caught_up_ms",
        "last_fetch_leader_leo",
        "last_fetch_ms",
        "log_start_offset",
        "node_epoch",
        "node_id",
        "reconciled_by",
        "remote_leo",
    )

    def __init__(self, node_id: NodeId, caught_up_ms: int | None, claim_limit: Offset) -> None:
        """``claim_limit``: where this follower can be at most before its first counted fetch."""
        self.node_id = node_id
        # Incarnation that sent the last counted fetch; frozen into any proposal it earns (TR10).
        self.node_epoch: NodeEpoch | None = None
        # Incarnation whose log passed the divergence check in this leader epoch.
        self.reconciled_by: NodeEpoch | None = None
        self.remote_leo: Offset | None = None
        # From the last counted fetch: durable on the follower. None before the first, or if the fetch had none.
        self.log_start_offset: Offset | None = None
        self.last_fetch_ms: int | None = None
        self.last_fetch_leader_leo: Offset = Offset(0)
        # None: never in this leader epoch (Kafka: 0).
        self.last_caught_up_ms = caught_up_ms
        # Highest offset this follower can honestly fetch from in this leader epoch: records beyond the epoch's start
        # come from this leader alone. It never falls: a directory that is put back may hold all that was ever sent.
        self.claim_limit = claim_limit
        # The newest read barrier of this leader epoch that the follower has repeated; 0: none (G10).
        self.barrier_seen = 0

    def fetched(self, fetch_offset: Offset, leader_leo: Offset, node_epoch: NodeEpoch, now_ms: int) -> bool:
        """Count a fetch that passed all checks. Returns whether the remote LEO changed (M15)."""
        if fetch_offset >= leader_leo:
            self._caught_up_at(now_ms)
        elif self.last_fetch_ms is not None and fetch_offset >= self.last_fetch_leader_leo:
            self._caught_up_at(self.last_fetch_ms)
        changed = self.remote_leo != fetch_offset
        self.remote_leo = fetch_offset
        self.node_epoch = node_epoch
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_leo = leader_leo
        self.claim_limit = max(self.claim_limit, fetch_offset)
        return changed

    def reconciles(self, node_epoch: NodeEpoch) -> bool:
        """A fetch passed the divergence check. Returns whether it is the first of its incarnation in this epoch."""
        is_first = self.reconciled_by != node_epoch
        self.reconciled_by = node_epoch
        return is_first

    def sent(self, end_offset: Offset) -> None:
        """An answer carried records up to ``end_offset`` (exclusive)."""
        self.claim_limit = max(self.claim_limit, end_offset)

    def met_by_append(self, leader_leo_before: Offset, now_ms: int) -> None:
        """An append met this follower's fetch parked at the log end: it was caught up until now.

        Without this the first append after an idle half minute would evict a healthy follower.
        """
        if self.remote_leo == leader_leo_before:
            self._caught_up_at(now_ms)

    def excuse(self, gap_ms: int) -> None:
        """The leader itself did not run for ``gap_ms``; the follower is not blamed for it (M59)."""
        if self.last_caught_up_ms is not None:
            self.last_caught_up_ms += gap_ms

    def is_caught_up(self, leader_leo: Offset, now_ms: int, lag_max_ms: int) -> bool:
        """At the log end, or there no longer ago than ``lag_max_ms`` (M16, M42)."""
        if self.remote_leo == leader_leo:
            return True
        return self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= lag_max_ms

    def _caught_up_at(self, at_ms: int) -> None:
        if self.last_caught_up_ms is None or at_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = at_ms
