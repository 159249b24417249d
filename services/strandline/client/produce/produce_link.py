"""How batches reach one node: one long-lived ProduceStream, opened for the first and kept.

Invariant: every batch handed in is answered exactly once, by the node or with "lost"; one that was never written
to the stream is reported as such, because that is a definite outcome (P2). A link that broke is never reused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import grpc

from strandline.client.background import Pause, is_connected
from strandline.client.produce.delivery import OutgoingBatch
from strandline.core.types import Acks
from strandline.records.batch import Buffer
from strandline.rpc.status import refusal_of
from strandline.rpc.wire_fields import grouped, tag, varint
from strandline.v1 import leader_service_pb2 as pb

_ProduceStream = grpc.aio.StreamStreamCall[list[Buffer], pb.ProduceStreamResponse]

_METHOD = f"/{pb.DESCRIPTOR.services_by_name['LeaderService'].full_name}/ProduceStream"
_TOPIC = tag(pb.ProduceStreamRequest, "topic_data")
_PARTITION = tag(pb.ProduceTopic, "partition_data")
_RECORDS = tag(pb.ProducePartition, "records")


class ProduceTerms(NamedTuple):
    """What every message of a producer asks for."""

    acks: Acks
    timeout_ms: int
    cluster_id: str | None
    transactional_id: str | None = None
    """The transactional id of the batches; None without transactions."""


class Sent(NamedTuple):
    """One batch on this link."""

    attempt: int
    batch: OutgoingBatch
    since_ms: float

    @property
    def is_current(self) -> bool:
        """Whether the lane still awaits this very attempt."""
        return self.batch.attempt == self.attempt


class ProduceLink:
    """The produce stream to one node."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        terms: ProduceTerms,
        *,
        on_answer: Callable[[Sent, pb.ProduceStreamResponse], None],
        on_lost: Callable[[ProduceLink, list[Sent], list[Sent], str], None],
    ) -> None:
        """``on_lost`` gets what was sent and is unanswered, and what was never sent."""
        self._channel = channel
        self._terms = terms
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._waiting: deque[Sent] = deque()
        self._unanswered: dict[int, Sent] = {}
        self._wake = asyncio.Event()
        self._stream: _ProduceStream | None = None
        self._pause = Pause()
        self.is_broken = False

    def submit(self, sent: Sent) -> None:
        """Send a batch as soon as the stream takes it."""
        self._waiting.append(sent)
        self._wake.set()

    def oldest_since_ms(self) -> float | None:
        """When the attempt was handed in that waits longest, or the node was to answer it at the earliest."""
        candidates = [next(iter(self._unanswered.values()), None), self._waiting[0] if self._waiting else None]
        since_ms = min((sent.since_ms for sent in candidates if sent is not None), default=None)
        return None if since_ms is None else max(since_ms, self._pause.until_ms)

    def break_off(self) -> None:
        """Give the stream up: a call that waits for an answer on it has waited too long."""
        if self._stream is not None:
            self._stream.cancel()

    async def run(self, connect_timeout_ms: int) -> None:
        """Serve the link until its stream ends, for whatever reason."""
        why = "the node is not reachable"
        try:
            if await is_connected(self._channel, connect_timeout_ms):
                why = await self._exchange()
        finally:
            self.is_broken = True
            sent, never_sent = list(self._unanswered.values()), list(self._waiting)
            self._unanswered.clear()
            self._waiting.clear()
            self._on_lost(self, sent, never_sent, why)

    async def _exchange(self) -> str:
        # Messages are encoded already; gRPC's own channels need them in one piece.
        method: grpc.aio.StreamStreamMultiCallable[list[Buffer], pb.ProduceStreamResponse]
        method = self._channel.stream_stream(_METHOD, b"".join, pb.ProduceStreamResponse.FromString)
        self._stream = stream = method()
        writer = asyncio.create_task(self._write(stream), name="produce stream writer")
        try:
            return await self._read(stream)
        finally:
            stream.cancel()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _read(self, stream: _ProduceStream) -> str:
        try:
            while isinstance(answer := await stream.read(), pb.ProduceStreamResponse):
                self._pause.asked_for(answer.throttle_time_ms)
                sent = self._unanswered.pop(answer.correlation_id, None)
                if sent is not None:
                    self._on_answer(sent, answer)
        except grpc.aio.AioRpcError as error:
            return str(refusal_of(error))
        except asyncio.CancelledError:
            if stream.cancelled() and not _is_being_cancelled():
                return "no answer within request_timeout_ms"
            raise
        return "the node ended the stream"

    async def _write(self, stream: _ProduceStream) -> None:
        while True:
            while self._waiting:
                await self._pause.over()
                sent = self._waiting.popleft()
                if not sent.is_current:
                    continue
                # Before the write: a write that fails half way may still have arrived.
                self._unanswered[sent.attempt] = sent
                try:
                    await stream.write(encode_message(self._terms, sent))
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    # The reader learns why, and reports everything as lost.
                    return
            self._wake.clear()
            await self._wake.wait()


def encode_message(terms: ProduceTerms, sent: Sent) -> list[Buffer]:
    """A `ProduceStreamRequest` with this one batch, encoded around its records, in pieces."""
    batch = sent.batch
    header, records = batch.as_sent(transactional=terms.transactional_id is not None)
    size_bytes = len(header) + len(records)
    row = pb.ProducePartition(index=batch.tp.partition).SerializeToString() + _RECORDS + varint(size_bytes)
    size_bytes += len(row)
    topic = pb.ProduceTopic(topic_id=batch.tp.topic_id).SerializeToString() + _PARTITION + varint(size_bytes)
    size_bytes += len(topic)
    message = pb.ProduceStreamRequest(
        correlation_id=sent.attempt, cluster_id=terms.cluster_id, acks=int(terms.acks), timeout_ms=terms.timeout_ms
    )
    head = message.SerializeToString() + _TOPIC + varint(size_bytes)
    tail = pb.ProduceStreamRequest(transactional_id=terms.transactional_id).SerializeToString()
    return grouped((head, topic, row, header, records, tail))


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
