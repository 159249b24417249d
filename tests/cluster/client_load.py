"""Producers and consumers that continue through every fault, and record the answers they got.

Invariant: an operation is recorded before it begins and completed after it ended, by one clock, outside of every node;
the history contains only what a client can know.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
from harness.history_file import decode, encode
from running_cluster import CALL_S, Probe

from strandline.client import Consumer, Delivery, Producer, SendFailed
from strandline.core.errors import Refused
from strandline_sim.checks.history import (
    EndAnswer,
    Operation,
    Read,
    RecordPlace,
    RecordValue,
    Seek,
    Send,
    SendOutcome,
    anomalies,
)

DELIVERY_MS = 40_000
FINISH_S = 60.0


@dataclass(slots=True)
class _Sending:
    """One send, open until its outcome is known."""

    value: RecordValue
    partition: int
    invoked_s: float
    completed_s: float | None = None
    outcome: SendOutcome = SendOutcome.INDEFINITE
    offset: int | None = None

    def end(self, outcome: SendOutcome, offset: int | None = None) -> None:
        self.completed_s, self.outcome, self.offset = time.monotonic(), outcome, offset

    def closed(self) -> Send:
        return Send(
            value=self.value,
            partition=self.partition,
            invoked_s=self.invoked_s,
            completed_s=self.completed_s,
            outcome=self.outcome,
            offset=self.offset,
        )


@dataclass(slots=True, kw_only=True)
class Load:
    """Idempotent producers (acks=all) and tailing consumers of one topic. Use it as an async context manager."""

    probe: Probe
    topic: str
    partitions: int = 2
    producers: int = 3
    consumers: int = 2
    pause_s: float = 0.01
    """Pause of a producer between two records: its rate."""
    followers_are_read: bool = False
    """Whether the first consumer reads from followers."""
    _sends: list[_Sending] = field(default_factory=list)
    _seen: list[Operation] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _deliveries: set[asyncio.Task[None]] = field(default_factory=set)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _acked: list[int] = field(default_factory=list)
    _ends: list[int] | None = None

    async def __aenter__(self) -> Self:
        self._acked = [0] * self.partitions
        for index in range(self.producers):
            self._start(self._produce(f"p{index}"))
        for index in range(self.consumers):
            read_from = "follower" if self.followers_are_read and index == 0 else "leader"
            self._start(self._tail(f"c{index}", read_from=read_from))
        self._start(self._ask_ends())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in [*self._tasks, *self._deliveries]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._deliveries, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._news.set())
        self._tasks.append(task)

    def read_slowly(self, pause_s: float) -> None:
        """Add a consumer that takes so long for every answer."""
        self._start(self._tail("slow", pause_s=pause_s))

    async def acked(self, count: int, *, timeout_s: float = 30.0) -> None:
        """Waits for ``count`` more acknowledgements in every partition, of sends made from now on.

        Raises:
            AssertionError: they did not come in time, or a producer or consumer failed.
        """
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                while min(self._acked_since(began_s)) < count:
                    self._check()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            reported = self._acked_since(began_s)
            raise AssertionError(
                f"not within {timeout_s:g} s: {count} acks in each partition; got {reported}"
            ) from None

    def _acked_since(self, began_s: float) -> list[int]:
        counts = [0] * self.partitions
        for sending in reversed(self._sends):
            if sending.invoked_s < began_s:
                break
            counts[sending.partition] += sending.outcome is SendOutcome.OK
        return counts

    def first_ack_s(self, after_s: float, partition: int) -> float:
        """Seconds from ``after_s`` to the first acknowledgement of a send that began after it."""
        ends = [
            sending.completed_s
            for sending in self._sends
            if sending.invoked_s >= after_s and sending.partition == partition and sending.outcome is SendOutcome.OK
        ]
        return min(end for end in ends if end is not None) - after_s

    @property
    def outcomes(self) -> dict[SendOutcome, int]:
        """How many sends ended with each outcome; open sends count as indefinite."""
        return {outcome: sum(sending.outcome is outcome for sending in self._sends) for outcome in SendOutcome}

    def slowest_ack_s(self, since_s: float = 0.0, until_s: float = math.inf) -> float:
        """The longest time from a send to its acknowledgement, both between two moments."""
        return max(
            sending.completed_s - sending.invoked_s
            for sending in self._sends
            if sending.outcome is SendOutcome.OK
            and sending.completed_s is not None
            and since_s <= sending.invoked_s
            and sending.completed_s < until_s
        )

    def limit_s(self, quiet_s: float, calm_until_s: float, calm_since_s: float = 0.0) -> float:
        """How long something may take: ``quiet_s`` on a quiet machine, and on any other ten times what its slowest
        acknowledgement took while nothing was wrong."""
        return max(quiet_s, 10 * self.slowest_ack_s(calm_since_s, calm_until_s))

    def _check(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def finish(self) -> None:
        """Ends the load, reads everything, and checks the history.

        Raises:
            AssertionError: an anomaly, or something that did not end in time.
        """
        self._stopping.set()
        async with asyncio.timeout(FINISH_S):
            await asyncio.gather(*self._tasks[: self.producers])
            await asyncio.gather(*self._deliveries)
            await self._everything_read()
        found = anomalies([*(sending.closed() for sending in self._sends), *self._seen])

        assert found == [], f"{len(found)} anomalies, first: {found[:5]}"

    async def _everything_read(self) -> None:
        self._start(self._tail("final"))
        self._ends = [await self._end(index) for index in range(self.partitions)]
        await asyncio.gather(*self._tasks)

    async def _end(self, index: int) -> int:
        """The end of a partition, requested until its leader returns it (KIP-207)."""
        while True:
            leader = await self.probe.leader(self.topic, index)
            answer = await self.probe.latest(self.topic, leader, index)
            if answer.error_code == 0:
                return answer.offset
            await asyncio.sleep(0.05)

    async def _produce(self, client: str) -> None:
        bootstrap = self.probe.local.bootstrap
        async with Producer(
            bootstrap, linger_ms=2, request_timeout_ms=5_000, delivery_timeout_ms=DELIVERY_MS
        ) as producer:
            for seq in itertools.count():
                if self._stopping.is_set():
                    return
                await self._send(producer, RecordValue(client, seq), seq % self.partitions)
                await asyncio.sleep(self.pause_s)

    async def _send(self, producer: Producer, value: RecordValue, partition: int) -> None:
        sending = _Sending(value, partition, time.monotonic())
        self._sends.append(sending)
        try:
            delivery = await producer.send(self.topic, encode(value), partition=partition)
        except Refused:
            sending.end(SendOutcome.DEFINITE)
            return
        task = asyncio.create_task(self._await(delivery, sending))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _await(self, delivery: Delivery, sending: _Sending) -> None:
        try:
            lies = await delivery
        except SendFailed as failed:
            sending.end(SendOutcome.DEFINITE if failed.is_definite else SendOutcome.INDEFINITE)
        else:
            sending.end(SendOutcome.OK, lies.offset)
        self._news.set()

    async def _tail(self, name: str, *, pause_s: float = 0.0, read_from: Any = "leader") -> None:
        async with Consumer(self.probe.local.bootstrap, max_wait_ms=200, read_from=read_from) as consumer:
            await consumer.assign([self.topic])
            self._seen.extend(Seek(consumer=name, place=RecordPlace(index, 0)) for index in range(self.partitions))
            while not self._is_at_end(consumer):
                for batch in await consumer.fetch_batches(timeout_ms=200):
                    at_s = time.monotonic()
                    self._seen.extend(
                        Read(
                            consumer=name,
                            place=RecordPlace(batch.partition, record.offset),
                            value=decode(record.value),
                            at_s=at_s,
                        )
                        for record in batch.records
                    )
                if pause_s and not self._stopping.is_set():
                    await asyncio.sleep(pause_s)

    def _is_at_end(self, consumer: Consumer) -> bool:
        if self._ends is None:
            return False
        positions = [consumer.position(self.topic, index) for index in range(self.partitions)]
        return all(at is not None and at >= end for at, end in zip(positions, self._ends, strict=True))

    async def _ask_ends(self) -> None:
        """Requests the partitions' ends continuously; unanswered requests prove nothing."""
        while self._ends is None:
            for index in range(self.partitions):
                try:
                    await self._ask_end(index)
                except grpc.aio.AioRpcError:
                    continue
            await asyncio.sleep(0.1)

    async def _ask_end(self, index: int) -> None:
        now = await asyncio.wait_for(self.probe.partition(self.topic, index), CALL_S)
        if not now.HasField("leader_id"):
            return
        invoked_s = time.monotonic()
        answer = await self.probe.latest(self.topic, now.leader_id, index)
        if answer.error_code == 0:
            end = EndAnswer(partition=index, offset=answer.offset, invoked_s=invoked_s, completed_s=time.monotonic())
            self._seen.append(end)
