"""One data node behind real gRPC: produce and fetch, and every kind of bad caller."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crc32c
import grpc
import pytest
from controller_stub import CLUSTER_ID, ControllerStub, topic
from nodes_in_process import (
    TOPIC,
    TOPIC_ID,
    batch,
    fetch,
    fetch_topic,
    follower_stub,
    leader_stub,
    produce,
    produce_message,
    running_nodes,
    values_of,
)

from strandline.core.errors import ErrorCode
from strandline.core.messages import MetadataImage, PartitionImage, PositionProof, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules, TopicPartition
from strandline.node.logs import DirectoryLogs
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.channels import open_channel
from strandline.rpc.convert.subscription import image_from_bytes
from strandline.rpc.status import refusal_of
from strandline.storage.directory import DataDirectory
from strandline.storage.log import LogSettings
from strandline.v1 import follower_service_pb2, leader_service_pb2 as pb, record_pb2


def _controller(*, partitions: int = 1) -> ControllerStub:
    return ControllerStub(topic(TOPIC, TOPIC_ID, (1,), partitions=partitions))


def _row(response: Any) -> Any:
    """The only partition of an answer to a produce."""
    return response.responses[0].partition_responses[0]


def _large_batch() -> bytes:
    """One batch of more than the 1,048,588 bytes that a batch may have."""
    return encode_batch([NewRecord(None, bytes(1_048_600), 1)], max_bytes=2 << 20)


async def test_what_was_produced_is_fetched(tmp_path: Path) -> None:
    """acks=all over one replica: acknowledged at its offset, and read back from there."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        first = _row(await stub.Produce(produce(batch("a", "b")), timeout=5))
        second = _row(await stub.Produce(produce(batch("c")), timeout=5))
        answer = await stub.Fetch(fetch(1), timeout=5)

    assert (first.base_offset, second.base_offset) == (0, 2)
    assert values_of(answer) == ["b", "c"]
    assert answer.responses[0].partitions[0].high_watermark == 3


async def test_simple_records_are_appended_as_a_batch(tmp_path: Path) -> None:
    """grpcurl needs no codec: records as messages in, records as messages out."""
    message = produce(b"")
    records = [record_pb2.SimpleRecord(key=b"k", value=b"v", headers=[record_pb2.RecordHeader(key="h", value=b"x")])]
    message.topic_data[0].partition_data[0].simple_records.extend(records)
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        row = _row(await stub.Produce(message, timeout=5))
        answer = await stub.Fetch(fetch(0), timeout=5)

    record = answer.responses[0].partitions[0].simple_records[0]
    assert row.base_offset == 0
    assert (record.key, record.value, record.offset, record.headers[0].key) == (b"k", b"v", 0, "h")


async def test_a_parked_fetch_is_answered_by_the_next_append(tmp_path: Path) -> None:
    """A consumer at the end waits until there is something to read."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        waiting = asyncio.ensure_future(stub.Fetch(fetch(0, max_wait_ms=10_000), timeout=15))
        await _until_parked(node, 1)
        await stub.Produce(produce(batch("late")), timeout=5)
        answer = await waiting

    assert values_of(answer) == ["late"]


async def _until_parked(node: Any, fetches: int) -> None:
    """Return when the node's core holds this many parked fetches."""
    async with asyncio.timeout(5):
        while node.driver.core.parked[1] != fetches:  # noqa: ASYNC110 - the core raises no event for a look from outside
            await asyncio.sleep(0.005)


async def test_a_parked_fetch_dies_with_its_caller(tmp_path: Path) -> None:
    """A caller that hangs up leaves nothing parked in the core and nothing in the table of calls."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        waiting = stub.Fetch(fetch(0, max_wait_ms=30_000), timeout=60)
        pending = asyncio.ensure_future(waiting)
        await _until_parked(node, 1)
        waiting.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await _until_parked(node, 0)
        calls = len(node.driver.calls)

    assert calls == 0


async def test_a_parked_fetch_dies_at_its_callers_deadline(tmp_path: Path) -> None:
    """A deadline nearer than max_wait_ms ends the wait in the core too."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Fetch(fetch(0, max_wait_ms=30_000), timeout=0.2)
        await _until_parked(node, 0)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_produce_stream_answers_each_message_under_its_own_id(tmp_path: Path) -> None:
    """Several outstanding messages, appended in the order they were sent, with a malformed one rejected in between."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        stream = stub.ProduceStream()
        await stream.write(produce_message(1, batch("a")))
        await stream.write(produce_message(2, batch("x"), acks=2))
        await stream.write(pb.ProduceStreamRequest(correlation_id=3))
        await stream.write(produce_message(4, batch("b"), acks=1))
        await stream.write(produce_message(5, batch("c"), acks=0))
        await stream.done_writing()
        answers = {answer.correlation_id: answer async for answer in stream}
        read = await stub.Fetch(fetch(0), timeout=5)

    assert sorted(answers) == [1, 2, 3, 4, 5]
    assert answers[2].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert answers[3].error_code == ErrorCode.INVALID_REQUEST
    assert (_row(answers[1]).base_offset, _row(answers[4]).base_offset) == (0, 1)
    assert not _row(answers[5]).HasField("base_offset") and _row(answers[5]).error_code == 0
    assert values_of(read) == ["a", "b", "c"]


async def test_a_fetch_stream_answers_a_named_partition_once(tmp_path: Path) -> None:
    """A parked partition is answered when bytes arrive; after that it gets nothing until it is named again."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        stream = stub.FetchStream()
        await stream.write(
            pb.FetchStreamRequest(correlation_id=8, topics=[fetch_topic(0)], max_wait_ms=10_000, decode=True)
        )
        await _until_parked(node, 1)
        await stub.Produce(produce(batch("a")), timeout=5)
        first = await stream.read()
        await stub.Produce(produce(batch("b")), timeout=5)
        await stream.write(pb.FetchStreamRequest(correlation_id=9, topics=[fetch_topic(1)], decode=True))
        second = await stream.read()
        stream.cancel()

    assert (first.correlation_id, values_of(first)) == (8, ["a"])
    assert (second.correlation_id, values_of(second)) == (9, ["b"])


async def test_a_malformed_fetch_message_does_not_end_its_stream(tmp_path: Path) -> None:
    """INVALID_REQUEST under its correlation id; the next message is served."""
    twice = pb.FetchStreamRequest(correlation_id=1, topics=[fetch_topic(0), fetch_topic(0)])
    nobody = pb.FetchStreamRequest(correlation_id=2, topics=[fetch_topic(0)])
    nobody.replica_state.replica_id = 2
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        await stub.Produce(produce(batch("a")), timeout=5)
        stream = stub.FetchStream()
        for message in (twice, nobody, pb.FetchStreamRequest(correlation_id=3, topics=[fetch_topic(0)], decode=True)):
            await stream.write(message)
        answers = [await stream.read() for _ in range(3)]
        stream.cancel()

    assert [(answer.correlation_id, answer.error_code) for answer in answers] == [
        (1, ErrorCode.INVALID_REQUEST),
        (2, ErrorCode.INVALID_REQUEST),
        (3, 0),
    ]
    assert values_of(answers[2]) == ["a"]


async def test_an_ended_stream_leaves_nothing_behind(tmp_path: Path) -> None:
    """When a stream's caller goes away, its parked fetches and its calls are removed."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        stream = stub.FetchStream()
        await stream.write(pb.FetchStreamRequest(correlation_id=8, topics=[fetch_topic(0)], max_wait_ms=10_000))
        await _until_parked(node, 1)
        stream.cancel()
        await _until_parked(node, 0)
        calls = len(node.driver.calls)

    assert calls == 0


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (produce(batch("a"), name="nosuch"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch("a"), name="../../x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch("a"), name="x" * 300), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch("a"), partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch("a"), partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(b""), ErrorCode.INVALID_RECORD),
        (produce(batch("a") + batch("b")), ErrorCode.INVALID_RECORD),
        (produce(batch("a")[:-1] + b"\x07"), ErrorCode.CORRUPT_MESSAGE),
        (produce(batch("a")[:30]), ErrorCode.CORRUPT_MESSAGE),
        (produce(_large_batch()), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["topic", "path", "long name", "partition", "negative", "nothing", "two", "crc", "torn", "large"],
)
async def test_a_bad_produce_is_answered_with_its_exact_code(
    tmp_path: Path, request_: pb.ProduceRequest, code: ErrorCode
) -> None:
    """Each is rejected for its partition, and definitely: nothing was appended."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        row = _row(await stub.Produce(request_, timeout=5))

    assert (ErrorCode(row.error_code), row.outcome) == (code, pb.PRODUCE_OUTCOME_NOT_APPENDED)


@pytest.mark.parametrize(("offset", "code"), [(-1, ErrorCode.INVALID_REQUEST), (1_001, ErrorCode.OFFSET_OUT_OF_RANGE)])
async def test_a_fetch_outside_the_log_is_answered_with_its_exact_code(
    tmp_path: Path, offset: int, code: ErrorCode
) -> None:
    """An offset below zero, or far beyond the end, is out of range."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        answer = await stub.Fetch(fetch(offset), timeout=5)

    assert answer.responses[0].partitions[0].error_code == code


async def test_another_clusters_caller_is_refused_as_a_whole(tmp_path: Path) -> None:
    """FAILED_PRECONDITION with an ErrorInfo that names the field."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(produce(batch("a"), cluster_id="another"), timeout=5)

    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal_of(caught.value).code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "cluster_id" in refusal_of(caught.value).message


async def test_a_full_purgatory_refuses_unary_callers(tmp_path: Path) -> None:
    """At its bound a unary produce is RESOURCE_EXHAUSTED, and nothing was appended."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2), min_isr=1))
    async with running_nodes(controller, tmp_path, purgatory_max_entries=1) as (node,), leader_stub(node) as stub:
        parked = asyncio.ensure_future(stub.Produce(produce(batch("a"), timeout_ms=60_000), timeout=60))
        async with asyncio.timeout(5):
            while not node.driver.core.purgatory_full:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.005)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(produce(batch("b")), timeout=5)
        parked.cancel()
        await asyncio.gather(parked, return_exceptions=True)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal_of(caught.value).code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_stream_is_not_read_further_while_the_purgatory_is_full(tmp_path: Path) -> None:
    """Messages beyond the bound wait in the stream instead of being rejected; each gets its own answer."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2), min_isr=1))
    async with running_nodes(controller, tmp_path, purgatory_max_entries=1) as (node,), leader_stub(node) as stub:
        stream = stub.ProduceStream()
        for index in range(3):
            await stream.write(produce_message(index, batch(f"v{index}"), timeout_ms=100))
        await stream.done_writing()
        codes = [_row(answer).error_code async for answer in stream]

    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 3


@pytest.mark.parametrize(
    ("name", "answer_type"), [("ProduceStream", pb.ProduceStreamResponse), ("FetchStream", pb.FetchStreamResponse)]
)
async def test_a_stream_message_that_is_no_protobuf_does_not_end_its_stream(
    tmp_path: Path, name: str, answer_type: Any
) -> None:
    """INVALID_REQUEST under correlation id 0, because the id cannot be read; the next message gets its answer."""
    good = produce_message(7, batch("a")) if name == "ProduceStream" else pb.FetchStreamRequest(correlation_id=7)
    if name == "FetchStream":
        good.topics.append(fetch_topic(0))
    async with running_nodes(_controller(), tmp_path) as (node,), open_channel(node.client) as channel:
        method = channel.stream_stream(f"/strandline.v1.LeaderService/{name}")
        stream = method()
        await stream.write(b"\xff\xff\xff\xff")
        await stream.write(good.SerializeToString())
        answers = [answer_type.FromString(await stream.read()) for _ in range(2)]
        stream.cancel()

    assert [(answer.correlation_id, answer.error_code) for answer in answers] == [
        (0, ErrorCode.INVALID_REQUEST),
        (7, 0),
    ]


async def test_a_nearly_full_disk_refuses_produce_and_serves_reads(tmp_path: Path) -> None:
    """Below the low-space mark produce is rejected before ENOSPC, definitely."""
    async with running_nodes(_controller(), tmp_path, low_space_bytes=1 << 60) as (node,), leader_stub(node) as stub:
        row = _row(await stub.Produce(produce(batch("a")), timeout=5))
        answer = await stub.Fetch(fetch(0), timeout=5)

    assert row.error_code == ErrorCode.POLICY_VIOLATION
    said = r"the disk of node 1 is nearly full: [\d,]+ bytes are free, and [\d,]+ are needed \(low_space_bytes [\d,]+\)"
    assert re.search(said, row.error_message)
    assert row.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert answer.responses[0].partitions[0].error_code == 0


async def test_a_batch_of_microseconds_is_refused_and_its_neighbours_are_not(tmp_path: Path) -> None:
    """A time beyond `message.timestamp.after.max.ms` would stop retention; only the batch that has it is refused."""
    future = batch("us", timestamp_ms=time.time_ns() // 1_000)
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        rows = [_row(await stub.Produce(produce(records), timeout=5)) for records in (batch("a"), future, batch("b"))]

    assert [row.error_code for row in rows] == [0, ErrorCode.INVALID_TIMESTAMP, 0]
    assert rows[1].outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert "message.timestamp.after.max.ms is 3600000" in rows[1].error_message
    assert rows[2].base_offset == 1


async def test_offsets_are_found_by_time_and_at_both_ends(tmp_path: Path) -> None:
    """Latest, earliest, the largest timestamp, and the first record at or after a time."""
    request = pb.ListOffsetsRequest()
    rows = request.topics.add(name=TOPIC).partitions
    for timestamp in (-1, -2, -3, 1_700_000_000_001, 1_800_000_000_000):
        rows.add(partition_index=0, timestamp=timestamp)
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        await stub.Produce(produce(batch("a", "b", "c")), timeout=5)
        found = (await stub.ListOffsets(request, timeout=5)).topics[0].partitions

    assert [row.offset for row in found[:4]] == [3, 0, 2, 1]
    assert not found[4].HasField("offset") and found[4].error_code == 0


async def test_a_batch_that_holds_no_records_hurts_nobody(tmp_path: Path) -> None:
    """A compressed batch with a right CRC and a body without records: it is stored, and no reader can decode it."""
    poison = bytearray(batch("a" * 50))
    # It says lz4, but the body is not lz4.
    poison[22] = 3
    poison[17:21] = crc32c.crc32c(bytes(poison[21:])).to_bytes(4, "big")
    request = pb.ListOffsetsRequest()
    request.topics.add(name=TOPIC).partitions.add(partition_index=0, timestamp=1)
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        stored = _row(await stub.Produce(produce(bytes(poison)), timeout=5))
        decoded = await stub.Fetch(fetch(0), timeout=5)
        offsets = await stub.ListOffsets(request, timeout=5)

    assert stored.error_code == 0
    assert decoded.responses[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert offsets.topics[0].partitions[0].offset == 0


async def test_a_restart_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """After a clean stop and a new start on the directory, offsets continue where they ended."""
    controller = _controller()
    await controller.start()
    async with running_nodes(controller, tmp_path) as (node,), leader_stub(node) as stub:
        await stub.Produce(produce(batch("a", "b")), timeout=5)
    async with running_nodes(controller, tmp_path) as (node,), leader_stub(node) as stub:
        row = _row(await stub.Produce(produce(batch("c")), timeout=5))
        answer = await stub.Fetch(fetch(0), timeout=5)
    await controller.stop()

    assert row.base_offset == 2
    assert values_of(answer) == ["a", "b", "c"]


async def test_what_was_acknowledged_needs_no_look_after_a_crash(tmp_path: Path) -> None:
    """M55: the recovery point follows each commit, so recovery begins after the durably acknowledged records."""
    async with running_nodes(_controller(), tmp_path) as (node,), leader_stub(node) as stub:
        before = node.directory.checkpoints.recovery_points.get((TOPIC, 0))
        await stub.Produce(produce(batch("a", "b")), timeout=5)
        after = node.directory.checkpoints.recovery_points.get((TOPIC, 0))

    assert (before or 0, after) == (0, 2)


async def test_both_views_of_a_partition_agree(tmp_path: Path) -> None:
    """DescribePartitions and DescribeReplicas of the only replica return the same offsets."""
    async with (
        running_nodes(_controller(), tmp_path) as (node,),
        leader_stub(node) as leader,
        follower_stub(node) as follower,
    ):
        await leader.Produce(produce(batch("a", "b")), timeout=5)
        led = await leader.DescribePartitions(pb.DescribePartitionsRequest(cluster_id=CLUSTER_ID), timeout=5)
        held = await follower.DescribeReplicas(follower_service_pb2.DescribeReplicasRequest(), timeout=5)

    lead, own = led.topics[0].partitions[0], held.topics[0].partitions[0]
    assert (lead.log_end_offset, lead.high_watermark, lead.durable_log_end_offset) == (2, 2, 2)
    assert (own.log_end_offset, own.high_watermark) == (2, 2)
    assert lead.log_size_bytes == own.log_size_bytes == len(batch("a", "b"))
    assert own.fetch_state == follower_service_pb2.FETCH_STATE_LEADING


async def test_a_mark_is_cleared_once_the_position_of_the_registration_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C34: a process that dies in between registers as unclean again, or can prove that the controller forgot it."""
    controller = _controller()
    controller.position = PositionProof(NodeEpoch(101), 1, 7, b"mac")
    await controller.start()
    async with running_nodes(controller, tmp_path) as (node,):
        node.directory.mark_unclean("the test says so")
    kept: list[PositionProof | None] = []

    def clear(directory: DataDirectory) -> None:
        content = directory.checkpoints.metadata()
        image = image_from_bytes(content) if content is not None else None
        kept.append(image.registered if image is not None else None)

    monkeypatch.setattr(DataDirectory, "clear_unclean", clear)
    async with running_nodes(controller, tmp_path):
        pass
    await controller.stop()

    assert kept == [controller.position]


# Logs that have one name after the other: a topic that was deleted and made again, before this node heard of it.


OLD, NEW = TopicPartition("old-id", 0), TopicPartition("new-id", 0)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[DirectoryLogs]:
    """The logs of an empty directory."""
    directory = DataDirectory.open(tmp_path / "node", node_id=NodeId(1))
    found = DirectoryLogs(directory, LogSettings())
    yield found
    found.close(clean=True)


def test_the_log_of_the_earlier_topic_is_closed(logs: DirectoryLogs) -> None:
    """The new topic's log takes the name; the old one is held no more."""
    logs.open(OLD, "t")
    logs.open(NEW, "t")

    assert list(logs.held()) == [NEW]


def test_the_log_of_another_partition_or_topic_stays(logs: DirectoryLogs) -> None:
    """Only the same name is taken."""
    others = [TopicPartition("old-id", 1), TopicPartition("other", 0)]
    logs.open(others[0], "t")
    logs.open(others[1], "u")
    logs.open(OLD, "t")

    assert set(logs.held()) == {*others, OLD}


def test_a_late_deletion_of_the_earlier_topic_leaves_the_name_to_the_new_one(logs: DirectoryLogs) -> None:
    """Whatever order the two words come in, a third topic of that name closes the second one's log."""
    logs.open(OLD, "t")
    logs.open(NEW, "t")
    logs.delete(OLD)
    third = TopicPartition("third-id", 0)
    logs.open(third, "t")

    assert list(logs.held()) == [third]


def test_a_log_that_was_moved_or_deleted_while_the_node_was_down_is_set_aside(tmp_path: Path) -> None:
    """At the next start metadata shows that a partition is another node's, or none any more; other logs stay."""
    moved, mine, gone = (TopicPartition(f"{name}-id", 0) for name in ("moved", "mine", "gone"))
    logs = DirectoryLogs(DataDirectory.open(tmp_path / "node", node_id=NodeId(1)), LogSettings())
    for tp, name in ((moved, "moved"), (mine, "mine"), (gone, "gone")):
        logs.open(tp, name)
    logs.close(clean=True)
    again = DirectoryLogs(DataDirectory.open(tmp_path / "node", node_id=NodeId(1)), LogSettings())
    again.open_all(lambda *_: None)
    again.set_aside_moved(stored_image(moved=moved, mine=mine))
    again.sync_saves()
    strays = sorted(path.name for path in (tmp_path / "node").glob("*.moved.stray"))

    assert again.directory.log_names() == [("mine", 0)]
    assert strays == ["gone-0.gone-id.moved.stray", "moved-0.moved-id.moved.stray"]
    again.close(clean=True)


def stored_image(**placed: TopicPartition) -> MetadataImage:
    """Metadata of topics with one partition each: those called ``mine`` are on node 1, others on node 2."""

    def of(name: str, tp: TopicPartition) -> TopicImage:
        replicas = (NodeId(1 if name == "mine" else 2),)
        partition = PartitionImage(
            tp=tp,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            min_isr=1,
        )
        return TopicImage(name=name, topic_id=tp.topic_id, partitions=(partition,))

    return MetadataImage(
        cluster_id="c",
        controller_epoch=1,
        metadata_offset=1,
        is_snapshot=True,
        rules=Rules(),
        topics=tuple(of(name, tp) for name, tp in placed.items()),
    )
