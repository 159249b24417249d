"""One process of a transactional id that behaves as our client must: identities, batches in own epochs, ends.

Invariants: a commit is asked for only when everything sent is acknowledged; it is asked for again until it is known
whether it took effect, or another process has the id; no batch of a transaction is sent again in another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.events import CoordinatorAsked
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.transactions.messages import EndTxn, InitProducerId, ProducerIdentity, ProducerIdGiven, TxnEnded
from strandline.core.types import TRANSACTIONAL_BIT, Acks, BatchHeader, NodeId, Offset, ProducerStamp, TopicPartition
from strandline_sim.checks.committed import Broken
from strandline_sim.checks.history import VALUE_BITS, Send, SendOutcome
from strandline_sim.checks.transaction_history import Moved, Polled, Txn, TxnOutcome
from strandline_sim.clients.clients import OVERHEAD_BYTES, RECORD_BYTES, Client
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import Call

DEADLINE_MS = 400
PATIENCE_US = 2_000_000
BACKOFF_US = (10_000, 120_000)
PAUSE_US = (1_000, 15_000)

_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
_MUST_ABORT = _FENCED | {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}


@dataclass(slots=True)
class TransactionalBatch:
    """One batch of a transaction."""

    tp: TopicPartition
    code: int
    count: int
    sequence: int
    invoked_us: int
    completed_us: int | None = None
    offset: int | None = None


class End(StrEnum):
    """The end that a process wants for its transaction."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(slots=True)
class Open:
    """The transaction that a process has open."""

    name: str
    left: list[tuple[TopicPartition, int]]
    """What is still to be sent: partition and number of records."""
    batches: list[TransactionalBatch] = field(default_factory=list)
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    polls: tuple[Polled, ...] = ()
    offsets: tuple[Moved, ...] = ()
    outcome: TxnOutcome = TxnOutcome.ABORTED
    """The known outcome; a commit that was asked for is UNKNOWN until there is an answer."""


class Transactor(Client):
    """A process that does one transaction after the other, dies, stalls, and returns."""

    def __init__(self, world: Cluster, txns: list[Txn], number: int, tp: TopicPartition, transactional_id: str) -> None:
        """``tp``: the partition that coordinates the id. Finished transactions are appended to ``txns``."""
        super().__init__(world, number, tp)
        self._txns = txns
        self.transactional_id = transactional_id
        self.stopped = False
        self._identity: ProducerIdentity | None = None
        self._timeout_ms = self.draw.choose((400, 900, 2_000))
        self._leaders: dict[TopicPartition, NodeId | None] = {}
        self._open: Open | None = None
        self._next_value = 0
        self._serial = 0
        self._life = 0
        """Incremented whenever the process forgets what it waited for."""

    def start(self) -> None:
        """Begin by asking for an identity."""
        if not self.stopped:
            self._initialize(self._life)

    def close(self) -> None:
        """The run is over; an open transaction stays open."""
        self.stopped = True
        self._forget()

    def _saw(self, what: str) -> None:
        self.world.coverage.saw(f"transactions: {what}")

    def _later(self, action: Any, *given: Any, us: tuple[int, int] = BACKOFF_US) -> None:
        self.world.timeline.after(self.draw.between(*us), action, *given)

    def _is_now(self, life: int) -> bool:
        return life == self._life and not self.stopped

    def _forget(self) -> None:
        """Ignore the answers to all requests in flight."""
        self._life += 1
        if self._open is not None:
            self._note(self._open)
            self._open = None

    def _note(self, txn: Open) -> None:
        sends = tuple(send for batch in txn.batches for send in self._sends(batch))
        self._txns.append(
            Txn(
                name=txn.name,
                transactional_id=self.transactional_id,
                sends=sends,
                polls=txn.polls,
                offsets=txn.offsets,
                outcome=txn.outcome,
            )
        )
        self._saw(f"ended {txn.outcome}")

    def _sends(self, batch: TransactionalBatch) -> list[Send]:
        return [
            Send(
                value=value,
                partition=batch.tp.partition,
                invoked_s=batch.invoked_us / 1e6,
                completed_s=None if batch.completed_us is None else batch.completed_us / 1e6,
                outcome=SendOutcome.INDEFINITE if batch.offset is None else SendOutcome.OK,
                offset=None if batch.offset is None else batch.offset + index,
            )
            for index, value in enumerate(self.world.names.values(batch.code, batch.count))
        ]

    def _ask(self, request: object, done: Any, *, again_us: int = 0) -> None:
        """Ask the coordinator; ``done`` is given None if there is no answer."""
        leader = self.leader()
        if leader is None:
            self._later(done, None)
            return
        tp = self.tp

        def serve(call: Call) -> None:
            self.world.process_at(int(leader)).serve(
                call, lambda now_ms, number: CoordinatorAsked(now_ms, number, tp, DEADLINE_MS, request)
            )

        self.world.network.call(
            self, int(leader), serve, done, deadline_us=DEADLINE_MS * 1_000, copies=True, copy_us=again_us
        )

    def _initialize(self, life: int) -> None:
        if not self._is_now(life):
            return
        given = self._identity if self.draw.chance(300) else None
        request = InitProducerId(transactional_id=self.transactional_id, timeout_ms=self._timeout_ms, given=given)

        def done(answer: Any) -> None:
            if not self._is_now(life):
                return
            if isinstance(answer, ProducerIdGiven):
                self._saw("identity")
                self._identity = answer.identity
                self._begin(life)
                return
            if isinstance(answer, Refusal):
                self._saw(f"init refused: {answer.code.name}")
                if answer.code in _FENCED:
                    self._identity = None
            self.forget_leader()
            self._later(self._initialize, life)

        self._ask(request, done)

    def _begin(self, life: int) -> None:
        if not self._is_now(life):
            return
        tps = self.draw.sample(self.world.tps, self.draw.between(1, len(self.world.tps)))
        parts = [self.draw.choose(tps) for _ in range(self.draw.choose((0, 1, 1, 2, 2, 3, 4)))]
        self._serial += 1
        self._open = Open(f"p{self.number}.{self._serial}", [(tp, self.draw.choose((1, 1, 2))) for tp in parts])
        self._go_on(life)

    def _go_on(self, life: int) -> None:
        """Send the next batch, or end the transaction."""
        txn = self._open
        if txn is None or not self._is_now(life):
            return
        if self.draw.chance(12):
            self._die()
        elif not txn.left:
            self._all_is_sent(life)
        else:
            tp, count = txn.left.pop(0)
            sequence = txn.sequences.get(tp, 0)
            txn.sequences[tp] = sequence + count
            batch = TransactionalBatch(tp, self.number << VALUE_BITS | self._next_value, count, sequence, self._now_us)
            self._next_value += count
            txn.batches.append(batch)
            self._send(life, batch)
            if self.draw.chance(20):
                self._saw("aborted with a batch on its way")
                self._end(life, End.ABORT)

    @property
    def _now_us(self) -> int:
        return self.world.timeline.now_us

    def _die(self) -> None:
        """End without notice, and return as a process that knows nothing."""
        self._saw("process died")
        self._forget()
        self._identity = None
        self._later(self.start, us=(50_000, 1_200_000))

    def _leader_of(self, tp: TopicPartition) -> NodeId | None:
        """The leader of a partition, as far as this process knows."""
        leader = self._leaders.get(tp)
        if leader is None:
            leader = self._leaders[tp] = self.world.leader_of(tp)
        return leader

    def _send(self, life: int, batch: TransactionalBatch) -> None:
        if not self._is_now(life) or batch.offset is not None:
            return
        assert self._identity is not None
        leader = self._leader_of(batch.tp)
        if self._now_us - batch.invoked_us > PATIENCE_US:
            self._end(life, End.ABORT)
            return
        if leader is None:
            self._later(self._send, life, batch)
            return
        size = OVERHEAD_BYTES + RECORD_BYTES * batch.count
        stamp = ProducerStamp(*self._identity, batch.sequence)
        header = BatchHeader(Offset(0), None, batch.count, size, 0, stamp, TRANSACTIONAL_BIT)
        part = ProducePartition(batch.tp, header, batch.code)

        def serve(call: Call) -> None:
            process = self.world.process_at(int(leader))
            process.serve_produce(call, Acks.ALL, DEADLINE_MS, part, transactional_id=self.transactional_id)

        again_us = self.draw.between(1_000, 1_500_000) if self.draw.chance(80) else 0
        self.world.network.call(
            self,
            int(leader),
            serve,
            lambda answer: self._produced(life, batch, answer),
            deadline_us=DEADLINE_MS * 1_000,
            copy_us=again_us,
        )

    def _produced(self, life: int, batch: TransactionalBatch, answer: Any) -> None:
        if not self._is_now(life) or self._open is None or self._open.outcome is TxnOutcome.UNKNOWN:
            return
        result: ProduceResult | None = answer[0] if answer else None
        if result is not None and result.refusal is None:
            batch.offset, batch.completed_us = result.base_offset, self._now_us
            self._later(self._go_on, life, us=(200, 5_000))
            return
        self._leaders[batch.tp] = None
        if result is not None and result.refusal is not None and result.refusal.code in _MUST_ABORT:
            self._saw(f"produce refused: {result.refusal.code.name}")
            self._end(life, End.ABORT)
        else:
            self._later(self._send, life, batch)

    def _all_is_sent(self, life: int) -> None:
        """Everything of the transaction is acknowledged."""
        self._choose_end(life)

    def _choose_end(self, life: int) -> None:
        end = End.COMMIT if self.draw.chance(750) else End.ABORT
        if self.draw.chance(25):
            self._saw("stalled beyond the time-out")
            wait_us = self._timeout_ms * 1_000
            self._later(self._end, life, end, us=(wait_us, 2 * wait_us + 1_500_000))
        else:
            self._later(self._end, life, end, us=(200, 8_000))

    def _end(self, life: int, end: End) -> None:
        txn = self._open
        if txn is None or not self._is_now(life):
            return
        # Answers for this transaction that are still in transit are ignored.
        self._life += 1
        if end is End.COMMIT:
            txn.outcome = TxnOutcome.UNKNOWN
        self._ask_to_end(self._life, end, self._now_us)

    def _ask_to_end(self, life: int, end: End, since_us: int) -> None:
        if not self._is_now(life):
            return
        assert self._identity is not None
        request = EndTxn(transactional_id=self.transactional_id, identity=self._identity, committed=end is End.COMMIT)
        again_us = self.draw.between(1_000, 2_500_000) if self.draw.chance(120) else 0
        if again_us:
            self._saw("end asked twice")
        self._ask(request, lambda answer: self._ended(life, end, since_us, answer), again_us=again_us)

    def _ended(self, life: int, end: End, since_us: int, answer: Any) -> None:
        txn = self._open
        if not self._is_now(life) or txn is None:
            return
        if isinstance(answer, TxnEnded):
            txn.outcome = TxnOutcome.COMMITTED if end is End.COMMIT else TxnOutcome.ABORTED
            self._identity = answer.identity
            self._go_on_with_next()
            return
        code = answer.code if isinstance(answer, Refusal) else None
        if code is not None:
            self._saw(f"end refused: {code.name}")
        if code is ErrorCode.INVALID_TXN_STATE and end is End.COMMIT:
            txn.outcome = TxnOutcome.ABORTED
            self._ask_to_end(life, End.ABORT, self._now_us)
        elif code in _FENCED or self._now_us - since_us > PATIENCE_US:
            self._start_again(code)
        elif code is ErrorCode.INVALID_TXN_STATE:
            raise Broken("I38", f"{self.transactional_id} aborts {txn.name}, and the answer is that it is committed")
        else:
            self.forget_leader()
            self._later(self._ask_to_end, life, end, since_us)

    def _start_again(self, code: ErrorCode | None) -> None:
        """Begin again: another process has the id, or no answer came."""
        self._saw("fenced" if code in _FENCED else "gave up")
        self._forget()
        if code in _FENCED:
            self._identity = None
        self._later(self.start, us=(200_000, 1_800_000))

    def _go_on_with_next(self) -> None:
        self._forget()
        self._later(self._begin, self._life, us=PAUSE_US)
