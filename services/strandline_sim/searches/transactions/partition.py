"""One partition as a value, and the steps of the production `NodeCore` that leads it.

Invariant: every decision is the core's; this file carries state in and out of it. Appended batches are committed
in a separate step (`committed`), so that an answer which does not wait for it is found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import events
from strandline.core.log.effects import AnswerFetch, AnswerProduce, Append, Effect, SendAddPartitions
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.node import NodeCore
from strandline.core.log.producers import ProducerLedger
from strandline.core.log.replica_log import DurablePoint, ReplicaLog
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import FetchPartition, FetchRequest, NodeImage, PartitionImage, ProducePartition
from strandline.core.serving.produce_checks import ParkedProduce, UnverifiedBatch
from strandline.core.types import (
    OF_TRANSACTIONS,
    TRANSACTIONAL_BIT,
    Acks,
    BatchHeader,
    Durability,
    EpochEntry,
    LeaderEpoch,
    Marker,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    ProducerStamp,
    Rules,
    TopicPartition,
)
from strandline.records.batch import Batch, committed as committed_batches

ID = "t"
"""The transactional id."""
PRODUCER = 7
TOPIC_ID = "00000000-0000-4000-8000-000000000001"
TPS = (TopicPartition(TOPIC_ID, 0), TopicPartition(TOPIC_ID, 1))

_TP = TPS[0]
_NODE = NodeId(0)
_RULES = Rules(durability=Durability.FSYNC)
_TIMINGS = NodeTimings()
_NOW_MS, _TIMEOUT_MS = 0, 1_000
_FIRST_REQUEST = 1_000
_BYTES = 100


class Entry(NamedTuple):
    """One batch: a record of the transaction of ``epoch``, or the marker of that epoch."""

    epoch: int
    commits: bool | None = None
    """None for a record, else the outcome in the marker."""
    coordinator_epoch: int = 0
    """0 in a record."""


class Request(NamedTuple):
    """A batch that waits for its answer."""

    entry: Entry
    end: int | None
    """Answered once everything below this is committed; None while it waits for the coordinator's consent (X9)."""
    is_heard: bool
    """Whether a caller still waits for the answer."""


class Question(NamedTuple):
    """A question of the leader to the coordinator, and the answer."""

    epoch: int
    answer: ErrorCode | None = None
    """NONE if the coordinator agreed; None while there is no answer."""
    is_awaited: bool = True
    """Whether the batch of the question still waits."""


class PartitionLog(NamedTuple):
    """One partition, as its leader holds it."""

    log: tuple[Entry, ...] = ()
    hw: int = 0
    question: Question | None = None
    requests: tuple[Request, ...] = ()
    """Requests in the order of their arrival."""


Answer = tuple[Entry, ErrorCode]
"""The answer to a request: NONE if its batch is committed."""
After = tuple[PartitionLog, tuple[Answer, ...]]


def produced(partition: PartitionLog, entry: Entry, *, is_heard: bool) -> After:
    """A batch arrives: a record of the producer, or a marker."""
    return _produced(partition, entry, is_heard)


@cache
def _produced(partition: PartitionLog, entry: Entry, is_heard: bool) -> After:
    bench = _Bench(partition)
    bench.begin(Request(entry, None, is_heard))
    return bench.after()


@cache
def agreed(partition: PartitionLog) -> After:
    """The coordinator's answer arrives."""
    question = partition.question
    assert question is not None and question.answer is not None, "no answer is on its way"
    refusal = None if question.answer is ErrorCode.NONE else Refusal(question.answer, "")
    bench = _Bench(partition)
    bench.step(events.AddPartitionsAnswered(_NOW_MS, bench.asked, refusal))
    return bench.after()


@cache
def committed(partition: PartitionLog) -> After:
    """Everything appended is committed."""
    bench = _Bench(partition)
    bench.step(events.LogFlushed(_NOW_MS, _TP, Offset(len(partition.log))))
    return bench.after()


@cache
def expired(partition: PartitionLog) -> After:
    """The deadline of everything that waits has passed."""
    bench = _Bench(partition)
    bench.step(events.Ticked(_NOW_MS + _TIMEOUT_MS, _NOW_MS + _TIMEOUT_MS))
    return bench.after()


@cache
def last_stable_offset(partition: PartitionLog) -> int:
    """The LSO."""
    return _Bench(partition).log.lso


@cache
def given(partition: PartitionLog, offset: int) -> tuple[Entry, ...]:
    """The records that a reader of committed records is given from an offset on."""
    bench = _Bench(partition)
    part = FetchPartition(_TP, Offset(offset))
    request = FetchRequest((part,), None, max_wait_ms=0, min_bytes=0, read_committed=True)
    answer = next(
        e for e in bench.step(events.FetchArrived(_NOW_MS, _FIRST_REQUEST - 1, request)) if isinstance(e, AnswerFetch)
    )
    found = answer.results[0]
    assert found.refusal is None, f"a fetch at {offset} was refused: {found.refusal}"
    if found.read is None:
        return ()
    batches = [
        Batch(_header(entry, index), memoryview(b""))
        for index, entry in enumerate(partition.log)
        if found.read.start <= index < found.read.end
    ]
    shown = committed_batches(batches, [(each.producer_id, each.first_offset) for each in found.aborted])
    return tuple(partition.log[batch.header.base_offset] for batch in shown)


def left_by_leader(partition: PartitionLog) -> PartitionLog:
    """The leader dies; the next one has the committed batches, and no requests."""
    return PartitionLog(log=partition.log[: partition.hw], hw=partition.hw)


CACHED: tuple[Callable[[], None], ...] = tuple(
    each.cache_clear for each in (_produced, agreed, committed, expired, last_stable_offset, given)
)
"""Clear the cached decisions; a test that changes a rule calls them."""


def _header(entry: Entry, offset: int = 0) -> BatchHeader:
    is_record = entry.commits is None
    return BatchHeader(
        base_offset=Offset(offset),
        leader_epoch=LeaderEpoch(0),
        record_count=1,
        size_bytes=_BYTES,
        max_timestamp_ms=0,
        producer=ProducerStamp(PRODUCER, entry.epoch, 0 if is_record else -1),
        attributes=TRANSACTIONAL_BIT if is_record else OF_TRANSACTIONS,
        marker=None if entry.commits is None else Marker(entry.commits, entry.coordinator_epoch),
    )


class _Bench:
    """A core in the state of a partition."""

    def __init__(self, partition: PartitionLog) -> None:
        self._core = NodeCore(node_id=_NODE, rules=_RULES, timings=_TIMINGS)
        self._core.step(events.Registered(_NOW_MS, "transactions", NodeEpoch(1), 1))
        self._core.step(events.Ticked(_NOW_MS, _NOW_MS))
        self._entries = list(partition.log)
        self.log = self._opened(partition)
        self._lead()
        self._requests: dict[int, Request] = {}
        self._answers: list[Answer] = []
        self._question = partition.question
        self.asked = 0
        """Correlation id of the question."""
        if partition.question is not None:
            self.asked = self._core.state.next_correlation_id()
            self._core._produce._verification.ask(self.asked, _TP, PRODUCER)
            if not partition.question.is_awaited:
                self._leave_behind(Entry(partition.question.epoch))
        for request in partition.requests:
            self._wait(request)

    def _opened(self, partition: PartitionLog) -> ReplicaLog:
        ledger = ProducerLedger()
        for offset, entry in enumerate(partition.log):
            ledger.observe(_header(entry, offset), Offset(offset))
        leo, epochs = Offset(len(partition.log)), (EpochEntry(LeaderEpoch(0), Offset(0)),)
        opened = events.LogOpened(
            _NOW_MS,
            _TP,
            Offset(0),
            leo,
            Offset(partition.hw),
            epochs,
            producers=ledger.rows(),
            transactions=ledger.transactions.state(),
        )
        log = ReplicaLog("t", opened, fsync=True)
        log.durable = DurablePoint(Offset(partition.hw))
        log.durable.maybe_issue(leo)
        return log

    def _lead(self) -> None:
        state, log = self._core.state, self.log
        state.nodes[_NODE] = NodeImage(node_id=_NODE, node_epoch=NodeEpoch(1), fenced=False)
        image = PartitionImage(
            tp=_TP,
            replicas=(_NODE,),
            isr=(_NODE,),
            elr=(),
            leader=_NODE,
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            min_isr=1,
        )
        state.images[_TP], state.logs[_TP], state.topic_names[TOPIC_ID] = image, log, "t"
        leader = LeaderReplica(state.identity, image, log, state.nodes, state.rules, _TIMINGS, _NOW_MS)
        leader.epoch_start_offset = Offset(0)
        state.leaders[_TP] = leader

    def _leave_behind(self, entry: Entry) -> None:
        """Make the deadline answer the batch of the question."""
        gone = UnverifiedBatch(ParkedProduce(0, Acks.ALL, _NOW_MS, ID), 0, ProducePartition(_TP, _header(entry), b""))
        self._core._produce._verification.wait(_TP, PRODUCER, gone)

    def _wait(self, request: Request) -> None:
        """Let a request wait as before."""
        number = _FIRST_REQUEST + len(self._requests)
        self._requests[number] = request
        call = ParkedProduce(number, Acks.ALL, _NOW_MS + _TIMEOUT_MS, ID)
        part = ProducePartition(_TP, _header(request.entry), b"")
        serving = self._core._produce
        if request.end is None:
            call.results.append(serving._wait(part, call, 0, PRODUCER))
            serving.purgatory.park(call, {})
        else:
            result, offset = serving._appended(
                part, Offset(request.end - 1), Offset(request.end), Acks.ALL, self._core.state.leaders[_TP]
            )
            assert offset is not None
            call.results.append(result)
            call.waits_at(_TP, 0)
            serving.purgatory.park(call, {_TP: offset})

    def begin(self, request: Request) -> None:
        """A request arrives."""
        number = _FIRST_REQUEST + len(self._requests)
        self._requests[number] = request
        part = ProducePartition(_TP, _header(request.entry)._replace(leader_epoch=None), b"")
        self.step(events.ProduceArrived(_NOW_MS, number, Acks.ALL, _TIMEOUT_MS, (part,), transactional_id=ID))

    def step(self, event: events.Event) -> list[Effect]:
        """Step the core, and note what it did."""
        if isinstance(event, events.AddPartitionsAnswered):
            self._question = None
        effects = self._core.step(event)
        for effect in effects:
            self._note(effect)
        return effects

    def _note(self, effect: Effect) -> None:
        if isinstance(effect, Append):
            sent, marker = effect.header.producer, effect.header.marker
            assert sent is not None
            says = (None, 0) if marker is None else (marker.committed, marker.coordinator_epoch)
            self._entries.append(Entry(sent.producer_epoch, *says))
        elif isinstance(effect, SendAddPartitions):
            self._question = Question(effect.producer_epoch)
        elif isinstance(effect, AnswerProduce):
            request = self._requests.pop(effect.request_id)
            refusal = effect.results[0].refusal
            if request.is_heard:
                self._answers.append((request.entry, ErrorCode.NONE if refusal is None else refusal.code))

    def after(self) -> After:
        """The state of the core now, and the answers."""
        requests = {self._now(number, request): None for number, request in self._requests.items()}
        return PartitionLog(tuple(self._entries), self.log.hw, self._asking(), tuple(requests)), tuple(self._answers)

    def _asking(self) -> Question | None:
        serving, question = self._core._produce, self._question
        if question is None:
            return None
        first = serving._verification.waiting[_TP, PRODUCER][0]
        return question._replace(is_awaited=serving.purgatory.holds(first.call))

    def _now(self, number: int, request: Request) -> Request:
        """A request as it waits now."""
        call = self._core._produce.purgatory._parked[number]
        base_offset = call.results[0].base_offset
        return request._replace(end=None if call.unverified or base_offset is None else base_offset + 1)
