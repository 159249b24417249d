"""Decides the ISR: which replicas join, must leave, and count for the high watermark, and when a change takes effect.

A follower leaves by this file when it was not at its leader's log end for `replica.lag.time.max.ms` of the leader's
clock, and by `core.leadership` when the controller fences its node.

Invariant (I6): while a change is pending the *maximal* ISR is the stricter reading of it, for an
expansion with the new member, for a shrink with the removed ones, because the controller may already
have applied either (KIP-497). At most one change is pending; only the controller ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from strandline.core.log.move_throttle import HeldTime
from strandline.core.messages import NodeImage, ProposedIsr
from strandline.core.types import NodeEpoch, NodeId, Offset, PartitionEpoch

# ---- progress
# What a leader knows of one follower: its remote LEO, and since when it is caught up (M5, M43).
#
# Invariant: ``remote_leo`` is set only by a fetch of the current leader epoch that passed the divergence
# check, and is unknown again at every new epoch: a leader counts no replica that has not fetched from it.


class FollowerProgress:
    """One assigned follower or observer, in one leader epoch."""

    __slots__ = (
        "barrier_seen",
        "claim_limit",
        "held",
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
        self.held = HeldTime()

    def fetched(self, fetch_offset: Offset, leader_leo: Offset, node_epoch: NodeEpoch, now_ms: int) -> bool:
        """Count a fetch that passed all checks. Returns whether the remote LEO changed (M15)."""
        if fetch_offset >= leader_leo:
            self._caught_up_at(now_ms)
        # Under constant writes a healthy follower never meets the moving LEO. If it has come to where the log ended at
        # its last fetch, it was caught up at that time (M43, as Kafka).
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
        """An append met this follower's fetch parked at the log end: it was caught up until now."""
        # A fetch on a stream may stay parked for longer than the lag time; the first append after that would evict a
        # healthy follower.
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


@dataclass(frozen=True, slots=True)
class PendingIsr:
    """A change that was proposed and neither committed nor refused."""

    proposal: ProposedIsr

    @property
    def members(self) -> frozenset[NodeId]:
        """The ISR as it would be."""
        return frozenset(m.node_id for m in self.proposal.new_isr)


@dataclass(frozen=True, slots=True)
class IsrState:
    """The ISR of one partition as its leader sees it."""

    committed: tuple[NodeId, ...]
    partition_epoch: PartitionEpoch
    pending: PendingIsr | None = None
    unproven: frozenset[NodeId] = frozenset()
    """Members that no leader has counted since their process started (M64)."""

    @property
    def maximal(self) -> frozenset[NodeId]:
        """All replicas that may be members as far as the leader can know (M19)."""
        committed = frozenset(self.committed)
        return committed | self.pending.members if self.pending else committed

    def proposing(self, proposal: ProposedIsr) -> IsrState:
        """This state with a change under way."""
        assert self.pending is None, "a second ISR change was proposed while one is pending"
        return IsrState(self.committed, self.partition_epoch, PendingIsr(proposal), self.unproven)

    def reverted(self) -> IsrState:
        """This state after a change that is known never to happen."""
        return IsrState(self.committed, self.partition_epoch, unproven=self.unproven)


def is_eligible(follower: FollowerProgress, node: NodeImage | None) -> bool:
    """Whether the process that was counted last is the registered one, and may be a member at all (M16, M44)."""
    return (
        node is not None
        and not node.fenced
        and not node.shutting_down
        and not node.is_observer
        # The process that was counted may have ended, and its successor may have come back with less (TR10).
        and follower.node_epoch == node.node_epoch
    )


def counted_for_hw(
    progress: Mapping[NodeId, FollowerProgress],
    *,
    maximal: Collection[NodeId],
    replicas: Collection[NodeId],
    nodes: Mapping[NodeId, NodeImage],
    leader_leo: Offset,
    now_ms: int,
    lag_max_ms: int,
) -> list[Offset | None]:
    """The remote LEOs that the HW waits for (M16)."""
    return [
        follower.remote_leo
        for node_id, follower in progress.items()
        if node_id in maximal
        or (
            # It could join at any moment: were it left out, the HW could pass it between the moment it qualifies and
            # the moment it is a member.
            node_id in replicas
            and follower.is_caught_up(leader_leo, now_ms, lag_max_ms)
            and is_eligible(follower, nodes.get(node_id))
        )
    ]


def must_leave(follower: FollowerProgress, *, leader_leo: Offset, now_ms: int, lag_max_ms: int) -> bool:
    """Whether a member has to go: it neither is at the log end nor was within the lag time (M42)."""
    return not follower.is_caught_up(leader_leo, now_ms, lag_max_ms)


def may_join(
    follower: FollowerProgress,
    *,
    hw: Offset,
    leader_leo: Offset,
    epoch_start_offset: Offset,
    now_ms: int,
    lag_max_ms: int,
) -> bool:
    """Whether a follower's position allows it into the ISR (M44)."""
    leo = follower.remote_leo
    # A new leader's HW may be behind what its predecessor committed, all of which lies below the start of its epoch; so
    # a follower that has only come to the HW may lack some of it (KAFKA-7128, TR6).
    if leo is None or leo < hw or leo < epoch_start_offset:
        return False
    # Below min ISR the HW does not move: a follower that only reaches it would join and leave again (KAFKA-19996, T42).
    return follower.is_caught_up(leader_leo, now_ms, lag_max_ms)
