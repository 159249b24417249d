"""Connects a simulated process to leaders (`runtime.ports.Leaders`), and serves the streams that arrive at it.

Invariant: a stream carries the effects of the asker's core and the answers of the leader's core unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from strandline.core.errors import ErrorCode, Refused
from strandline.core.log import events
from strandline.core.log.effects import SendEpochEnds, SendFetch, SendForget, SendListOffsets, SendProducerSnapshot
from strandline.core.messages import EpochEndAnswer, OffsetAnswer, ProducerSnapshotAnswer, Served
from strandline.core.types import NodeId
from strandline.runtime.outbox import Outbox
from strandline.runtime.ports import FetchReply
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.memory_logs import as_fetched
from strandline_sim.world.network import Call, Stream
from strandline_sim.world.process import Process
from strandline_sim.world.virtual_loop import Inbox

QUESTION_DEADLINE_US = 600_000


class FetchConversation:
    """One stream to a leader."""

    def __init__(self, process: Process, leader: NodeId) -> None:
        self._network = process.world.network
        self._coverage = process.world.coverage
        self._inbox = Inbox(process.loop)
        stream = self._network.open_stream(
            process,
            int(leader),
            on_up=_at_leader,
            on_down=lambda _, reply: self._inbox.put(reply),
            on_end_at_opener=self._broke,
            on_end_at_server=_ended_at_leader,
        )
        if stream is None:
            raise Refused(ErrorCode.NETWORK_EXCEPTION, "no connection")
        self._stream = stream

    def _broke(self, _: Stream) -> None:
        self._coverage.saw("stream broken")
        self._inbox.end("the stream broke")

    async def write(self, message: SendFetch | SendForget) -> None:
        """Send a fetch, or the end of parked ones."""
        self._network.send_up(self._stream, message)

    async def read(self) -> FetchReply | None:
        """The next answer.

        Raises:
            Refused: the stream broke.
        """
        reply: FetchReply | None = await self._inbox.next()
        return reply

    def cancel(self) -> None:
        """End the stream."""
        if self._stream.open_at_opener:
            self._network.close(self._stream, by_opener=True)


class ReachedLeaders:
    """All requests of one process to leaders."""

    def __init__(self, process: Process, world: Cluster) -> None:
        self._process = process
        self._world = world

    def open_stream(self, leader: NodeId) -> FetchConversation:
        """Begin a stream.

        Raises:
            Refused: NETWORK_EXCEPTION, no process listens or the link is cut.
        """
        return FetchConversation(self._process, leader)

    async def epoch_ends(self, effect: SendEpochEnds) -> tuple[EpochEndAnswer, ...]:
        """Ask for the end offsets of epochs.

        Raises:
            Refused: no answer came.
        """
        identity = self._process.core.state.identity
        answers: tuple[EpochEndAnswer, ...] = await self._ask(
            effect.leader, lambda now_ms, request: events.EpochEndsAsked(now_ms, request, effect.questions, identity)
        )
        return answers

    async def list_offsets(self, effect: SendListOffsets) -> tuple[OffsetAnswer, ...]:
        """Ask for the leader's first and last offset.

        Raises:
            Refused: no answer came.
        """
        identity = self._process.core.state.identity
        answers: tuple[OffsetAnswer, ...] = await self._ask(
            effect.leader, lambda now_ms, request: events.OffsetsAsked(now_ms, request, effect.questions, identity)
        )
        return answers

    async def producer_snapshot(self, effect: SendProducerSnapshot) -> ProducerSnapshotAnswer:
        """Ask for the producer state below the leader's log start.

        Raises:
            Refused: no answer came.
        """
        self._process.world.coverage.saw("producer snapshot asked")
        identity = self._process.core.state.identity
        answers: tuple[ProducerSnapshotAnswer, ...] = await self._ask(
            effect.leader,
            lambda now_ms, request: events.ProducerSnapshotAsked(now_ms, request, effect.question, identity),
        )
        return answers[0]

    async def _ask(self, leader: NodeId, build: Any) -> Any:
        def serve(call: Call) -> None:
            self._world.process_at(int(leader)).serve(call, build)

        return await self._process.call(int(leader), serve, deadline_us=QUESTION_DEADLINE_US)

    def renew(self, leader: NodeId) -> None:
        """Nothing: addresses never change here."""

    def drop_stale(self) -> Coroutine[Any, Any, None] | None:
        """Nothing: addresses never change here."""
        return None

    async def close(self) -> None:
        """Nothing is open but streams."""


class ServedStream:
    """One replica's stream at its leader: requests step the core, answers leave through an `Outbox`."""

    def __init__(self, process: Process, stream: Stream) -> None:
        self._process = process
        self._stream = stream
        self._outbox: Outbox[FetchReply] = Outbox()
        self._outstanding: dict[int, None] = {}
        self._writer: asyncio.Task[None] = process.own(self._outbox.write_all(self._write))

    async def _write(self, reply: FetchReply) -> None:
        self._process.world.network.send_down(self._stream, reply)

    def take(self, message: SendFetch | SendForget) -> None:
        """Take a message that arrived."""
        process, number = self._process, self._stream.number
        if isinstance(message, SendForget):
            process.step(events.FetchForgotten(process.now_ms, number, message.partitions))
            return
        calls = process.driver.calls
        request_id = calls.new_id()
        sink = partial(self._answered, request_id, message.correlation_id)
        calls.wait(request_id, sink, self._outbox.room_bytes, len(message.request.partitions))
        self._outstanding[request_id] = None
        process.step(events.FetchArrived(process.now_ms, request_id, message.request, number))

    def _answered(self, request_id: int, correlation_id: int, served: Served) -> bool:
        if served.partitions:
            size_bytes = sum(len(part.payload) for part in served.partitions)
            partitions = tuple(as_fetched(part) for part in served.partitions)
            self._outbox.put(FetchReply(correlation_id, partitions), size_bytes)
        if served.done:
            self._outstanding.pop(request_id, None)
        return served.done

    def end(self) -> None:
        """The stream ended."""
        process = self._process
        for request_id in self._outstanding:
            process.driver.calls.drop(request_id)
        self._writer.cancel()
        process.step(events.FetchForgotten(process.now_ms, self._stream.number))


def _at_leader(stream: Stream, message: SendFetch | SendForget) -> None:
    server: Any = stream.server
    server.stream_of(stream).take(message)


def _ended_at_leader(stream: Stream) -> None:
    server: Any = stream.server
    server.end_stream(stream)
