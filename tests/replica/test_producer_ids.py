"""Producer ids, markers and transactional batches at real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import crc32c
import pytest
from controller_stub import ControllerStub, topic
from nodes_in_process import TOPIC, TOPIC_ID, batch, fetch, leader_stub, produce, running_nodes, values_of

from strandline.core.control.messages import AllocateProducerIds, InitProducerId, ProducerIdsAllocated
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import NodeEpoch, NodeId, TopicPartition
from strandline.node import producer_ids
from strandline.node.producer_ids import ProducerIds
from strandline.records.codec import NewRecord, encode_batch
from strandline.runtime.clock import wall_ms
from strandline.runtime.host import TopicDirectory
from strandline.v1 import leader_service_pb2 as pb, partition_pb2

CLUSTER = "cluster-of-the-test"
LENGTH = 4


class Blocks:
    """A controller that reserves blocks of four ids, one after the other, when ``open`` is set."""

    def __init__(self) -> None:
        self.asked: list[AllocateProducerIds] = []
        self.refusals: list[Refused] = []
        self.open = asyncio.Event()
        self.open.set()
        self.came = asyncio.Event()

    async def allocate_producer_ids(self, request: AllocateProducerIds) -> ProducerIdsAllocated:
        """The next block, or a refusal that the test put there."""
        self.asked.append(request)
        self.came.set()
        await self.open.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        return ProducerIdsAllocated(start=100 * len(self.asked), length=LENGTH)

    async def until_asked(self, times: int) -> None:
        """Wait for that many requests."""
        async with asyncio.timeout(5):
            while len(self.asked) < times:
                self.came.clear()
                await self.came.wait()


class NoWait:
    """A back-off of nothing, counted."""

    resets = 0

    def next_s(self) -> float:
        """Try again at once."""
        return 0.0

    def reset(self) -> None:
        """Something worked."""
        type(self).resets += 1


@asynccontextmanager
async def node(blocks: Blocks) -> AsyncIterator[ProducerIds]:
    """The producer ids of a registered node, which asks for blocks."""
    topics = TopicDirectory()
    topics.cluster_id = CLUSTER
    host: Any = SimpleNamespace(node_id=NodeId(3), node_epoch=NodeEpoch(17), topics=topics)
    ids = ProducerIds(blocks, host, backoff=NoWait)
    keeping = asyncio.create_task(ids.keep_forever())
    try:
        yield ids
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def given(ids: ProducerIds, count: int) -> list[int | None]:
    """So many new ids."""
    return [(await ids.give(InitProducerId(cluster_id=CLUSTER))).producer_id for _ in range(count)]


async def test_the_first_block_is_asked_for_before_any_producer_comes() -> None:
    """Every controller may be away by then; the request names the node's present process."""
    blocks = Blocks()
    async with node(blocks):
        await blocks.until_asked(1)

    assert blocks.asked[0] == AllocateProducerIds(node_id=NodeId(3), node_epoch=NodeEpoch(17), cluster_id=CLUSTER)


async def test_each_producer_gets_an_id_of_its_own() -> None:
    """Over the border of a block as within one."""
    async with node(Blocks()) as ids:
        found = await given(ids, 3 * LENGTH)

    assert len(set(found)) == 3 * LENGTH
    assert None not in found


async def test_the_next_block_is_asked_for_at_half() -> None:
    """Half of a block is left when the next one is asked for, and it is asked for once."""
    blocks = Blocks()
    async with node(blocks) as ids:
        await given(ids, LENGTH // 2 - 1)
        before = len(blocks.asked)
        await given(ids, 1)
        await blocks.until_asked(2)

    assert (before, len(blocks.asked)) == (1, 2)


async def test_waiting_producers_share_one_request() -> None:
    """Five producers that wait for the first block make one request, and each gets an id."""
    blocks = Blocks()
    blocks.open.clear()
    async with node(blocks) as ids:
        waiting = [asyncio.create_task(given(ids, 1)) for _ in range(LENGTH)]
        await blocks.until_asked(1)
        asked = len(blocks.asked)
        blocks.open.set()
        found = [one for each in await asyncio.gather(*waiting) for one in each]

    assert asked == 1
    assert len(set(found)) == LENGTH


async def test_a_refused_request_is_made_again() -> None:
    """A controller that is about to decide refuses for a moment."""
    blocks = Blocks()
    blocks.refusals = [Refused(ErrorCode.NOT_CONTROLLER, "about to decide") for _ in range(2)]
    async with node(blocks) as ids:
        found = await given(ids, 1)

    assert found == [300]


async def test_without_a_controller_a_producer_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can ask another node, which may have ids left."""
    monkeypatch.setattr(producer_ids, "WAIT_MS", 10)
    blocks = Blocks()
    blocks.open.clear()
    async with node(blocks) as ids:
        answer = await ids.give(InitProducerId(cluster_id=CLUSTER))

    assert answer.producer_id is None
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.REQUEST_TIMED_OUT
    assert answer.refusal.retriable


async def test_a_producer_of_another_cluster_gets_no_id() -> None:
    """Its ids would be of no use there."""
    async with node(Blocks()) as ids:
        with pytest.raises(Refused) as refused:
            await ids.give(InitProducerId(cluster_id="another"))

    assert refused.value.refusal.code is ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_coordinators_take_from_the_same_blocks() -> None:
    """A coordinator looks at the next id before it takes it; no other gets that one, and the next block is asked
    for in time (X4)."""
    blocks = Blocks()
    async with node(blocks) as ids:
        first = (await given(ids, 1))[0]
        assert first is not None
        assert (ids.next_id(), ids.next_id()) == (first + 1, first + 1)
        ids.take(first + 1)
        assert await given(ids, 1) == [first + 2]
        for number in range(first + 3, first + LENGTH // 2):
            ids.take(number)
        await blocks.until_asked(2)


# Markers and transactional batches at real nodes: what is refused, replicated, described and given to readers.


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
