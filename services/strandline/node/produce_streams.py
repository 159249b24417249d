"""Passes a caller's records to the core, and the core's results back to the caller.

Invariant: the core gets only complete batches with a correct CRC. Messages of one stream are stepped in arrival order,
each is answered under its own correlation id, a malformed one with INVALID_REQUEST, and all state of a stream ends with
it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc

from strandline.core.control.topic_configs import MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.permissions import ResourceType
from strandline.core.quotas import QuotaKey
from strandline.core.serving.produce_checks import timestamp_refusal
from strandline.records.batch import HEADER_BYTES, codec_of, count_refusal, records_bytes_at_least
from strandline.rpc.channels import PRODUCE_STREAM_OUTSTANDING, STREAM_BACKLOG_ANSWERS
from strandline.rpc.convert import produce
from strandline.rpc.interceptors import NO_CORRELATION, Unread
from strandline.rpc.permitted import permitted, refused
from strandline.rpc.throttling import METERED
from strandline.rpc.wire_fields import WithRecords
from strandline.runtime.clock import wall_ms
from strandline.runtime.host import Host
from strandline.runtime.outbox import Outbox
from strandline.v1 import leader_service_pb2 as pb

# ---- expanding
# Decides whether a compressed batch may be stored: no consumer could read one that expands too far, or too little.
#
# Invariant: a batch is stored only if it expands to no more than its topic's ``max.decompressed.bytes``, and to no less
# than the number of records in its header needs. Its frames' declared sizes and its own size decide this if they can;
# only a batch for which they cannot is expanded, outside the event loop.


def is_compressed(part: ProducePartition) -> bool:
    """Whether a batch is valid so far and its records are compressed."""
    return part.invalid is None and codec_of(part.header) != 0


async def refuse_badly_compressed(
    host: Host, message: produce.ProduceMessage, asked: produce.ProduceAsked
) -> produce.ProduceAsked:
    """``asked`` with a refusal for each batch that expands too far, or holds fewer records than it counts.

    Raises:
        Refused: THROTTLING_QUOTA_EXCEEDED, too many batches wait to be expanded.
    """
    refused = {}
    for index, part in enumerate(asked.parts):
        if is_compressed(part):
            refusal = await _refusal(host, part)
            if refusal is not None:
                refused[index] = part._replace(invalid=refusal)
    if not refused:
        return asked
    parts = tuple(refused.get(index, part) for index, part in enumerate(asked.parts))
    return asked._replace(parts=parts, size_bytes=max(asked.size_bytes, message.size_bytes))


async def _refusal(host: Host, part: ProducePartition) -> Refusal | None:
    # Imported here, because the codecs are large and uncompressed batches never need them.
    from strandline.records.compression import expanded_bytes, expansion_of

    assert isinstance(part.payload, memoryview), "a batch that was read from a message is a view of its bytes"
    codec, body = codec_of(part.header), part.payload[HEADER_BYTES:]
    limit = int(host.topics.configs_of(part.tp.topic_id).get(MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES))
    least, most = expansion_of(codec, body)
    if least > limit:
        return _too_large(f"records expand to {least} bytes, above the topic's", limit)
    # Records seldom take less than their compressed bytes, so honest batches are rarely expanded for their count.
    is_plausible = records_bytes_at_least(part.header.record_count) <= len(body)
    if most is not None and most <= limit and is_plausible:
        return None
    try:
        size = await host.expanding.run(partial(expanded_bytes, codec, body, limit))
    except Refused as error:
        if error.refusal.code is ErrorCode.MESSAGE_TOO_LARGE:
            return _too_large("records expand to more than the topic's", limit)
        if error.refusal.code is ErrorCode.CORRUPT_MESSAGE:
            return Refusal(ErrorCode.INVALID_RECORD, error.refusal.message, Outcome.NOT_APPENDED)
        raise
    return count_refusal(part.header, size)


def _too_large(what: str, limit: int) -> Refusal:
    message = f"{what} {MAX_DECOMPRESSED_BYTES}={limit}; send smaller batches"
    return Refusal(ErrorCode.MESSAGE_TOO_LARGE, message, Outcome.NOT_APPENDED)


Context = grpc.aio.ServicerContext[Any, Any]


async def take_produce(host: Host, message: produce.ProduceMessage) -> produce.ProduceAsked:
    """A produce message in the form for the core; if the disk is nearly full, every part of it is refused.

    Only a message with a compressed batch, or with single records, may wait here.

    Raises:
        Refused: the message was refused as a whole.
    """
    topics, metered = permitted(host.topics), METERED.get()
    transactional_id = message.message.transactional_id
    if transactional_id and (unpermitted := refused(ResourceType.TRANSACTIONAL_ID, transactional_id)):
        raise Refused.of(unpermitted)
    if produce.holds_single_records(message):
        if metered.is_on:
            metered.take(QuotaKey.PRODUCER_BYTE_RATE, message.size_bytes)
        asked = await host.unpacking.run(partial(produce.read_produce, message, topics, wall_ms()))
    else:
        asked = produce.read_produce(message, topics)
        if metered.is_on:
            # Counted before any wait, so that the next message of the same caller is muted for what this one used.
            size_bytes = asked.size_bytes or sum(part.header.size_bytes for part in asked.parts)
            metered.take(QuotaKey.PRODUCER_BYTE_RATE, size_bytes)
    if (low := host.low_space(host.driver.clock())) is not None:
        why = f"the disk of node {host.node_id} is nearly full: {low}; free space or lower retention"
        refusal = Refusal(ErrorCode.POLICY_VIOLATION, why, Outcome.NOT_APPENDED)
        return asked._replace(parts=tuple(part._replace(invalid=refusal) for part in asked.parts))
    asked = _within_time(host, asked)
    if any(map(is_compressed, asked.parts)):
        return await refuse_badly_compressed(host, message, asked)
    return asked


def _within_time(host: Host, asked: produce.ProduceAsked) -> produce.ProduceAsked:
    """``asked`` with a refusal for each batch whose timestamps are too far from now."""
    now_ms, parts = wall_ms(), list(asked.parts)
    for index, part in enumerate(parts):
        if part.invalid is None:
            refusal = timestamp_refusal(part.header, host.topics.configs_of(part.tp.topic_id), now_ms)
            if refusal is not None:
                parts[index] = part._replace(invalid=refusal)
                asked = asked._replace(parts=tuple(parts))
    return asked


class ProducePump:
    """One ProduceStream: several messages may be outstanding, and answers are sent as they become ready."""

    def __init__(self, host: Host, context: Context) -> None:
        self._host = host
        self._context = context
        self._outbox: Outbox[pb.ProduceStreamResponse] = Outbox()
        self._outstanding: set[int] = set()
        self._answered = asyncio.Event()
        self._metered = METERED.get()

    async def run(self) -> None:
        """Serve the stream to its end."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._outbox.write_all(self._context.write))
                await self._read_all()
                self._outbox.close()
        finally:
            for request_id in tuple(self._outstanding):
                self._host.driver.gone(request_id)

    async def _read_all(self) -> None:
        driver = self._host.driver
        while True:
            if driver.core.purgatory_full:
                await driver.wait_for_room()
            if len(self._outstanding) >= PRODUCE_STREAM_OUTSTANDING:
                await self._until_below(PRODUCE_STREAM_OUTSTANDING)
            if len(self._outbox) >= STREAM_BACKLOG_ANSWERS:
                await self._outbox.until_shorter_than(STREAM_BACKLOG_ANSWERS)
            message = await self._context.read()
            if message is grpc.aio.EOF:
                break
            await self._take(message)
        await self._until_below(1)

    async def _until_below(self, count: int) -> None:
        while len(self._outstanding) >= count:
            self._answered.clear()
            await self._answered.wait()

    async def _take(self, message: WithRecords[pb.ProduceStreamRequest] | Unread) -> None:
        driver = self._host.driver
        correlation_id = NO_CORRELATION if isinstance(message, Unread) else message.message.correlation_id
        try:
            if self._metered.is_on:
                await self._metered.admit(message)
            if isinstance(message, Unread):
                raise message
            asked = await take_produce(self._host, message)
            if not asked.parts:
                self._put(correlation_id, asked, ())
                return
            request_id = driver.calls.new_id()
            driver.calls.wait(request_id, partial(self._complete, request_id, correlation_id, asked))
        except Refused as error:
            self._outbox.put(produce.refused_stream_answer(correlation_id, error.refusal))
            return
        self._outstanding.add(request_id)
        driver.step(asked.arrives(driver.clock(), request_id))

    def _complete(
        self, request_id: int, correlation_id: int, asked: produce.ProduceAsked, results: tuple[ProduceResult, ...]
    ) -> bool:
        self._outstanding.discard(request_id)
        self._put(correlation_id, asked, results)
        self._answered.set()
        return True

    def _put(self, correlation_id: int, asked: produce.ProduceAsked, results: tuple[ProduceResult, ...]) -> None:
        topics = produce.produce_topics(results, asked.unresolved, self._host.topics, asked.acks)
        wait_ms = self._metered.wait_ms
        answer = pb.ProduceStreamResponse(correlation_id=correlation_id, responses=topics, throttle_time_ms=wait_ms)
        self._outbox.put(answer)
