"""Decides how this node's questions reach leaders: one long-lived stream per leader for fetches, calls for the rest.

Invariant: every question ends in exactly one event. A broken stream fails all that was asked on it with one
`FetchFailed`, whatever had been sent; nothing is asked twice here, the core asks again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

import grpc

from strandline.core.effects import SendEpochEnds, SendFetch, SendForget, SendListOffsets
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.events import (
    EpochEndsAnswered,
    EpochEndsFailed,
    FetchAnswered,
    FetchFailed,
    OffsetsAnswered,
    OffsetsFailed,
)
from strandline.core.messages import Endpoint, ReplicaState
from strandline.core.types import NodeId, TopicPartition
from strandline.follower.settings import FollowerSettings
from strandline.rpc.channels import Backoff, Channels, call
from strandline.rpc.convert_errors import read_error
from strandline.rpc.convert_fetch import fetch_stream_message, forget_message, read_fetched
from strandline.rpc.convert_offsets import (
    epoch_ends_request,
    list_offsets_request,
    read_epoch_ends,
    read_offsets,
)
from strandline.rpc.limits import Keepalive
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import Tls
from strandline.runtime.host import Host
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1 import leader_service_pb2_grpc as pb_grpc
from strandline.v1 import partition_pb2

_Stream = Any
"""A FetchStream call in progress; its stub types nothing of read and write."""


class LeaderStream:
    """The FetchStream to one leader, dialled when there is something to ask."""

    def __init__(self, leader: NodeId, owner: LeaderLinks) -> None:
        self._leader = leader
        self._owner = owner
        self._settings = owner.settings
        self._outgoing: deque[pb.FetchStreamRequest] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(owner.done)

    def send(self, message: pb.FetchStreamRequest) -> None:
        """Put a message on the stream; if it breaks before an answer, the core hears `FetchFailed`."""
        self._outgoing.append(message)
        self._wake.set()

    async def close(self) -> None:
        """End the stream without an event."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        backoff = Backoff(self._settings.reconnect_backoff_ms, self._settings.reconnect_backoff_max_ms)
        while True:
            await self._wake.wait()
            reason = await self._converse(backoff)
            self._outgoing.clear()
            self._wake.clear()
            self._owner.fetch_failed(self._leader, None, reason)
            await asyncio.sleep(backoff.next_s())

    async def _converse(self, backoff: Backoff) -> str:
        """Dial, talk until the stream breaks, and say why it did."""
        endpoint = self._owner.host.topics.internal_endpoint_of(self._leader)
        if endpoint is None:
            return f"no address of node {self._leader} is known"
        stream: _Stream = self._owner.stub(endpoint).FetchStream()
        writer = asyncio.get_running_loop().create_task(self._write(stream))
        try:
            while (answer := await stream.read()) is not grpc.aio.EOF:
                backoff.reset()
                self._owner.fetched(self._leader, answer)
            return "the leader ended the stream"
        except grpc.aio.AioRpcError as error:
            return str(refusal_of(error))
        finally:
            writer.cancel()
            stream.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, stream: _Stream) -> None:
        while True:
            while self._outgoing:
                await stream.write(self._outgoing.popleft())
            self._wake.clear()
            await self._wake.wait()


class LeaderLinks:
    """Everything this node asks of leaders (`runtime.ports.Peers`)."""

    def __init__(self, host: Host, settings: FollowerSettings | None = None, *, tls: Tls | None = None) -> None:
        self.host = host
        self.settings = settings or FollowerSettings()
        keepalive = Keepalive(ping_every_ms=self.settings.ping_every_ms, ping_timeout_ms=self.settings.ping_timeout_ms)
        self._channels = Channels(keepalive=keepalive, tls=tls)
        self._streams: dict[NodeId, LeaderStream] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._closed = False

    def stub(self, endpoint: Endpoint) -> Any:
        """LeaderService at an address."""
        return pb_grpc.LeaderServiceStub(cast(Any, self._channels.to(endpoint)))

    async def close(self) -> None:
        """End all streams and questions; no event comes of them any more."""
        self._closed = True
        for question in self._questions:
            question.cancel()
        await asyncio.gather(*self._questions, return_exceptions=True)
        for stream in self._streams.values():
            await stream.close()
        await self._channels.close()

    def send_fetch(self, effect: SendFetch) -> None:
        """Put a fetch on the leader's stream."""
        message = fetch_stream_message(
            effect.request, cluster_id=self._cluster_id, correlation_id=effect.correlation_id
        )
        self._stream_to(effect.leader).send(message)

    def send_forget(self, effect: SendForget) -> None:
        """End parked fetches on the leader's stream, if there is one."""
        if effect.leader in self._streams:
            message = forget_message(effect.partitions, cluster_id=self._cluster_id, correlation_id=0)
            self._streams[effect.leader].send(message)

    def _stream_to(self, leader: NodeId) -> LeaderStream:
        stream = self._streams.get(leader)
        if stream is None:
            stream = self._streams[leader] = LeaderStream(leader, self)
        return stream

    def fetched(self, leader: NodeId, answer: pb.FetchStreamResponse) -> None:
        """A message came on a leader's stream."""
        refusal = read_error(answer)
        if refusal is not None:
            self.fetch_failed(leader, answer.correlation_id, str(refusal))
            return
        partitions = read_fetched(answer.responses)
        driver = self.host.driver
        driver.step(FetchAnswered(driver.clock(), leader, answer.correlation_id, partitions))
        if any(_is_another(leader, row) for topic in answer.responses for row in topic.partitions):
            self._dial_anew(leader)

    def fetch_failed(self, leader: NodeId, correlation_id: int | None, reason: str) -> None:
        """A fetch, or all of a stream, has no answer."""
        if not self._closed:
            driver = self.host.driver
            driver.step(FetchFailed(driver.clock(), leader, correlation_id, reason))

    def _dial_anew(self, leader: NodeId) -> None:
        """Leave whoever answers in a leader's place: the next question asks anew whom the leader's name stands for.

        A process that is started again may get another address, and somebody else its old one. A connection that was
        made in between works, to the wrong node, so nothing but this would ever ask for the name again.
        """
        endpoint = self.host.topics.internal_endpoint_of(leader)
        if endpoint is not None:
            self._channels.renew(endpoint, grace_s=self.settings.question_deadline_ms / 1000)
        stream = self._streams.pop(leader, None)
        if stream is not None:
            self._ask(stream.close())
        self.fetch_failed(leader, None, f"whoever answers at {endpoint} is not node {leader}")

    def send_epoch_ends(self, effect: SendEpochEnds) -> None:
        """Ask where epochs ended."""
        self._ask(self._epoch_ends(effect))

    def send_list_offsets(self, effect: SendListOffsets) -> None:
        """Ask for the leader's first and last offset."""
        self._ask(self._list_offsets(effect))

    def _ask(self, question: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(question)
        self._questions.add(task)
        task.add_done_callback(self.done)

    def done(self, task: asyncio.Task[None]) -> None:
        """A task ended; only a bug ends one by an exception, and then the process ends with it."""
        self._questions.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.host.driver.fail(error)

    def drop_stale_channels(self) -> None:
        """Close channels to addresses that no node has any more; they would dial for ever."""
        stale = self._channels.endpoints - self.host.topics.internal_endpoints()
        if stale:
            self._ask(self._channels.drop(stale))

    async def _epoch_ends(self, effect: SendEpochEnds) -> None:
        request = epoch_ends_request(effect.questions, cluster_id=self._cluster_id, replica=self._identity)
        driver = self.host.driver
        response = await self._call(effect.leader, "OffsetForLeaderEpoch", request)
        if isinstance(response, Refusal):
            driver.step(EpochEndsFailed(driver.clock(), effect.leader, effect.correlation_id, str(response)))
            return
        answers = read_epoch_ends(response)
        driver.step(EpochEndsAnswered(driver.clock(), effect.leader, effect.correlation_id, answers))
        # The question names the epoch: who knows that one, and leads at none, is not the node that leads at it.
        if any(each.refusal is not None and each.refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER for each in answers):
            self._dial_anew(effect.leader)

    async def _list_offsets(self, effect: SendListOffsets) -> None:
        request = list_offsets_request(effect.questions, cluster_id=self._cluster_id, replica=self._identity)
        driver = self.host.driver
        response = await self._call(effect.leader, "ListOffsets", request)
        if not isinstance(response, Refusal):
            answers = read_offsets(response)
            if _same_order([answer.tp for answer in answers], [question.tp for question in effect.questions]):
                driver.step(OffsetsAnswered(driver.clock(), effect.leader, effect.correlation_id, answers))
                return
        reason = str(response) if isinstance(response, Refusal) else "the answers do not match the questions"
        driver.step(OffsetsFailed(driver.clock(), effect.leader, effect.correlation_id, reason))

    async def _call(self, leader: NodeId, method: str, request: Any) -> Any:
        """The leader's answer, or the refusal that stands for its absence."""
        endpoint = self.host.topics.internal_endpoint_of(leader)
        if endpoint is None:
            return Refusal(ErrorCode.NETWORK_EXCEPTION, f"no address of node {leader} is known")
        try:
            stub_method: Callable[..., Any] = getattr(self.stub(endpoint), method)
            return await call(stub_method, request, deadline_ms=self.settings.question_deadline_ms)
        except Refused as error:
            return error.refusal

    @property
    def _cluster_id(self) -> str:
        cluster_id = self.host.topics.cluster_id
        assert cluster_id is not None, "a leader is asked only after metadata has named it"
        return cluster_id

    @property
    def _identity(self) -> ReplicaState:
        assert self.host.node_epoch is not None, "a leader is asked only after registration"
        return ReplicaState(self.host.node_id, self.host.node_epoch)


def _is_another(asked: NodeId, row: partition_pb2.FetchPartitionResponse) -> bool:
    """Whether an answer gives its sender away: it does not lead, and names as leader the very node that was asked."""
    return (
        int(row.error_code) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        and row.current_leader.HasField("leader_id")
        and row.current_leader.leader_id == asked
    )


def _same_order(answered: list[TopicPartition], asked: list[TopicPartition]) -> bool:
    """Whether answers come for the very partitions asked for, grouped by topic as requests are."""
    topics = list(dict.fromkeys(tp.topic_id for tp in asked))
    return answered == sorted(asked, key=lambda tp: topics.index(tp.topic_id))
