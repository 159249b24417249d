"""Consumers of committed records: they read to the last stable offset, and drop what was aborted as production does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strandline.core.errors import ErrorCode
from strandline.core.log import events
from strandline.core.messages import FetchPartition, FetchRequest
from strandline.core.types import NodeId, Offset
from strandline.records.batch import Batch, committed
from strandline.sim.consumers import DEADLINE_US, MAX_BYTES, WAIT_MS, Consumer
from strandline.sim.history import Place, Read, Value
from strandline.sim.network import Call

if TYPE_CHECKING:
    from strandline.core.messages import ServedPartition
    from strandline.sim.world import World

_NO_BYTES = memoryview(b"")


class CommittedReader(Consumer):
    """Reads one partition as `Consumer` does, below the LSO."""

    def _fetch(self, target: NodeId, at_follower: bool) -> None:
        part = FetchPartition(self.tp, Offset(self.position), max_bytes=MAX_BYTES)
        request = FetchRequest((part,), None, WAIT_MS, 1, MAX_BYTES, read_committed=True)

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
        served: ServedPartition = answer[0]
        refusal = served.result.refusal
        if refusal is not None:
            if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._seek(max(self.position, self.world.log_start(self.tp)))
            self.forget_leader()
            return
        if served.payload:
            self._take(served)

    def _take(self, served: ServedPartition) -> None:
        if served.result.aborted:
            self.world.coverage.saw("transactions: aborted records passed over")
        now_s = self.world.timeline.now_us / 1e6
        for place, value in given_records(self.world, served):
            if place.offset >= self.position:
                self.world.history.append(Read(self.name, place, value, now_s))
        payload: Any = served.payload
        self.position = max(self.position, payload.headers[-1].next_offset)


def given_records(world: World, served: ServedPartition) -> Iterator[tuple[Place, Value]]:
    """The records of an answer that a reader of committed ones is given."""
    if not served.payload:
        return
    payload: Any = served.payload
    values = dict(zip((header.base_offset for header in payload.headers), payload.values, strict=True))
    batches = [Batch(header, _NO_BYTES) for header in payload.headers]
    aborted = [(each.producer_id, each.first_offset) for each in served.result.aborted]
    for batch in committed(batches, aborted):
        base = batch.header.base_offset
        names = world.names.values(values[base], batch.header.record_count)
        for offset, value in enumerate(names, base):
            yield world.names.place(served.result.tp.partition, offset), value


def whole(served: ServedPartition) -> ServedPartition:
    """What such a reader makes of an answer at first."""
    return served
