"""The content of a partition's samples: the leader's view of every replica, a follower's view of itself.

Nothing is changed here; `reporting` decides when to sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from strandline.core.control.step_parts import committed_snapshot
from strandline.core.errors import ErrorCode
from strandline.core.log.effects import Emit
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.isr import FollowerProgress
from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import NodeImage
from strandline.core.state_events import FetchStats, LocalSample, Member, Moment, ReplicaSample
from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch


def look_of(leader: LeaderReplica) -> tuple[object, ...]:
    """The state that must differ for a new sample to contain anything new."""
    remotes = tuple(follower.remote_leo for follower in leader.progress.values())
    return (leader.log.leo, leader.log.vote, leader.log.hw, remotes, leader.isr)


def leader_epochs(leader: LeaderReplica) -> tuple[LeaderEpoch, PartitionEpoch]:
    """The leader epoch and the partition epoch for this leader's events."""
    return leader.image.leader_epoch, leader.isr.partition_epoch


def replica_samples(
    leader: LeaderReplica,
    nodes: Mapping[NodeId, NodeImage],
    *,
    sample_id: int,
    interval_ms: int,
    hw: Offset,
    isr: Collection[NodeId],
    next_append_ms: int | None,
) -> Iterator[Emit]:
    """One row for each replica, all of the same moment. ``hw`` and ``isr`` may be those from just before it."""
    log = leader.log
    maximal = leader.isr.maximal.union(isr)
    waits = None if next_append_ms is None or hw >= log.leo else Moment(next_append_ms)
    own = ReplicaSample(
        sample_id=sample_id,
        interval_ms=interval_ms,
        replica_id=leader.node_id,
        leo=log.leo,
        durable_leo=log.vote,
        leader_leo=log.leo,
        hw=hw,
        acked_offset=leader.acked_offset,
        log_start=log.log_start_offset,
        leo_bytes=log.sizes.bytes_before(log.leo),
        hw_bytes=log.sizes.bytes_before(hw),
        hw_next_append_ms=waits,
        last_fetch_ms=None,
        last_caught_up_ms=None,
        in_isr=leader.node_id in isr,
        in_maximal_isr=leader.node_id in maximal,
        expected_state="member",
        leader_epoch=leader.image.leader_epoch,
        partition_epoch=leader.isr.partition_epoch,
    )
    yield Emit(log.tp, own)
    for follower in leader.progress.values():
        seen = own._replace(
            replica_id=follower.node_id,
            leo=follower.remote_leo,
            durable_leo=follower.remote_leo,
            last_fetch_ms=_moment(follower.last_fetch_ms),
            last_caught_up_ms=_moment(follower.last_caught_up_ms),
            in_isr=follower.node_id in isr,
            in_maximal_isr=follower.node_id in maximal,
            expected_state=_expected(follower.node_id, leader, nodes, isr),
        )
        yield Emit(log.tp, seen)


def _moment(at_ms: int | None) -> Moment | None:
    return None if at_ms is None else Moment(at_ms)


def _expected(
    node_id: NodeId, leader: LeaderReplica, nodes: Mapping[NodeId, NodeImage], isr: Collection[NodeId]
) -> str:
    if node_id not in leader.image.replicas:
        return "observer"
    if node_id in isr:
        return "member"
    node = nodes.get(node_id)
    return "down" if node is None or node.fenced else "catching_up"


def local_sample(follower: FollowerReplica, interval_ms: int) -> Emit:
    """A follower's view of itself."""
    seen = LocalSample(
        interval_ms=interval_ms,
        leo=follower.log.leo,
        hw=follower.log.hw,
        fetch_leader_id=follower.leader,
        leader_epoch=follower.leader_epoch,
        partition_epoch=follower.image.partition_epoch,
    )
    return Emit(follower.log.tp, seen)


def throttled(follower: FollowerReplica, node_id: NodeId, throttled_ms: int) -> Emit:
    """How long the throttle of a move has held back a follower's own fetches, in the last `COUNT_MS` or longer."""
    stats = FetchStats(
        interval_ms=max(COUNT_MS, throttled_ms),
        replica_id=node_id,
        n_fetch=0,
        n_error={},
        max_gap_us=0,
        bytes=0,
        throttled_ms=throttled_ms,
        leader_epoch=follower.leader_epoch,
        partition_epoch=follower.image.partition_epoch,
    )
    return Emit(follower.log.tp, stats)


def leader_snapshot(leader: LeaderReplica) -> Emit:
    """A leader's view of its partition as a whole."""
    known = committed_snapshot(leader.image)._replace(
        new_isr=leader.isr.committed,
        leo=leader.log.leo,
        hw=leader.log.hw,
        log_start=leader.log.log_start_offset,
        start_offset=leader.epoch_start_offset,
        leader_epoch=leader.image.leader_epoch,
        partition_epoch=leader.isr.partition_epoch,
    )
    return Emit(leader.log.tp, known)


def member(leader: LeaderReplica, node_id: NodeId) -> Member:
    """The leader's view of a replica that joins or leaves the ISR."""
    follower = leader.progress.get(node_id)
    if follower is None:
        return Member(node_id)
    return Member(node_id, follower.remote_leo, _moment(follower.last_fetch_ms), _moment(follower.last_caught_up_ms))


# ---- fetch_counts
# Counts the fetches of each follower of a led partition, for one row per follower in every `COUNT_MS`.
#
# Replication does not depend on it.

COUNT_MS = 10_000


class FetchCounts:
    """The fetches of one partition since the last rows."""

    __slots__ = ("_counts", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self._counts: dict[NodeId, _Count] = {}

    def fetched(self, replica: NodeId, now_ms: int) -> None:
        """Count a fetch."""
        self._of(replica).fetched(now_ms)

    def refused(self, replica: NodeId, code: ErrorCode) -> None:
        """Count a refused fetch."""
        errors = self._of(replica).errors
        errors[code.name] = errors.get(code.name, 0) + 1

    def sent(self, replica: NodeId, size_bytes: int) -> None:
        """Count the bytes of an answer."""
        self._of(replica).bytes += size_bytes

    def _of(self, replica: NodeId) -> _Count:
        if replica not in self._counts:
            self._counts[replica] = _Count()
        return self._counts[replica]

    def take(self, leader: LeaderReplica, now_ms: int) -> list[FetchStats]:
        """One FETCH_STATS for each follower that fetched or was held back; counting starts again at 0."""
        leader_epoch, partition_epoch = leader_epochs(leader)
        interval_ms, self.since_ms = now_ms - self.since_ms, now_ms
        rows = [
            FetchStats(
                interval_ms=interval_ms,
                replica_id=replica,
                n_fetch=count.n_fetch,
                n_error=count.errors,
                max_gap_us=count.max_gap_ms * 1_000,
                bytes=count.bytes,
                throttled_ms=count.throttled_ms(leader.progress.get(replica), now_ms),
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
            )
            for replica, count in sorted(self._counts.items())
        ]
        for count in self._counts.values():
            count.reset()
        return [row for row in rows if row.n_fetch or row.n_error or row.throttled_ms]


class _Count:
    __slots__ = ("_held_ms", "bytes", "errors", "last_ms", "max_gap_ms", "n_fetch")

    def __init__(self) -> None:
        # The gap to the fetch before counts, even if that one was in an earlier interval.
        self.last_ms: int | None = None
        # The part of the throttled time that was already reported.
        self._held_ms = 0
        self.reset()

    def reset(self) -> None:
        self.n_fetch = self.max_gap_ms = self.bytes = 0
        self.errors: dict[str, int] = {}

    def throttled_ms(self, follower: FollowerProgress | None, now_ms: int) -> int:
        """How long a throttle has held the follower back since the last call."""
        before, self._held_ms = self._held_ms, 0 if follower is None else follower.held.total_ms(now_ms)
        return max(0, self._held_ms - before)

    def fetched(self, now_ms: int) -> None:
        if self.last_ms is not None:
            self.max_gap_ms = max(self.max_gap_ms, now_ms - self.last_ms)
        self.last_ms = now_ms
        self.n_fetch += 1


# ---- hw_advances
# Decides which advances of an HW are reported one by one, and which are merged.
#
# Up to `EXACT_PER_S` advances of a partition per second are reported as they happen. Further ones are merged in buckets
# of `BUCKET_MS`, each with the time of its first and last advance, so no boundary of a stall is less precise than that.
#
# Invariant: reported advances are chained: the old HW of each is the new HW of the one before it.

EXACT_PER_S = 10
BUCKET_MS = 100


class Advance(NamedTuple):
    """The content of one HW_ADVANCE, without the epochs."""

    old_hw: Offset
    new_hw: Offset
    cause: str
    first_ms: Moment
    last_ms: Moment
    n_coalesced: int
    blocking_replicas: tuple[NodeId, ...]


class HwAdvances:
    """Makes the reports about the HW of one led partition."""

    __slots__ = ("_blockers", "_bucket", "_exact", "_second_ms")

    def __init__(self) -> None:
        # The number of advances reported one by one since `_second_ms`.
        self._exact = 0
        self._second_ms = 0
        self._bucket: Advance | None = None
        self._blockers: set[NodeId] = set()

    @property
    def is_open(self) -> bool:
        """Whether advances wait to be reported."""
        return self._bucket is not None

    def rose(self, old: Offset, new: Offset, cause: str, blockers: Iterable[NodeId], now_ms: int) -> list[Advance]:
        """Note that the HW rose; return what must be reported now."""
        due = self.due(now_ms)
        reported = [] if due is None else [due]
        if now_ms - self._second_ms >= 1_000:
            self._second_ms, self._exact = now_ms, 0
        if self._bucket is None:
            bucket = _advance(old, new, cause, now_ms)
            if self._exact < EXACT_PER_S:
                self._exact += 1
                return [*reported, bucket._replace(blocking_replicas=tuple(blockers))]
            self._bucket, self._blockers = bucket, set(blockers)
            return reported
        count = self._bucket.n_coalesced + 1
        self._bucket = self._bucket._replace(new_hw=new, last_ms=Moment(now_ms), n_coalesced=count)
        self._blockers.update(blockers)
        return reported

    def due(self, now_ms: int) -> Advance | None:
        """The bucket, if its time is over; else None."""
        if self._bucket is None or now_ms - self._bucket.first_ms < BUCKET_MS:
            return None
        return self.rest()

    def rest(self) -> Advance | None:
        """The bucket, whatever its age, because another event comes next or leadership ends; None if there is none."""
        bucket, self._bucket = self._bucket, None
        return None if bucket is None else bucket._replace(blocking_replicas=tuple(sorted(self._blockers)))


def _advance(old: Offset, new: Offset, cause: str, now_ms: int) -> Advance:
    return Advance(old, new, cause, Moment(now_ms), Moment(now_ms), n_coalesced=1, blocking_replicas=())
