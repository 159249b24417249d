"""How records that a caller sends reach the core, and the core's results the caller.

Invariant: the core is only given batches that are whole and whose CRC holds. Messages of one stream are stepped in
arrival order, each is answered under its own correlation id and a malformed one with INVALID_REQUEST, and nothing of a
stream outlives it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import ProduceResult
from strandline.core.timestamps import timestamp_refusal
from strandline.leader.expanding import is_compressed, refuse_badly_compressed
from strandline.rpc.convert_produce import (
    ProduceAsked,
    ProduceMessage,
    holds_single_records,
    produce_topics,
    read_produce,
    refused_stream_answer,
)
from strandline.rpc.interceptors import NO_CORRELATION, Unread
from strandline.rpc.limits import PRODUCE_STREAM_OUTSTANDING, STREAM_BACKLOG_ANSWERS
from strandline.runtime.clock import wall_ms
from strandline.runtime.host import Host
from strandline.runtime.outbox import Outbox
from strandline.v1 import leader_service_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]


async def take_produce(host: Host, message: ProduceMessage) -> ProduceAsked:
    """A produce message as the core takes it; near the end of the disk every part of it is marked refused.

    Only a message with a compressed batch, or with single records, may wait here.

    Raises:
        Refused: the message as a whole.
    """
    if holds_single_records(message):
        asked = await host.unpacking.run(partial(read_produce, message, host.topics, wall_ms()))
    else:
        asked = read_produce(message, host.topics)
    if (low := host.low_space(host.driver.clock())) is not None:
        why = f"the disk of node {host.node_id} is nearly full: {low}; free space or lower retention"
        refusal = Refusal(ErrorCode.POLICY_VIOLATION, why, Outcome.NOT_APPENDED)
        return asked._replace(parts=tuple(part._replace(invalid=refusal) for part in asked.parts))
    asked = _within_time(host, asked)
    if any(map(is_compressed, asked.parts)):
        return await refuse_badly_compressed(host, message, asked)
    return asked


def _within_time(host: Host, asked: ProduceAsked) -> ProduceAsked:
    """``asked`` with a refusal for each batch whose times are too far from now."""
    now_ms, parts = wall_ms(), list(asked.parts)
    for index, part in enumerate(parts):
        if part.invalid is None:
            refusal = timestamp_refusal(part.header, host.topics.configs_of(part.tp.topic_id), now_ms)
            if refusal is not None:
                parts[index] = part._replace(invalid=refusal)
                asked = asked._replace(parts=tuple(parts))
    return asked


class ProducePump:
    """One ProduceStream: several messages outstanding, answers as they become ready."""

    def __init__(self, host: Host, context: Context) -> None:
        self._host = host
        self._context = context
        self._outbox: Outbox[pb.ProduceStreamResponse] = Outbox()
        self._outstanding: set[int] = set()
        self._answered = asyncio.Event()

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

    async def _take(self, message: pb.ProduceStreamRequest | Unread) -> None:
        driver = self._host.driver
        if isinstance(message, Unread):
            self._outbox.put(refused_stream_answer(NO_CORRELATION, message.refusal))
            return
        try:
            asked = await take_produce(self._host, message)
            if not asked.parts:
                self._put(message.correlation_id, asked, ())
                return
            request_id = driver.calls.new_id()
            driver.calls.wait(request_id, partial(self._complete, request_id, message.correlation_id, asked))
        except Refused as error:
            self._outbox.put(refused_stream_answer(message.correlation_id, error.refusal))
            return
        self._outstanding.add(request_id)
        driver.step(asked.arrives(driver.clock(), request_id))

    def _complete(
        self, request_id: int, correlation_id: int, asked: ProduceAsked, results: tuple[ProduceResult, ...]
    ) -> bool:
        self._outstanding.discard(request_id)
        self._put(correlation_id, asked, results)
        self._answered.set()
        return True

    def _put(self, correlation_id: int, asked: ProduceAsked, results: tuple[ProduceResult, ...]) -> None:
        topics = produce_topics(results, asked.unresolved, self._host.topics, asked.acks)
        self._outbox.put(pb.ProduceStreamResponse(correlation_id=correlation_id, responses=topics))
