"""Producers and consumers: which records they send, when they retry, what they read, and what they remember of it.

Invariants: every record has a value of its own; a send counts as failed for certain only if every attempt did (P2);
an idempotent producer that gives up a batch goes on with a new producer epoch, so no batch overtakes another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from strandline.core import messages
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.log import events
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.types import Acks, BatchHeader, NodeId, Offset, ProducerStamp, TopicPartition
from strandline.records.batch import Batch, committed
from strandline_sim.checks.history import VALUE_BITS, Read, RecordPlace, RecordValue, Seek, Send, SendOutcome
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.network import Call

FIRST_CLIENT = -100
DEADLINE_MS = 400
PATIENCE_US = 2_500_000
BACKOFF_US = (10_000, 120_000)
OVERHEAD_BYTES, RECORD_BYTES = 61, 100


class Client:
    """What producers and consumers share: an address, and the leader as last seen."""

    def __init__(self, world: Cluster, number: int, tp: TopicPartition) -> None:
        self.world = world
        self.number = number
        self.party_id = FIRST_CLIENT - number
        self.alive = True
        self.tp = tp
        self.draw = Draw(world.shape.seed, Purpose.CLIENT, number)
        self._leader: NodeId | None = None

    def hand(self, action: Callable[..., None], *given: Any) -> None:
        """Clients are never paused."""
        action(*given)

    def forget_leader(self) -> None:
        """The node that was asked does not lead, or did not answer; look up the leader again, most of the time."""
        if not self.draw.chance(200):
            self._leader = None

    def leader(self) -> NodeId | None:
        """The leader, as far as this client knows."""
        if self._leader is None:
            self._leader = self.world.leader_of(self.tp)
        return self._leader


@dataclass(slots=True)
class BatchInFlight:
    """One batch in flight."""

    code: int
    count: int
    sequence: int
    producer_epoch: int
    invoked_us: int
    open: bool = True
    maybe_appended: bool = False
    in_flight: bool = False
    outcome: SendOutcome = SendOutcome.INDEFINITE
    completed_us: int | None = None
    base_offset: int | None = None


class Producer(Client):
    """Sends batches to one partition. ``window`` > 0: idempotent, with up to this many batches in flight."""

    def __init__(self, world: Cluster, number: int, tp: TopicPartition, acks: Acks, window: int) -> None:
        super().__init__(world, number, tp)
        self._acks = acks
        self._window = window
        self._open: list[BatchInFlight] = []
        self._sent: list[BatchInFlight] = []
        self._next_value = 0
        self._next_sequence = 0
        self._producer_epoch = 0
        self._gap_us = self.draw.choose(((1_000, 6_000), (2_000, 15_000)))
        self.stopped = False
        self._is_full = False

    def start(self) -> None:
        """Begin to send."""
        self.world.timeline.after(self.draw.between(*self._gap_us), self._produce)

    @property
    def waits(self) -> bool:
        """Whether a batch is not decided yet."""
        return bool(self._open)

    def _produce(self) -> None:
        if self.stopped:
            return
        if len(self._open) >= max(1, self._window):
            self._is_full = True
            return
        self.start()
        count = self.draw.choose((1, 1, 1, 2, 3))
        if self.world.shape.single_records:
            count = 1
        code = (self.number << VALUE_BITS) | self._next_value
        batch = BatchInFlight(code, count, self._next_sequence, self._producer_epoch, self.world.timeline.now_us)
        self._next_value += count
        self._next_sequence += count
        self._open.append(batch)
        self._sent.append(batch)
        self._send(batch)

    def _send(self, batch: BatchInFlight) -> None:
        if not batch.open:
            return
        leader = self.leader()
        if self.world.timeline.now_us - batch.invoked_us > PATIENCE_US:
            self._give_up(batch)
        elif leader is None:
            self._again(batch)
        else:
            batch.in_flight = True
            part = ProducePartition(self.tp, self._header(batch), batch.code)

            def serve(call: Call) -> None:
                self.world.process_at(int(leader)).serve_produce(call, self._acks, DEADLINE_MS, part)

            self.world.network.call(
                self, int(leader), serve, lambda answer: self._answered(batch, answer), deadline_us=DEADLINE_MS * 1000
            )

    def _header(self, batch: BatchInFlight) -> BatchHeader:
        size = OVERHEAD_BYTES + RECORD_BYTES * batch.count
        if not self._window:
            return BatchHeader(Offset(0), None, batch.count, size, 0)
        stamp = ProducerStamp(self.number, batch.producer_epoch, batch.sequence)
        return BatchHeader(Offset(0), None, batch.count, size, 0, stamp)

    def _answered(self, batch: BatchInFlight, answer: Any) -> None:
        batch.in_flight = False
        if not batch.open:
            return
        result: ProduceResult | None = answer[0] if answer is not None else None
        if result is None:
            batch.maybe_appended = True
        elif result.refusal is None:
            self._finish(batch, SendOutcome.OK, result.base_offset)
            return
        elif result.refusal.outcome is not Outcome.NOT_APPENDED:
            batch.maybe_appended = True
        self.forget_leader()
        if result is not None and result.refusal is not None and self._is_final(result.refusal.code):
            self._give_up(batch)
        elif batch.maybe_appended and not self._window:
            self._finish(batch, SendOutcome.INDEFINITE, None)
        else:
            self._again(batch)

    def _is_final(self, code: ErrorCode) -> bool:
        return code in (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.UNKNOWN_PRODUCER_ID,
        )

    def _again(self, batch: BatchInFlight) -> None:
        self.world.timeline.after(self.draw.between(*BACKOFF_US), self._send, batch)

    def _give_up(self, batch: BatchInFlight) -> None:
        """Give up a batch; what comes after it in the sequence cannot be appended any more either."""
        for each in list(self._open) if self._window else [batch]:
            appended = each.maybe_appended or each.in_flight
            self._finish(each, SendOutcome.INDEFINITE if appended else SendOutcome.DEFINITE, None)
        self._producer_epoch += 1
        self._next_sequence = 0
        self.world.coverage.saw("producer gave up")

    def _finish(self, batch: BatchInFlight, outcome: SendOutcome, base_offset: Offset | None) -> None:
        batch.open = False
        self._open.remove(batch)
        if self._is_full:
            self._is_full = False
            self.start()
        if outcome is SendOutcome.OK and self._acks is not Acks.ALL:
            # Only the leader has it: it may be lost with the leader (P7).
            outcome, base_offset = SendOutcome.INDEFINITE, None
        batch.outcome, batch.base_offset = outcome, base_offset
        batch.completed_us = self.world.timeline.now_us

    def sends(self) -> Iterator[Send]:
        """Everything that was sent, record by record, in the order in which it was sent."""
        for batch in self._sent:
            for index, value in enumerate(self.world.names.values(batch.code, batch.count)):
                yield Send(
                    value=value,
                    partition=self.tp.partition,
                    invoked_s=batch.invoked_us / 1e6,
                    completed_s=None if batch.completed_us is None else batch.completed_us / 1e6,
                    outcome=batch.outcome,
                    offset=None if batch.base_offset is None else batch.base_offset + index,
                )


# ---- readers
# Consumers of committed records: they read to the last stable offset, and drop what was aborted as production does.


# ---- consumers
# Consumers: which node and offset they read from, and what they remember of it.
#
# Invariant: a consumer goes on after the last record it was given, by any replica, unless it seeks; a record counts as
# read when its answer arrived, not when it was sent.

WAIT_MS = 120
DEADLINE_US = 500_000
GAP_US = (1_000, 20_000)
MAX_BYTES = 4_096
SEEK_BACK = 60


class Consumer(Client):
    """Reads one partition, most of the time from its leader, sometimes from a follower."""

    def __init__(self, world: Cluster, number: int, tp: TopicPartition) -> None:
        super().__init__(world, number, tp)
        self.name = f"c{number}"
        self.position = 0
        self.stopped = False
        self._newest_epoch = 0
        self._seek(0)

    def start(self) -> None:
        """Begin to read."""
        self.world.timeline.after(self.draw.between(*GAP_US), self._poll)

    def _seek(self, offset: int) -> None:
        self.position = offset
        self.world.history.append(Seek(consumer=self.name, place=RecordPlace(self.tp.partition, offset)))

    def _poll(self) -> None:
        if self.stopped:
            return
        choice = self.draw.below(1000)
        if choice < 40:
            self._ask_latest()
        if choice >= 990 and self.position > 0:
            self._seek(self.position - self.draw.below(min(self.position, SEEK_BACK) + 1))
        at_follower = choice < 300
        target = self._follower() if at_follower else self.leader()
        if target is None:
            self.start()
            return
        self._fetch(target, at_follower)

    def _follower(self) -> NodeId:
        image = self.world.metadata.partitions[self.tp]
        return self.draw.choose(image.replicas)

    def _fetch(self, target: NodeId, at_follower: bool) -> None:
        part = messages.FetchPartition(self.tp, Offset(self.position), max_bytes=MAX_BYTES)
        request = messages.FetchRequest((part,), None, WAIT_MS, 1, MAX_BYTES)

        def serve(call: Call) -> None:
            self.world.process_at(int(target)).serve_consumer(
                call,
                lambda now_ms, request_id: events.FetchArrived(now_ms, request_id, request, at_follower=at_follower),
            )

        self.world.network.call(self, int(target), serve, self._fetched, deadline_us=DEADLINE_US)

    def _fetched(self, answer: Any) -> None:
        self.start()
        if not answer:
            self.forget_leader()
            return
        found: messages.FetchedPartition = answer[0]
        if found.error is not None and found.error.code is not ErrorCode.NONE:
            if found.error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._seek(max(self.position, self.world.log_start(self.tp)))
            self.forget_leader()
            return
        now_s = self.world.timeline.now_us / 1e6
        names, history, partition = self.world.names, self.world.history, self.tp.partition
        for header, code in zip(found.batches, self._codes(found), strict=True):
            offset: int = header.base_offset
            for value in names.values(code, header.record_count):
                if offset >= self.position:
                    history.append(Read(self.name, names.place(partition, offset), value, now_s))
                    self.position = offset + 1
                offset += 1

    def _codes(self, found: messages.FetchedPartition) -> tuple[int, ...]:
        payload: Any = found.payload
        return tuple(payload) if found.batches else ()

    def _ask_latest(self) -> None:
        leader = self.leader()
        if leader is None:
            return
        invoked_s = self.world.timeline.now_us / 1e6

        def serve(call: Call) -> None:
            self.world.process_at(int(leader)).serve_latest(call, messages.OffsetQuestion(self.tp, messages.LATEST))

        def done(answers: Any) -> None:
            if answers and answers[0].offset is not None and answers[0].leader_epoch >= self._newest_epoch:
                # A deposed leader may answer with its old knowledge (P5); only newer answers must not go back.
                self._newest_epoch = answers[0].leader_epoch
                self.world.ended(self.tp, answers[0], invoked_s)

        self.world.network.call(self, int(leader), serve, done, deadline_us=DEADLINE_US)


_NO_BYTES = memoryview(b"")


class CommittedReader(Consumer):
    """Reads one partition as `Consumer` does, below the LSO."""

    def _fetch(self, target: NodeId, at_follower: bool) -> None:
        part = messages.FetchPartition(self.tp, Offset(self.position), max_bytes=MAX_BYTES)
        request = messages.FetchRequest((part,), None, WAIT_MS, 1, MAX_BYTES, read_committed=True)

        def serve(call: Call) -> None:
            self.world.process_at(int(target)).serve_consumer(
                call,
                lambda now_ms, number: events.FetchArrived(now_ms, number, request, at_follower=at_follower),
                as_given=whole,
            )

        self.world.network.call(self, int(target), serve, self._fetched, deadline_us=DEADLINE_US)

    def _fetched(self, answer: Any) -> None:
        self.start()
        if not answer:
            self.forget_leader()
            return
        served: messages.ServedPartition = answer[0]
        refusal = served.result.refusal
        if refusal is not None:
            if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._seek(max(self.position, self.world.log_start(self.tp)))
            self.forget_leader()
            return
        if served.payload:
            self._take(served)

    def _take(self, served: messages.ServedPartition) -> None:
        if served.result.aborted:
            self.world.coverage.saw("transactions: aborted records passed over")
        now_s = self.world.timeline.now_us / 1e6
        for place, value in given_records(self.world, served):
            if place.offset >= self.position:
                self.world.history.append(Read(self.name, place, value, now_s))
        payload: Any = served.payload
        self.position = max(self.position, payload.headers[-1].next_offset)


def given_records(world: Cluster, served: messages.ServedPartition) -> Iterator[tuple[RecordPlace, RecordValue]]:
    """The records of an answer that a reader of committed records is given."""
    if not served.payload:
        return
    payload: Any = served.payload
    values = dict(zip((header.base_offset for header in payload.headers), payload.values, strict=True))
    batches = [Batch(header, _NO_BYTES) for header in payload.headers]
    for batch in committed(batches, [(each.producer_id, each.first_offset) for each in served.result.aborted]):
        base = batch.header.base_offset
        for offset, value in enumerate(world.names.values(values[base], batch.header.record_count), base):
            yield world.names.place(served.result.tp.partition, offset), value


def whole(served: messages.ServedPartition) -> messages.ServedPartition:
    """The whole answer, as such a reader first takes it."""
    return served
