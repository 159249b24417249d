"""One process that consumes, transforms and produces in transactions: its offsets are committed with its output (X16).

Invariants: it reads on from the committed offset of its group whenever it does not know that its last transaction was
committed; the offsets of its inputs are part of the transaction that holds their outputs.
"""

from __future__ import annotations

from typing import Any

from strandline.core.groups import messages
from strandline.core.log import events
from strandline.core.log.events import CoordinatorAsked
from strandline.core.messages import FetchPartition, FetchRequest, ServedPartition
from strandline.core.types import Offset, TopicPartition
from strandline_sim.checks.transaction_history import Moved, Polled, Txn, TxnOutcome
from strandline_sim.clients.clients import given_records, whole
from strandline_sim.clients.transactors import DEADLINE_MS, End, Open, Transactor
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import Call

GROUP = "copies"
MOST_RECORDS = 4
_MAX_BYTES = 1_024
_IDLE_US = (5_000, 30_000)


class Copier(Transactor):
    """Copies each record of the first partition into one of the others."""

    def __init__(
        self,
        world: Cluster,
        txns: list[Txn],
        number: int,
        tp: TopicPartition,
        transactional_id: str,
        group_tp: TopicPartition,
    ) -> None:
        """``group_tp``: the partition that coordinates the group."""
        super().__init__(world, txns, number, tp, transactional_id)
        self._group_tp = group_tp
        self._input, *self._outputs = self.world.tps
        self._position: int | None = None
        """The next offset to read; None for the committed offset of its group."""

    def _forget(self) -> None:
        txn = self._open
        if txn is None or txn.outcome is not TxnOutcome.COMMITTED:
            self._position = None
        elif txn.offsets:
            self._position = txn.offsets[0].offset
        super()._forget()

    def _begin(self, life: int) -> None:
        if not self._is_now(life):
            return
        if self._position is None:
            self._fetch_offset(life)
        else:
            self._read(life, self._position)

    def _ask_group(self, request: object, done: Any) -> None:
        tp = self._group_tp
        leader = self._leader_of(tp)
        if leader is None:
            self._later(done, None)
            return

        def serve(call: Call) -> None:
            self.world.process_at(int(leader)).serve(
                call, lambda now_ms, number: CoordinatorAsked(now_ms, number, tp, DEADLINE_MS, request)
            )

        self.world.network.call(self, int(leader), serve, done, deadline_us=DEADLINE_MS * 1_000)

    def _fetch_offset(self, life: int) -> None:
        request = messages.OffsetFetch(group_id=GROUP, partitions=(self._input,), require_stable=True)

        def done(answer: Any) -> None:
            if not self._is_now(life):
                return
            found = answer.partitions[0] if isinstance(answer, messages.OffsetsFetched) else None
            if found is not None and found.refusal is None:
                self._position = found.offset or 0
                self._saw("read on at a committed offset")
                self._begin(life)
                return
            if found is not None and found.refusal is not None:
                self._saw(f"offset refused: {found.refusal.code.name}")
            else:
                self._leaders[self._group_tp] = None
            self._later(self._begin, life)

        self._ask_group(request, done)

    def _read(self, life: int, position: int) -> None:
        leader = self._leader_of(self._input)
        if leader is None:
            self._later(self._begin, life)
            return
        part = FetchPartition(self._input, Offset(position), max_bytes=_MAX_BYTES)
        request = FetchRequest((part,), None, 60, 1, _MAX_BYTES, read_committed=True)

        def serve(call: Call) -> None:
            self.world.process_at(int(leader)).serve_consumer(
                call, lambda now_ms, number: events.FetchArrived(now_ms, number, request), as_given=whole
            )

        self.world.network.call(
            self, int(leader), serve, lambda answer: self._was_given(life, position, answer), deadline_us=500_000
        )

    def _was_given(self, life: int, position: int, answer: Any) -> None:
        if not self._is_now(life):
            return
        served: ServedPartition | None = answer[0] if answer else None
        if served is None or served.result.refusal is not None:
            self._leaders[self._input] = None
            self._later(self._begin, life)
            return
        records = [each for each in given_records(self.world, served) if each[0].offset >= position][:MOST_RECORDS]
        if records:
            self._transform(life, [Polled(GROUP, place, value) for place, value in records])
        elif served.payload:
            payload: Any = served.payload
            self._position = max(position, payload.headers[-1].next_offset)
            self._later(self._begin, life, us=(500, 5_000))
        else:
            self._later(self._begin, life, us=_IDLE_US)

    def _transform(self, life: int, polls: list[Polled]) -> None:
        self._serial += 1
        txn = Open(f"p{self.number}.{self._serial}", [(self.draw.choose(self._outputs), 1) for _ in polls])
        txn.polls = tuple(polls)
        txn.offsets = (Moved(GROUP, self._input.partition, polls[-1].place.offset + 1),)
        self._open = txn
        self._go_on(life)

    def _all_is_sent(self, life: int) -> None:
        """Add the offsets to the transaction, then end it."""
        txn = self._open
        if txn is None or not self._is_now(life):
            return
        assert self._identity is not None
        moved = messages.OffsetToCommit(self._input, Offset(txn.offsets[0].offset), None, txn.name)
        request = messages.TxnOffsetCommit(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            group_id=GROUP,
            offsets=(moved,),
        )

        def done(answer: Any) -> None:
            if not self._is_now(life):
                return
            if isinstance(answer, messages.OffsetsCommitted) and answer.partitions[0].refusal is None:
                self._saw("offset staged")
                self._choose_end(life)
                return
            self._saw("offset not staged")
            self._leaders[self._group_tp] = None
            self._end(life, End.ABORT)

        self._ask_group(request, done)
