"""Consumers of committed records: they read to the last stable offset, and drop what was aborted as production does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.core import messages
from strandline.core.errors import ErrorCode
from strandline.core.log import events
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.records.batch import Batch, committed
from strandline_sim.checks.history import Read, RecordPlace, RecordValue, Seek
from strandline_sim.clients.clients import Client
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import Call

# ---- consumers
# What consumers read, from whom and from where, and what they remember of it.
#
# Invariant: a consumer goes on behind the last record it was given, by any replica, unless it seeks; a record counts as
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
                # A deposed leader may answer with what it knew (P5); newer answers are what must not go back.
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


def whole(served: messages.ServedPartition) -> messages.ServedPartition:
    """What such a reader makes of an answer at first."""
    return served
