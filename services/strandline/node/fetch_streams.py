"""Turns the messages of a fetch stream into requests to the core, and the core's answers into messages.

Invariant: messages of one stream are stepped in arrival order, each is answered under its own correlation id, a
malformed one with INVALID_REQUEST, and all state of a stream ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc

from strandline.core.errors import Refusal, Refused
from strandline.core.log.events import FetchArrived, FetchForgotten
from strandline.core.messages import Served, ServedPartition
from strandline.core.types import TopicPartition
from strandline.records.batch import Buffer
from strandline.rpc.channels import STREAM_BACKLOG_ANSWERS
from strandline.rpc.convert.errors import Unresolved, read_forgotten, write_error
from strandline.rpc.convert.fetch import FetchAsked, encode_fetch_answer, fetch_topics, read_fetch
from strandline.rpc.interceptors import NO_CORRELATION, Unread
from strandline.rpc.permitted import CALL, permitted, still_permitted
from strandline.rpc.throttling import METERED
from strandline.runtime.host import Host
from strandline.runtime.outbox import Outbox
from strandline.runtime.threads import giving_way
from strandline.v1 import leader_service_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]

_GRACE_MS = 200
"""How long, after its longest wait, a half-closed FetchStream stays open for its last answers."""


class FetchPump:
    """One FetchStream: one outstanding fetch per named partition, each answered once."""

    def __init__(self, host: Host, context: Context) -> None:
        self._host = host
        self._context = context
        self._outbox: Outbox[pb.FetchStreamResponse | list[Buffer]] = Outbox(shared=host.backlog)
        self._stream_id = host.driver.calls.new_id()
        self._permits = CALL.get()
        self._metered = METERED.get()
        # Requests that the core has neither answered completely nor closed because their partitions were named again.
        self._outstanding: set[int] = set()
        self._longest_wait_ms = 0
        self._idle = asyncio.Event()

    async def run(self) -> None:
        """Serve the stream to its end."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._outbox.write_all(self._context.write))
                await self._read_all()
                self._outbox.close()
        finally:
            driver = self._host.driver
            for request_id in self._outstanding:
                driver.calls.drop(request_id)
            self._outbox.clear()
            driver.step(FetchForgotten(driver.clock(), self._stream_id))

    async def _read_all(self) -> None:
        while True:
            if len(self._outbox) >= STREAM_BACKLOG_ANSWERS:
                await self._outbox.until_shorter_than(STREAM_BACKLOG_ANSWERS)
            message = await self._context.read()
            if message is grpc.aio.EOF:
                break
            await self._take(message)
        try:
            async with asyncio.timeout((self._longest_wait_ms + _GRACE_MS) / 1000):
                while self._outstanding:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return

    async def _take(self, message: pb.FetchStreamRequest | Unread) -> None:
        driver = self._host.driver
        correlation_id = NO_CORRELATION if isinstance(message, Unread) else message.correlation_id
        try:
            if self._metered.is_on:
                await self._metered.admit(message)
            if isinstance(message, Unread):
                raise message
            asked = read_fetch(message, permitted(self._host.topics))
            self._forget(read_forgotten(message.forgotten_topics_data, self._host.topics))
            if asked.unresolved:
                self._put(correlation_id, asked, (), asked.unresolved)
            if not asked.request.partitions:
                return
            request_id = driver.calls.new_id()
            sink = partial(self._complete, request_id, correlation_id, asked)
            driver.calls.wait(request_id, sink, self._outbox.room_bytes, len(asked.request.partitions))
        except Refused as error:
            self._refuse(correlation_id, error.refusal)
            return
        self._longest_wait_ms = max(self._longest_wait_ms, asked.request.max_wait_ms)
        self._outstanding.add(request_id)
        driver.step(FetchArrived(driver.clock(), request_id, asked.request, self._stream_id))

    def _refuse(self, correlation_id: int, refusal: Refusal) -> None:
        answer = pb.FetchStreamResponse(correlation_id=correlation_id)
        write_error(answer, refusal)
        self._outbox.put(answer)

    def _forget(self, partitions: tuple[TopicPartition, ...]) -> None:
        if partitions:
            driver = self._host.driver
            driver.step(FetchForgotten(driver.clock(), self._stream_id, partitions))

    def _complete(self, request_id: int, correlation_id: int, asked: FetchAsked, served: Served) -> bool:
        if served.partitions:
            partitions, revoked = still_permitted(served.partitions, self._host.topics, self._permits)
            if revoked:
                self._put(correlation_id, asked, (), revoked)
            if partitions:
                self._put(correlation_id, asked, self._metered.fetched(partitions), ())
        if served.done:
            self._outstanding.discard(request_id)
            self._idle.set()
        return served.done

    def _put(
        self,
        correlation_id: int,
        asked: FetchAsked,
        served: Sequence[ServedPartition],
        unresolved: Sequence[Unresolved],
    ) -> None:
        size_bytes = 0
        for part in served:
            size_bytes += len(part.payload)
        if asked.starts is not None and size_bytes:
            self._outbox.put_later(partial(self._decoded, correlation_id, asked, served), size_bytes)
            return
        answer = encode_fetch_answer(correlation_id, served, unresolved, self._host.topics, self._metered.wait_ms)
        self._outbox.put(answer, size_bytes)

    async def _decoded(
        self, correlation_id: int, asked: FetchAsked, served: Sequence[ServedPartition]
    ) -> pb.FetchStreamResponse:
        answer = pb.FetchStreamResponse(correlation_id=correlation_id, throttle_time_ms=self._metered.wait_ms)
        try:
            decoded = await self._host.unpacking.run(partial(asked.decoded, served, giving_way))
        except Refused as error:
            write_error(answer, error.refusal)
        else:
            answer.responses.extend(fetch_topics(served, (), self._host.topics, decoded))
        return answer
