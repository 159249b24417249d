"""Markers and transactional batches at real nodes: what is refused, replicated, described and given to readers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import crc32c
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, leader_stub, produce, running_nodes, values_of

from strandline.core.errors import ErrorCode
from strandline.core.types import TopicPartition
from strandline.records.codec import NewRecord, encode_batch
from strandline.runtime.clock import wall_ms
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1 import partition_pb2

TP = TopicPartition(TOPIC_ID, 0)
COMMITTED = partition_pb2.ISOLATION_LEVEL_READ_COMMITTED


def transactional(value: bytes) -> bytes:
    """A batch of one record that is part of a transaction of producer 7."""
    changed = bytearray(
        encode_batch([NewRecord(None, value, 1_700_000_000_000)], producer_id=7, producer_epoch=0, base_sequence=0)
    )
    changed[22] |= 0x10
    changed[17:21] = crc32c.crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def markers(cluster_id: str, *, epoch: int, coordinator: int = 1) -> pb.WriteTxnMarkersRequest:
    """The abort of a transaction of producer 7."""
    where = {"topic": TOPIC, "partitions": [0]}
    one = {"producer_id": 7, "producer_epoch": epoch, "coordinator_epoch": coordinator, "topics": [where]}
    return pb.WriteTxnMarkersRequest(cluster_id=cluster_id, markers=[one])


def error_of(response: pb.WriteTxnMarkersResponse) -> int:
    """The error of the one marker in the one partition."""
    return int(response.markers[0].topics[0].partitions[0].error_code)


async def until_equal_ends(nodes: list[Any], leo: int) -> None:
    """Until both logs end there, and both know that all is committed."""
    async with asyncio.timeout(5):
        while any(  # noqa: ASYNC110 - a look from outside
            (view.leo, view.last_stable_offset) != (leo, leo)
            for view in (node.driver.core.describe_replica(TP) for node in nodes)
        ):
            await asyncio.sleep(0.005)


async def test_markers_are_replicated_and_known_after_a_restart(tmp_path: Path) -> None:
    """X11, X12: a marker takes one offset, fences what it must on the leader, its follower and after a restart, and no
    reader is given a record of it; a transactional batch is refused, because the topic of its
    coordinator does not exist."""
    # A marker has the time of its append, and a log rolls when times are far apart.
    now_ms = wall_ms()
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1, 2), min_isr=2))
    await controller.start()
    async with running_nodes(controller, tmp_path, (1, 2)) as nodes, leader_stub(nodes[0]) as stub:
        cluster_id = nodes[0].driver.core.state.cluster_id
        await stub.Produce(produce(batch("a", timestamp_ms=now_ms)), timeout=5)
        answer = await stub.Produce(produce(transactional(b"t"), transactional_id="orders"), timeout=5)
        refused = answer.responses[0].partition_responses[0]
        codes = [
            error_of(await stub.WriteTxnMarkers(markers(cluster_id, epoch=epoch, coordinator=coordinator), timeout=5))
            for epoch, coordinator in ((3, 2), (3, 2), (2, 2), (4, 1))
        ]
        await stub.Produce(produce(batch("b", timestamp_ms=now_ms)), timeout=5)
        await until_equal_ends(nodes, 3)
        request = pb.DescribeProducersRequest(topics=[{"topic": TOPIC, "partitions": [0]}])
        (producer,) = (await stub.DescribeProducers(request, timeout=5)).topics[0].partitions[0].active_producers
        read = await stub.Fetch(fetch(0, isolation_level=COMMITTED), timeout=5)
        described = await stub.DescribePartitions(pb.DescribePartitionsRequest(), timeout=5)
    files = [(tmp_path / f"node-{n}" / f"{TOPIC}-0" / f"{0:020}.log").read_bytes() for n in (1, 2)]
    async with running_nodes(controller, tmp_path, (1, 2)) as nodes, leader_stub(nodes[0]) as stub:
        late = error_of(await stub.WriteTxnMarkers(markers(cluster_id, epoch=4, coordinator=1), timeout=5))
    await controller.stop()

    assert (refused.error_code, refused.outcome) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        pb.PRODUCE_OUTCOME_NOT_APPENDED,
    )
    # The third is of an earlier epoch than the last marker: nothing is open that it could end, so it is done.
    assert codes == [0, 0, 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch) == (7, 3, 2)
    assert not producer.HasField("last_sequence") and not producer.HasField("current_txn_start_offset")
    assert values_of(read) == ["a", "b"]
    assert read.responses[0].partitions[0].next_offset == read.responses[0].partitions[0].last_stable_offset == 3
    assert described.topics[0].partitions[0].last_stable_offset == 3
    assert files[0] == files[1]
    assert late == ErrorCode.TRANSACTION_COORDINATOR_FENCED
