"""What a scrape of a data node reads from its core: gauges over all partitions, at that moment.

Invariant: nothing is changed. It runs in the event loop, between two steps, and costs a few microseconds per partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

from strandline.core import state_events
from strandline.core.errors import Refusal
from strandline.core.log import effects as want
from strandline.core.log.events import Event
from strandline.core.log.follower import FetchState
from strandline.core.log.isr import FollowerProgress
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.node import NodeCore
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.log.state import NodeState
from strandline.core.quotas import Meters, QuotaKey
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.metrics import families as f
from strandline.metrics.figures import Figure, Histogram, Tally
from strandline.metrics.groups import GroupCounts
from strandline.runtime.calls import Calls, Room, Sink
from strandline.runtime.log_performers import Perform

# ---- node_counts
# What is counted in a data node as it happens: in wrappers around its performers, never inside its core.
#
# A node without a metrics port runs its performers without wrappers. With them a produce costs two more readings of the
# clock and four additions.
#
# Invariant: an effect is performed exactly as without counting; nothing here raises.

_CAUSES = ("lag", "node_fenced", "controlled_shutdown", "reassign", "other")


class TimedCalls(Calls):
    """Calls that record since when each one waits."""

    def __init__(self) -> None:
        super().__init__()
        self.since_s: dict[int, float] = {}

    def wait(self, request_id: int, sink: Sink, room: Room | None = None, named: int = 1) -> None:
        """See `Calls.wait`."""
        super().wait(request_id, sink, room, named)
        self.since_s[request_id] = perf_counter()

    def drop(self, request_id: int) -> bool:
        """See `Calls.drop`."""
        self.since_s.pop(request_id, None)
        return super().drop(request_id)


class NodeCounts:
    """Counts what one node has done since its process began."""

    def __init__(self) -> None:
        self.calls = TimedCalls()
        self.fsync = Histogram()
        self.groups = GroupCounts()
        self._produce = Histogram()
        self._fetch = {"replica": Histogram(), "consumer": Histogram()}
        self._shrinks = Tally(f.ISR_SHRINKS, *_CAUSES)
        self._expands = 0
        self._failed_updates = 0
        self._records_in = self._bytes_in = self._replicated_bytes_in = 0
        self._truncations = self._truncated = self._committed_cut = self._cuts_at_unknown_hw = 0
        self._offset_commits = Tally(f.OFFSET_COMMITS, "committed")
        self._transactions = Tally(f.TRANSACTIONS, "commit", "abort")
        self._on_event: dict[type[object], Callable[[Any], None]] = {
            state_events.IsrChange: self._isr_changed,
            state_events.AlterPartition: self._proposal_ended,
            state_events.Truncation: self._log_cut,
            state_events.GroupChange: self.groups.changed,
            state_events.CoordinatorLoad: self.groups.loaded,
            state_events.TransactionDecided: self._transactions_decided,
        }

    def around(self, table: Mapping[type[object], Perform]) -> dict[type[object], Perform]:
        """The same performers, wrapped so that they are counted."""
        return {
            **table,
            want.Append: self._counted(self._appended, table[want.Append]),
            want.AppendReplicated: self._counted(self._replicated, table[want.AppendReplicated]),
            want.AnswerProduce: self._counted(self._produce_answered, table[want.AnswerProduce]),
            want.AnswerFetch: self._counted(self._fetch_answered, table[want.AnswerFetch]),
            want.Emit: self._counted(self._emitted, table[want.Emit]),
        }

    @staticmethod
    def _counted(count: Callable[[Any], None], perform: Perform) -> Perform:
        def performed(effect: Any) -> Event | None:
            count(effect)
            return perform(effect)

        return performed

    def _appended(self, effect: want.Append) -> None:
        self._records_in += effect.header.record_count
        self._bytes_in += effect.header.size_bytes

    def _replicated(self, effect: want.AppendReplicated) -> None:
        self._replicated_bytes_in += sum(header.size_bytes for header in effect.batches)

    def _produce_answered(self, effect: want.AnswerProduce) -> None:
        since_s = self.calls.since_s.pop(effect.request_id, None)
        if since_s is not None:
            self._produce.observe(perf_counter() - since_s)

    def _fetch_answered(self, effect: want.AnswerFetch) -> None:
        # A stream's fetch may be answered in parts; an answer without results ends one that was withdrawn.
        since_s = self.calls.since_s.pop(effect.request_id, None)
        if since_s is not None and effect.results:
            by = "consumer" if effect.replica is None else "replica"
            self._fetch[by].observe(perf_counter() - since_s)

    def _emitted(self, effect: want.Emit) -> None:
        count = self._on_event.get(type(effect.event))
        if count is not None:
            count(effect.event)

    def _isr_changed(self, change: state_events.IsrChange) -> None:
        if change.removed:
            self._shrinks.add(change.cause if change.cause in _CAUSES else "other")
        if change.added:
            self._expands += 1

    def _proposal_ended(self, proposal: state_events.AlterPartition) -> None:
        refused = proposal.phase == "result" and proposal.error_code != 0
        self._failed_updates += refused or proposal.phase == "timeout"

    def _log_cut(self, cut: state_events.Truncation) -> None:
        self._truncations += 1
        self._truncated += cut.from_leo - cut.to_leo
        self._committed_cut += cut.committed_cut or 0
        self._cuts_at_unknown_hw += cut.committed_cut is None

    def _transactions_decided(self, decided: state_events.TransactionDecided) -> None:
        self._transactions.add(decided.outcome, decided.n_coalesced)

    def offsets_committed(self, refusals: Iterable[Refusal | None]) -> None:
        """Count an answered offset commit; ``refusals`` has one entry for each partition, None if it succeeded."""
        for refusal in refusals:
            self._offset_commits.add("committed" if refusal is None else refusal.code.name)

    def figures(self) -> Iterator[Figure]:
        """The present values."""
        yield Figure(f.PRODUCE_LATENCY, self._produce.spread())
        yield from (Figure(f.FETCH_LATENCY, one.spread(), (by,)) for by, one in self._fetch.items())
        yield Figure(f.FSYNC, self.fsync.spread())
        yield from self._shrinks.figures()
        yield Figure(f.ISR_EXPANDS, self._expands)
        yield Figure(f.FAILED_ISR_UPDATES, self._failed_updates)
        yield Figure(f.RECORDS_IN, self._records_in)
        yield Figure(f.BYTES_IN, self._bytes_in)
        yield Figure(f.REPLICATED_BYTES_IN, self._replicated_bytes_in)
        yield Figure(f.TRUNCATIONS, self._truncations)
        yield Figure(f.TRUNCATED_RECORDS, self._truncated)
        yield Figure(f.COMMITTED_CUT, self._committed_cut)
        yield Figure(f.CUTS_AT_UNKNOWN_HW, self._cuts_at_unknown_hw)
        yield from self._transactions.figures()
        yield from self._offset_commits.figures()


# ---- standing
# The age of the oldest record above an HW, from periodic samples.
#
# Each sample remembers the log end; a mark is dropped when the HW has passed it, so the oldest remaining mark gives the
# age, at most one interval between samples too low.
#
# Invariant: memory is bounded, and the data path is not involved.

LOOK_EVERY_S = 0.25
_MARKS = 256
"""Most marks for each partition; with more, ages are rounded up to that of the last mark."""

_Marks = deque[tuple[Offset, int]]


class StandingRecords:
    """The ages of records that wait to be committed, by led partition."""

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, _Marks] = {}

    def look(self, led: Iterable[ReplicaLog], now_ms: int) -> None:
        """Sample every led partition; forget those that are no longer led."""
        before, self._marks = self._marks, {}
        for log in led:
            if log.hw >= log.leo:
                continue
            marks = before.get(log.tp) or deque()
            while marks and marks[0][0] <= log.hw:
                marks.popleft()
            if not marks or marks[-1][0] < log.leo:
                if len(marks) == _MARKS:
                    marks[-1] = (log.leo, marks[-1][1])
                else:
                    marks.append((log.leo, now_ms))
            self._marks[log.tp] = marks

    def oldest_s(self, led: Iterable[ReplicaLog], now_ms: int) -> float:
        """Age in s of the oldest record that is above the HW now; 0 if there is none."""
        return max((now_ms - since for log in led if (since := self._since(log)) is not None), default=0) / 1000

    def _since(self, log: ReplicaLog) -> int | None:
        marks = self._marks.get(log.tp, ())
        return next((at_ms for end, at_ms in marks if end > log.hw), None)


# ---- held_back
# How long a transaction has held back an LSO, from periodic samples of led partitions.
#
# Each sample remembers an LSO that is below its HW; the result is at most one interval between samples too low. A new
# leader begins at 0.
#
# Invariant: memory is bounded by the number of led partitions, and the data path is not involved.


class HeldBack:
    """Since when the LSO of each led partition has not moved."""

    def __init__(self) -> None:
        self._stands: dict[TopicPartition, tuple[Offset, int]] = {}

    def look(self, led: Iterable[ReplicaLog], now_ms: int) -> None:
        """Sample every led partition; forget those that are no longer led."""
        before, self._stands = self._stands, {}
        for log in led:
            lso = log.lso
            if lso < log.hw:
                known = before.get(log.tp)
                self._stands[log.tp] = known if known is not None and known[0] == lso else (lso, now_ms)

    def longest_s(self, led: Iterable[ReplicaLog], now_ms: int) -> float:
        """The longest time in s for which an LSO has been held back; 0 if none is held back now."""
        return max((now_ms - since for log in led if (since := self._since(log)) is not None), default=0) / 1000

    def _since(self, log: ReplicaLog) -> int | None:
        known = self._stands.get(log.tp)
        return known[1] if known is not None and known[0] == log.lso < log.hw else None


# ---- stalled_moves
# How long the reassignment of a led partition has made no progress, from periodic samples.
#
# It makes progress if a replica that it adds has fetched more, or if the ISR changes. A new leader begins at 0.
#
# Invariant: memory is bounded by the number of led partitions, and the data path is not involved.

_Reached = tuple[frozenset[NodeId], tuple[Offset | None, ...]]


class StalledMoves:
    """Since when each reassignment of a led partition has made no progress."""

    def __init__(self) -> None:
        self._stands: dict[TopicPartition, tuple[_Reached, int]] = {}

    def look(self, led: Iterable[LeaderReplica], now_ms: int) -> None:
        """Sample every led partition; forget those that are no longer led or have no reassignment."""
        before, self._stands = self._stands, {}
        for leader in led:
            if leader.image.original:
                reached = _reached(leader)
                known = before.get(leader.log.tp)
                self._stands[leader.log.tp] = known if known and known[0] == reached else (reached, now_ms)

    def longest_s(self, now_ms: int) -> float:
        """The longest time in s without progress; 0 if no reassignment runs."""
        return max((now_ms - since_ms for _, since_ms in self._stands.values()), default=0) / 1000


def _reached(leader: LeaderReplica) -> _Reached:
    isr = frozenset(leader.isr.committed)
    waited_for = (leader.progress.get(node_id) for node_id in leader.image.adding if node_id not in isr)
    return isr, tuple(follower.remote_leo if follower else None for follower in waited_for)


class LedLooks:
    """The periodic samples of led partitions."""

    def __init__(self) -> None:
        self.standing = StandingRecords()
        self.held = HeldBack()
        self.moves = StalledMoves()

    def take(self, led: Sequence[LeaderReplica], now_ms: int) -> None:
        """Sample every led partition."""
        logs = [leader.log for leader in led]
        self.standing.look(logs, now_ms)
        self.held.look(logs, now_ms)
        self.moves.look(led, now_ms)


def node_figures(core: NodeCore, looks: LedLooks, now_ms: int) -> Iterator[Figure]:
    """All figures that are not counted as they happen."""
    state = core.state
    leaders = list(state.leaders.values())
    yield Figure(f.PARTITIONS, len(state.logs))
    yield Figure(f.LED, len(leaders))
    short = (len(one.isr.committed) < len(one.image.settled_replicas) for one in leaders)
    yield Figure(f.UNDER_REPLICATED, sum(short))
    yield Figure(f.REASSIGNMENT_STALLED, looks.moves.longest_s(now_ms))
    yield Figure(f.UNDER_MIN_ISR, sum(one.is_under_min_isr for one in leaders))
    yield Figure(f.AT_MIN_ISR, sum(len(one.isr.committed) == one.image.min_isr for one in leaders))
    yield Figure(f.FAILED_PARTITIONS, sum(one.state is FetchState.FAILED for one in state.followers.values()))
    yield Figure(f.REFUSED_CUTS, sum(one.refused_cut_to is not None for one in state.followers.values()))
    yield Figure(f.CONTROLLER_EPOCH, state.controller_epoch)
    if state.node_epoch is not None:
        yield Figure(f.NODE_EPOCH, state.node_epoch)
    yield Figure(f.HW_LAG_RECORDS, max((one.log.leo - one.log.hw for one in leaders), default=0))
    yield Figure(f.HW_LAG_SECONDS, looks.standing.oldest_s((one.log for one in leaders), now_ms))
    yield Figure(f.LSO_LAG_RECORDS, max((one.log.hw - one.log.lso for one in leaders), default=0))
    yield Figure(f.LSO_HELD_SECONDS, looks.held.longest_s((one.log for one in leaders), now_ms))
    yield from _waiting(core)
    yield from _lags(leaders, now_ms)


def quota_figures(meters: Meters) -> Iterator[Figure]:
    """The throttled callers and their time, for each kind of quota that nodes enforce."""
    for key in QuotaKey:
        if key is not QuotaKey.CONTROLLER_MUTATION_RATE:
            yield Figure(f.QUOTA_THROTTLED, meters.throttled[key], (str(key),))
            yield Figure(f.QUOTA_THROTTLE, meters.throttled_ms[key] / 1_000, (str(key),))


def _waiting(core: NodeCore) -> Iterator[Figure]:
    for kind, size, expired in zip(("produce", "fetch"), core.parked, core.expired, strict=True):
        yield Figure(f.PURGATORY_SIZE, size, (kind,))
        yield Figure(f.PURGATORY_EXPIRES, expired, (kind,))


def _lags(leaders: list[LeaderReplica], now_ms: int) -> Iterator[Figure]:
    records: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for leader in leaders:
        for follower in leader.progress.values():
            name = str(follower.node_id)
            records[name] = max(records.get(name, 0), lag_records(leader, follower))
            behind_s = _lag_s(leader, follower, now_ms)
            if behind_s is not None:
                seconds[name] = max(seconds.get(name, 0), behind_s)
    yield from (Figure(f.REPLICA_LAG_RECORDS, lag, (name,)) for name, lag in records.items())
    yield from (Figure(f.REPLICA_LAG_SECONDS, lag, (name,)) for name, lag in seconds.items())


def lag_records(leader: LeaderReplica, follower: FollowerProgress) -> int:
    """The records that a follower lacks; at least this epoch's records if it has not fetched in this epoch."""
    have = leader.epoch_start_offset if follower.remote_leo is None else follower.remote_leo
    return max(0, leader.log.leo - have)


def _lag_s(leader: LeaderReplica, follower: FollowerProgress, now_ms: int) -> float | None:
    """The time in s since a follower was caught up; None if it was not in this epoch, because it is then unknown."""
    if follower.last_caught_up_ms is None:
        return None
    if follower.remote_leo == leader.log.leo:
        return 0.0
    return max(0, now_ms - follower.last_caught_up_ms) / 1000


def partition_figures(state: NodeState) -> Iterator[Figure]:
    """The series of each partition and, for led ones, of each follower; only if a setting asks for them."""
    for log in state.logs.values():
        labels = (log.topic, str(log.tp.partition))
        yield Figure(f.LOG_END_OFFSET, log.leo, labels)
        yield Figure(f.HIGH_WATERMARK, log.hw, labels)
        yield Figure(f.LOG_START_OFFSET, log.log_start_offset, labels)
    for leader in state.leaders.values():
        labels = (leader.log.topic, str(leader.log.tp.partition))
        yield Figure(f.LAST_STABLE_OFFSET, leader.log.lso, labels)
        yield Figure(f.PARTITION_HW_LAG, leader.log.leo - leader.log.hw, labels)
        yield Figure(f.PARTITION_ISR, len(leader.isr.committed), labels)
        for follower in leader.progress.values():
            lag = lag_records(leader, follower)
            yield Figure(f.PARTITION_REPLICA_LAG, lag, (*labels, str(follower.node_id)))
