"""A follower's requests over real channels: each ends in exactly one event, for any fault of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import grpc
import pytest

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refused
from strandline.core.log import events as log_events
from strandline.core.log.effects import SendEpochEnds, SendFetch, SendListOffsets, SendProducerSnapshot
from strandline.core.types import EpochEnd, LeaderEpoch, NodeEpoch, NodeId, Offset, Rules, TopicPartition
from strandline.node.dialing import DialledLeaders, FollowerSettings
from strandline.node.leader_links import LeaderLinks
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc import transports
from strandline.rpc.server import ServerSettings, bind, build_server
from strandline.runtime.driver import Driver
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.host import Host, TopicDirectory
from strandline.v1 import leader_service_pb2 as pb, leader_service_pb2_grpc as pb_grpc

TP = TopicPartition("id-1", 0)
LEADER = NodeId(9)
FETCH = messages.FetchRequest(
    (messages.FetchPartition(TP, Offset(0), LeaderEpoch(1)),), messages.ReplicaState(NodeId(1), NodeEpoch(7)), 500
)


class RecordingCore:
    """Keeps every event and wakes the tests that wait for one."""

    purgatory_full = False

    def __init__(self) -> None:
        self.events: asyncio.Queue[log_events.Event] = asyncio.Queue()

    def step(self, event: log_events.Event) -> tuple[()]:
        self.events.put_nowait(event)
        return ()

    async def next(self) -> log_events.Event:
        """The next event that was stepped."""
        return await asyncio.wait_for(self.events.get(), 5)


class Leader:
    """LeaderService with the handlers a test gives."""

    def __init__(self, **handlers: Callable[[Any, Any], Awaitable[Any]]) -> None:
        for method in pb.DESCRIPTOR.services_by_name["LeaderService"].methods:
            setattr(self, method.name, handlers.get(method.name))


def _stop(code: ExitCode, line: str) -> NoReturn:
    raise SystemExit(line)


@asynccontextmanager
async def linked(
    **handlers: Callable[[Any, Any], Awaitable[Any]],
) -> AsyncIterator[tuple[LeaderLinks, RecordingCore, Any]]:
    """Links to a served leader, the core they report to, and the server."""
    server = build_server(ServerSettings(name="leader"))
    pb_grpc.add_LeaderServiceServicer_to_server(cast(Any, Leader(**handlers)), server)
    endpoint = bind(server, messages.Endpoint("127.0.0.1", 0))
    await server.start()
    core = RecordingCore()
    topics = TopicDirectory()
    node = messages.NodeImage(node_id=LEADER, node_epoch=NodeEpoch(3), internal_endpoint=endpoint)
    topics.apply(
        messages.MetadataImage(
            cluster_id="c", controller_epoch=1, metadata_offset=1, is_snapshot=True, rules=Rules(), nodes=(node,)
        )
    )
    unused: Any = None
    host = Host(
        node_id=NodeId(1),
        driver=Driver(cast(Any, core), clock=lambda: 1_000, stop=_stop),
        topics=topics,
        sizes=unused,
        low_space=lambda _: None,
        node_epoch=NodeEpoch(7),
    )
    settings = FollowerSettings(question_deadline_ms=500, reconnect_backoff_ms=1)
    links = LeaderLinks(host, DialledLeaders(host, settings), backoff=settings.backoff)
    try:
        yield links, core, server
    finally:
        await links.close()
        await server.stop(0)


def _answer(correlation_id: int, records: bytes = b"") -> pb.FetchStreamResponse:
    answer = pb.FetchStreamResponse(correlation_id=correlation_id)
    answer.responses.add(topic_id=TP.topic_id).partitions.add(partition_index=0, high_watermark=0, records=records)
    return answer


def _stored_batch() -> bytearray:
    """One record as a leader of epoch 1 stored it at offset 0."""
    batch = bytearray(encode_batch([NewRecord(None, b"v", 1)]))
    stamp(batch, 0, 1)
    return batch


async def _serve_each(requests: Any, context: Any, records: bytes = b"") -> None:
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(_answer(message.correlation_id, records))


async def test_several_fetches_share_one_stream_and_answers_name_theirs() -> None:
    """Two messages on one stream, each answered under its correlation id, batches split and checked."""
    batch = _stored_batch()

    async def serve(requests: Any, context: Any) -> None:
        await _serve_each(requests, context, bytes(batch))

    async with linked(FetchStream=serve) as (links, core, _):
        links.send_fetch(SendFetch(LEADER, 5, FETCH))
        links.send_fetch(SendFetch(LEADER, 6, FETCH))
        first, second = await core.next(), await core.next()

    assert isinstance(first, log_events.FetchAnswered) and isinstance(second, log_events.FetchAnswered)
    assert (first.correlation_id, second.correlation_id) == (5, 6)
    assert [header.record_count for header in first.partitions[0].batches] == [1]


async def test_damaged_batches_arrive_as_damaged() -> None:
    """A flipped bit is detected on arrival, before the core or the disk receives it."""
    batch = _stored_batch()
    batch[-1] ^= 1

    async def serve(requests: Any, context: Any) -> None:
        await _serve_each(requests, context, bytes(batch))

    async with linked(FetchStream=serve) as (links, core, _):
        links.send_fetch(SendFetch(LEADER, 5, FETCH))
        event = await core.next()

    assert isinstance(event, log_events.FetchAnswered)
    assert event.partitions[0].corrupt is not None and event.partitions[0].batches == ()


@pytest.mark.parametrize("transport", transports.TRANSPORTS.values(), ids=list(transports.TRANSPORTS))
async def test_a_broken_stream_fails_everything_asked_on_it_once(monkeypatch: Any, transport: Any) -> None:
    """One FetchFailed without a correlation id for all outstanding messages; then the leader is dialled again. That its
    channel is closed breaks a stream as well, because no node has the address any more."""
    monkeypatch.setattr(transports, "_chosen", transport)
    ends = asyncio.Event()

    async def serve(requests: Any, context: Any) -> None:
        if not ends.is_set():
            await context.read()
            ends.set()
            return
        await _serve_each(requests, context)

    async with linked(FetchStream=serve) as (links, core, _):
        links.send_fetch(SendFetch(LEADER, 5, FETCH))
        links.send_fetch(SendFetch(LEADER, 6, FETCH))
        failed = await core.next()
        links.send_fetch(SendFetch(LEADER, 7, FETCH))
        answered = await core.next()
        await links.leaders._channels.close()
        closed = await core.next()
        links.send_fetch(SendFetch(LEADER, 8, FETCH))
        again = await core.next()

    assert isinstance(failed, log_events.FetchFailed) and failed.correlation_id is None
    assert isinstance(closed, log_events.FetchFailed) and isinstance(again, log_events.FetchAnswered)
    assert isinstance(answered, log_events.FetchAnswered) and answered.correlation_id == 7


def _not_leader(correlation_id: int, leader: int) -> pb.FetchStreamResponse:
    answer = _answer(correlation_id)
    row = answer.responses[0].partitions[0]
    row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    row.current_leader.leader_id, row.current_leader.leader_epoch = leader, 1
    return answer


async def test_who_names_the_asked_node_as_leader_and_is_not_it_is_left() -> None:
    """Another node answers at the leader's old address: the next fetch uses a new connection."""
    wrong: set[str] = set()

    async def serve(requests: Any, context: Any) -> None:
        wrong.add(min(wrong, default=context.peer()))
        while (message := await context.read()) is not grpc.aio.EOF:
            is_wrong = context.peer() in wrong
            await context.write(_not_leader(message.correlation_id, LEADER) if is_wrong else _answer(5))

    async with linked(FetchStream=serve) as (links, core, _):
        links.send_fetch(SendFetch(LEADER, 5, FETCH))
        refused, failed = await core.next(), await core.next()
        links.send_fetch(SendFetch(LEADER, 5, FETCH))
        answered = await core.next()

    assert isinstance(refused, log_events.FetchAnswered) and refused.partitions[0].error is not None
    assert isinstance(failed, log_events.FetchFailed) and failed.correlation_id is None
    assert isinstance(answered, log_events.FetchAnswered) and answered.partitions[0].error is None


async def test_who_names_another_leader_is_believed() -> None:
    """Leadership moved: metadata will follow, and the connection to the node that returned the error stays."""
    peers: list[str] = []

    async def serve(requests: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            peers.append(context.peer())
            await context.write(_not_leader(message.correlation_id, LEADER + 1))

    async with linked(FetchStream=serve) as (links, core, _):
        for correlation_id in (5, 6):
            links.send_fetch(SendFetch(LEADER, correlation_id, FETCH))
            assert isinstance(await core.next(), log_events.FetchAnswered)

    assert len(peers) == 2 and len(set(peers)) == 1


async def test_who_knows_the_epoch_and_does_not_lead_is_left() -> None:
    """After such an answer to an OffsetsForLeaderEpoch request the next one uses a new connection."""
    peers: list[str] = []

    async def tell(request: Any, context: Any) -> Any:
        peers.append(context.peer())
        answer = pb.OffsetForLeaderEpochResponse()
        answer.topics.add(topic_id=TP.topic_id).partitions.add(partition=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return answer

    async with linked(OffsetForLeaderEpoch=tell) as (links, core, _):
        for correlation_id in (5, 6):
            question = messages.EpochEndQuestion(TP, LeaderEpoch(1), LeaderEpoch(1))
            links.send_epoch_ends(SendEpochEnds(LEADER, correlation_id, (question,)))
            assert isinstance(await core.next(), log_events.EpochEndsAnswered)
            assert isinstance(await core.next(), log_events.FetchFailed)

    assert len(set(peers)) == 2


async def test_a_refused_message_fails_under_its_own_id() -> None:
    """The leader rejected one message as a whole; the stream continues."""

    async def serve(requests: Any, context: Any) -> None:
        message = await context.read()
        refused = pb.FetchStreamResponse(correlation_id=message.correlation_id, error_code=42, error_message="no")
        await context.write(refused)
        await _serve_each(requests, context)

    async with linked(FetchStream=serve) as (links, core, _):
        links.send_fetch(SendFetch(LEADER, 5, FETCH))
        failed = await core.next()
        links.send_fetch(SendFetch(LEADER, 6, FETCH))
        answered = await core.next()

    assert isinstance(failed, log_events.FetchFailed) and failed.correlation_id == 5
    assert isinstance(answered, log_events.FetchAnswered)


async def test_a_leader_without_an_address_is_a_failure_not_a_wait() -> None:
    """A request to a node that metadata does not name fails at once."""
    async with linked() as (links, core, _):
        links.send_fetch(SendFetch(NodeId(4), 5, FETCH))
        failed = await core.next()
        question = messages.EpochEndQuestion(TP, LeaderEpoch(0), LeaderEpoch(1))
        links.send_epoch_ends(SendEpochEnds(NodeId(4), 6, (question,)))
        other = await core.next()

    assert isinstance(failed, log_events.FetchFailed) and "node 4" in failed.reason
    assert isinstance(other, log_events.EpochEndsFailed) and other.correlation_id == 6


async def test_an_epoch_question_is_answered_or_fails() -> None:
    """The answer, a rejection of the call, and a deadline each end the request."""

    async def answer(request: Any, context: Any) -> pb.OffsetForLeaderEpochResponse:
        epoch = request.topics[0].partitions[0].leader_epoch
        if epoch == 1:
            raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster")
        if epoch == 2:
            await asyncio.sleep(5)
        response = pb.OffsetForLeaderEpochResponse()
        response.topics.add(topic_id=TP.topic_id).partitions.add(partition=0, leader_epoch=epoch, end_offset=12)
        return response

    async with linked(OffsetForLeaderEpoch=answer) as (links, core, _):
        events = []
        for epoch in (0, 1, 2):
            question = messages.EpochEndQuestion(TP, LeaderEpoch(epoch), LeaderEpoch(3))
            links.send_epoch_ends(SendEpochEnds(LEADER, epoch, (question,)))
            events.append(await core.next())

    good, refused, late = events
    assert isinstance(good, log_events.EpochEndsAnswered) and good.answers[0].end == EpochEnd(
        LeaderEpoch(0), Offset(12)
    )
    assert isinstance(refused, log_events.EpochEndsFailed) and "another cluster" in refused.reason
    assert isinstance(late, log_events.EpochEndsFailed) and late.correlation_id == 2


async def test_offsets_that_do_not_match_the_questions_are_no_answer() -> None:
    """An answer with other content than requested is not accepted."""

    async def answer(request: Any, context: Any) -> pb.ListOffsetsResponse:
        response = pb.ListOffsetsResponse()
        response.topics.add(topic_id=TP.topic_id).partitions.add(partition_index=0, offset=1)
        return response

    both = tuple(messages.OffsetQuestion(TP, which, LeaderEpoch(1)) for which in (messages.LATEST, messages.EARLIEST))
    async with linked(ListOffsets=answer) as (links, core, _):
        links.send_list_offsets(SendListOffsets(LEADER, 8, both))
        event = await core.next()

    assert isinstance(event, log_events.OffsetsFailed) and event.correlation_id == 8


SNAPSHOT = SendProducerSnapshot(LEADER, 11, messages.ProducerSnapshotQuestion(TP, LeaderEpoch(1)))


async def test_producer_state_is_answered_or_fails() -> None:
    """C43: the answer, and a leader that is gone, each end the question."""

    async def answer(request: Any, context: Any) -> pb.FetchProducerSnapshotResponse:
        return pb.FetchProducerSnapshotResponse(log_start_offset=5)

    async with linked(FetchProducerSnapshot=answer) as (links, core, server):
        links.send_producer_snapshot(SNAPSHOT)
        answered = await core.next()
        await server.stop(0)
        links.send_producer_snapshot(SNAPSHOT)
        failed = await core.next()

    assert answered == log_events.ProducerSnapshotAnswered(
        1_000, LEADER, 11, messages.ProducerSnapshotAnswer(TP, Offset(5))
    )
    assert isinstance(failed, log_events.ProducerSnapshotFailed)
    assert failed.correlation_id == 11


async def test_a_leader_without_the_method_is_an_answer() -> None:
    """C43: one of an earlier release; asking again would not help."""

    async def unknown(request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    async with linked(FetchProducerSnapshot=unknown) as (links, core, _):
        links.send_producer_snapshot(SNAPSHOT)
        answered = await core.next()

    assert isinstance(answered, log_events.ProducerSnapshotAnswered)
    assert answered.answer.refusal is not None
    assert answered.answer.refusal.code is ErrorCode.UNSUPPORTED_VERSION
