"""How fetches reach one node: over one FetchStream from a leader, by long polls from a follower.

Invariant: a partition that was named is answered once or the link breaks and says so; naming it again replaces
the fetch under way, and answers to a replaced one are recognized by their number.

A leader sends nothing while there is nothing to send, nor does a leader that a partition cut off: a mere reader
cannot tell them apart. A silent link therefore sends a keepalive, and a connection that does not acknowledge it
breaks (`limits.unacknowledged`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import grpc

from strandline.client.background import Pause, countdown, is_connected
from strandline.client.cluster.metadata import Cluster
from strandline.client.consume.cursor import FetchAnswer, WantedFetch
from strandline.client.errors import ClusterUnreachable
from strandline.core.errors import Refusal, Refused
from strandline.core.types import EpochEnd, LeaderEpoch, Offset, TopicPartition
from strandline.records.batch import Buffer, split_batches
from strandline.records.codec import iterate_batch
from strandline.rpc.convert.errors import by_topic, read_error
from strandline.rpc.convert.fetch import StreamAnswer, open_fetch_stream
from strandline.rpc.status import refusal_of
from strandline.rpc.wire_fields import RecordsApart, WithRecords
from strandline.v1 import follower_service_pb2, leader_service_pb2, partition_pb2
from strandline.v1.follower_service_pb2_grpc import FollowerServiceStub
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    from strandline.v1.follower_service_pb2_grpc import FollowerServiceAsyncStub
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub


_FetchStream = grpc.aio.StreamStreamCall[leader_service_pb2.FetchStreamRequest, StreamAnswer]
_POLLED = RecordsApart(follower_service_pb2.FollowerServiceFetchResponse, "responses", "partitions")

CONNECT_TIMEOUT_MS = 2_000
SIGN_OF_LIFE_MS = 5_000
"""How long a leader's link sends nothing at most."""
_POLL_SLACK_MS = 5_000


class FetchTerms(NamedTuple):
    """What every fetch of a consumer asks for."""

    cluster_id: str | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: partition_pb2.IsolationLevel.ValueType


OnAnswer = Callable[["FetchLink", int, TopicPartition, FetchAnswer, partition_pb2.CurrentLeader | None], None]
"""Gets each partition's answer: link, number of the fetch, partition, answer, and the leader a refusal named."""

OnEnd = Callable[["FetchLink", str], None]
"""Called once when the link is over, with the reason."""

OnRefused = Callable[["FetchLink", int, Refusal], None]
"""Called when a message was refused as a whole."""


@dataclass(slots=True, eq=False)
class FetchLink:
    """A way to fetch from one node."""

    _channel: grpc.aio.Channel
    _terms: FetchTerms
    _on_answer: OnAnswer
    _on_refused: OnRefused
    _on_end: OnEnd
    is_broken: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Serve the link until it breaks, for whatever reason."""
        why = "the node is not reachable"
        try:
            if await is_connected(self._channel, CONNECT_TIMEOUT_MS):
                why = await self._exchange()
        finally:
            self.is_broken = True
            self._on_end(self, why)

    def name(self, number: int, wanted: Sequence[WantedFetch]) -> None:
        """Fetch these partitions, under this number."""
        raise NotImplementedError

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no more."""
        raise NotImplementedError

    async def _exchange(self) -> str:
        """Send fetches and take answers; returns why that ended."""
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class LeaderLink(FetchLink):
    """Fetches over one long-lived stream; partitions without news stay parked at the leader."""

    # Bounded by the consumer: each partition is named at most once before it is answered.
    _messages: asyncio.Queue[leader_service_pb2.FetchStreamRequest] = field(default_factory=asyncio.Queue, init=False)
    _pause: Pause = field(default_factory=Pause, init=False)

    def name(self, number: int, wanted: Sequence[WantedFetch]) -> None:
        """Fetch these partitions, under this number."""
        message = self._message(number)
        message.topics.extend(fetch_topics(wanted, self._terms.max_bytes))
        self._messages.put_nowait(message)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """End the parked fetches of these."""
        message = self._message(0)
        for topic_id, tps in by_topic(partitions, lambda tp: tp):
            message.forgotten_topics_data.add(topic_id=topic_id, partitions=[tp.partition for tp in tps])
        self._messages.put_nowait(message)

    def _message(self, number: int) -> leader_service_pb2.FetchStreamRequest:
        return leader_service_pb2.FetchStreamRequest(correlation_id=number, **self._terms._asdict())

    async def _exchange(self) -> str:
        stream = open_fetch_stream(self._channel)
        writer = asyncio.create_task(self._write(stream), name="fetch stream writer")
        try:
            while isinstance(answer := await stream.read(), WithRecords):
                self._answered(answer)
        except grpc.aio.AioRpcError as error:
            return str(refusal_of(error))
        finally:
            stream.cancel()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
        return "the node ended the stream"

    async def _write(self, stream: _FetchStream) -> None:
        while True:
            try:
                async with asyncio.timeout(SIGN_OF_LIFE_MS / 1000):
                    message = await self._messages.get()
            except TimeoutError:
                # It names nothing, so the leader does nothing about it.
                message = self._message(0)
            await self._pause.over()
            try:
                await stream.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # The reader learns why, and ends the link.
                return

    def _answered(self, arrived: StreamAnswer) -> None:
        answer = arrived.message
        self._pause.asked_for(answer.throttle_time_ms)
        refusal = read_error(answer)
        if refusal is not None:
            self._on_refused(self, answer.correlation_id, refusal)
        number = answer.correlation_id
        _hand_on(self, lambda _: number, arrived, self._on_answer)


@dataclass(slots=True, eq=False)
class FollowerLink(FetchLink):
    """Fetches by long polls; the call itself is the consent to read from a follower (M1)."""

    _wanted: dict[TopicPartition, tuple[int, WantedFetch]] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def name(self, number: int, wanted: Sequence[WantedFetch]) -> None:
        """Fetch these partitions with the next poll, under this number."""
        self._wanted.update({one.tp: (number, one) for one in wanted})
        self._wake.set()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Leave these out of the next poll."""
        for tp in partitions:
            self._wanted.pop(tp, None)

    async def _exchange(self) -> str:
        """Poll whenever something is wanted, until a poll fails."""
        stub: FollowerServiceAsyncStub = FollowerServiceStub(self._channel)
        timeout_s = (self._terms.max_wait_ms + _POLL_SLACK_MS) / 1000
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked, self._wanted = self._wanted, {}
            if not asked:
                continue
            request = follower_service_pb2.FollowerServiceFetchRequest(
                **self._terms._asdict(), topics=fetch_topics([one for _, one in asked.values()], self._terms.max_bytes)
            )
            try:
                response = await stub.Fetch(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                return str(refusal_of(error))
            self._answered(response, {tp: number for tp, (number, _) in asked.items()})
            await asyncio.sleep(response.throttle_time_ms / 1_000)

    def _answered(
        self, response: follower_service_pb2.FollowerServiceFetchResponse, numbers: dict[TopicPartition, int]
    ) -> None:
        refusal = read_error(response)
        if refusal is not None:
            for number in set(numbers.values()):
                self._on_refused(self, number, refusal)
        _hand_on(self, lambda tp: numbers.get(tp, 0), _POLLED.of(response), self._on_answer)


def fetch_topics(wanted: Iterable[WantedFetch], max_bytes: int) -> list[partition_pb2.FetchTopic]:
    """What a fetch asks for, by topic."""
    topics = []
    for topic_id, parts in by_topic(wanted, lambda one: one.tp):
        topic = partition_pb2.FetchTopic(topic_id=topic_id)
        for one in parts:
            topic.partitions.add(
                partition=one.tp.partition,
                fetch_offset=one.offset,
                partition_max_bytes=max_bytes,
                current_leader_epoch=one.current_leader_epoch,
                last_fetched_epoch=one.last_fetched_epoch,
            )
        topics.append(topic)
    return topics


def _hand_on(
    link: FetchLink,
    number_of: Callable[[TopicPartition], int],
    arrived: StreamAnswer | WithRecords[follower_service_pb2.FollowerServiceFetchResponse],
    on_answer: OnAnswer,
) -> None:
    records = iter(arrived.records)
    for topic in arrived.message.responses:
        for row, payload in zip(topic.partitions, records, strict=False):
            tp = TopicPartition(topic.topic_id, row.partition_index)
            hint = row.current_leader if row.HasField("current_leader") else None
            on_answer(link, number_of(tp), tp, _read(row, payload), hint)


def _read(row: partition_pb2.FetchPartitionResponse, payload: Buffer) -> FetchAnswer:
    diverging = None
    if row.HasField("diverging_epoch"):
        end = row.diverging_epoch
        diverging = EpochEnd(
            LeaderEpoch(end.epoch if end.HasField("epoch") else -1),
            Offset(end.end_offset if end.HasField("end_offset") else -1),
        )
    return FetchAnswer(
        read_error(row),
        Offset(row.high_watermark) if row.HasField("high_watermark") else None,
        Offset(row.log_start_offset) if row.HasField("log_start_offset") else None,
        diverging,
        payload,
        _aborted(row) if row.aborted_transactions else (),
    )


def _aborted(row: partition_pb2.FetchPartitionResponse) -> tuple[tuple[int, Offset], ...]:
    return tuple((one.producer_id, Offset(one.first_offset)) for one in row.aborted_transactions)


# ---- record_times
# When the record at an offset was written: asked of its leader by a small fetch of its own.
#
# Invariant: a partition is left out rather than guessed: when its leader does not answer, when there is no record at or
# after the offset, or when that cannot be read.

_ATTEMPT_MS = 5_000
_ANY_SIZE = 1 << 31
_AT_ONCE = 16
"""Fetches under way: each brings a whole batch, up to 1 MiB."""


class RecordTimes:
    """Asks leaders."""

    def __init__(self, cluster: Cluster, isolation_level: partition_pb2.IsolationLevel.ValueType) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level

    async def find(self, places: Mapping[TopicPartition, Offset], *, deadline_ms: int) -> dict[TopicPartition, int]:
        """The timestamp of the first record at or after each offset, in ms since 1970."""
        gate = asyncio.Semaphore(_AT_ONCE)
        left = countdown(deadline_ms)

        async def ask(tp: TopicPartition, offset: Offset) -> int | None:
            async with gate:
                return await self._ask(tp, offset, min(_ATTEMPT_MS, left()))

        times = await asyncio.gather(*(ask(tp, offset) for tp, offset in places.items()))
        return {tp: time_ms for tp, time_ms in zip(places, times, strict=True) if time_ms is not None}

    async def _ask(self, tp: TopicPartition, offset: Offset, deadline_ms: int) -> int | None:
        leader = self._cluster.view.leader_of(tp)
        if leader is None:
            return None
        stub: LeaderServiceAsyncStub = LeaderServiceStub(self._cluster.channels.to(leader.endpoint))
        request = leader_service_pb2.FetchRequest(
            cluster_id=self._cluster.cluster_id,
            # Of one partition the first batch comes whole, however large it is; of several only that of the first.
            max_bytes=1,
            isolation_level=self._isolation_level,
            topics=fetch_topics([WantedFetch(tp, offset, None, leader.epoch)], 1),
        )
        try:
            answer = await self._cluster.ask(stub.Fetch, request, deadline_ms=deadline_ms)
        except (ClusterUnreachable, Refused):
            return None
        rows = [row for topic in answer.responses for row in topic.partitions]
        return next((time_at(row.records, offset) for row in rows if read_error(row) is None), None)


def time_at(payload: Buffer, offset: Offset) -> int | None:
    """The timestamp of the first record at or after an offset; None if there is none that can be read."""
    try:
        for header, view in split_batches(payload, _ANY_SIZE) if payload else ():
            if header.next_offset > offset:
                return next((one.timestamp_ms for one in iterate_batch(view) if one.offset >= offset), None)
    except Refused:
        return None
    return None
