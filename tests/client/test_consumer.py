"""The consumer against scripted nodes: no gap, no overlap, and what happens when its position is lost."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Literal

import crc32c
import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, FakeNode, fake_cluster, until, write

from strandline.client import ClientClosed, Consumer, ConsumerRecord, LogTruncated, TopicDeleted, UnreadableBatch
from strandline.core.errors import ErrorCode, Refused
from strandline.records.codec import NewRecord, encode_batch
from strandline.records.compression import Compression
from strandline.v1 import error_pb2, leader_service_pb2 as lpb, partition_pb2


async def read_all(consumer: Consumer) -> list[bytes | None]:
    """Every value up to the end, by iteration."""
    return [record.value async for record in consumer]


async def test_reads_everything_once_in_order() -> None:
    """Iteration gives each record of each partition once, in order of offset, and ends at the end."""
    async with fake_cluster(partitions=3) as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        for index in range(3):
            for number in range(20):
                write(cluster, b"%d" % number, b"%d+" % number, partition=index)
        assigned = await consumer.assign([TOPIC])
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async for record in consumer:
            seen[record.partition].append(record.offset)

        assert assigned == {(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)}
        assert seen == {index: list(range(40)) for index in range(3)}


async def test_batches_tell_their_leader_epochs() -> None:
    """Records come with the leader epochs that they were appended in, batch by batch."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"a", b"b")
        cluster.move_leader(1)
        write(cluster, b"c")
        await consumer.assign([(TOPIC, 0)])
        epochs: list[tuple[int, int]] = []
        while not consumer.is_finished:
            for fetched in await consumer.fetch_batches(5_000):
                epochs.extend(fetched.epoch_starts)

        assert epochs == [(0, 1), (2, 2)]


async def test_follows_the_leader() -> None:
    """When leadership moves the new leader gets a fetch at once, though the old one still holds one parked."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a")
        await consumer.assign([TOPIC])
        await consumer.fetch_batches(5_000)
        await until(lambda: len(cluster.nodes[0].fetched) == 2)
        cluster.move_leader(1)
        await until(lambda: bool(cluster.nodes[1].fetched))
        write(cluster, b"b")
        (fetched,) = await consumer.fetch_batches(5_000)
        asked = cluster.nodes[1].fetched[0]

        assert [record.value for record in fetched.records] == [b"b"]
        assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (1, 2, 1)


async def test_survives_the_death_of_the_leader() -> None:
    """A broken stream is opened again to the current leader; nothing is skipped or returned twice."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"a")
        write(cluster, b"b")
        await consumer.assign([TOPIC])
        first = await anext(consumer)
        await cluster.nodes[0].stop()
        cluster.move_leader(1)

        assert [first.value, *await read_all(consumer)] == [b"a", b"b"]


async def test_silence_is_broken_by_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a fetch is parked the consumer sends from time to time: only a sender detects a dead peer."""
    monkeypatch.setattr("strandline.client.consume.fetch_link.SIGN_OF_LIFE_MS", 50)
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        await consumer.assign([TOPIC])
        await until(lambda: cluster.nodes[0].signs_of_life >= 2)
        write(cluster, b"a")
        (fetched,) = await consumer.fetch_batches(5_000)

        assert [record.value for record in fetched.records] == [b"a"]
        assert len(cluster.nodes[0].fetched) <= 2


async def test_reads_from_a_follower() -> None:
    """With read_from="follower" a replica other than the leader is read."""
    async with (
        fake_cluster(nodes=2) as cluster,
        Consumer(cluster.bootstrap, read_from="follower", stop_at_end=True) as consumer,
    ):
        write(cluster, b"a", b"b")
        await consumer.assign([TOPIC])

        assert await read_all(consumer) == [b"a", b"b"]
        assert cluster.nodes[1].follower_fetches > 0
        assert cluster.nodes[0].fetched == []


async def test_goes_on_after_an_error() -> None:
    """An error is raised once per occurrence; the next call continues from the same position."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a")
        refused = partition_pb2.FetchPartitionResponse(
            partition_index=0, error_code=error_pb2.ERROR_CODE_INVALID_REQUEST
        )
        cluster.nodes[0].next_fetch.append(refused)
        await consumer.assign([TOPIC])
        with pytest.raises(Refused, match="INVALID_REQUEST"):
            await consumer.fetch_batches(5_000)
        (fetched,) = await consumer.fetch_batches(5_000)

        assert [record.value for record in fetched.records] == [b"a"]


def write_unreadable(cluster: FakeCluster, records: int) -> None:
    """A batch with a right CRC that says zstd, with a body that is not zstd."""
    batch = bytearray(encode_batch([NewRecord(None, b"x", 1)] * records))
    struct.pack_into(">h", batch, 21, Compression.ZSTD)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    cluster.append(cluster.tp(0), bytes(batch))


@pytest.mark.parametrize("way", ["iteration", "batches"])
async def test_an_unreadable_batch_is_named_and_can_be_skipped(way: str) -> None:
    """Records before it in the same answer are returned, the error has the offset after it, and seeking there works."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a", b"b")
        write_unreadable(cluster, 3)
        write(cluster, b"c")
        await consumer.assign([TOPIC])
        seen: list[bytes | None] = []

        async def read(count: int) -> None:
            while len(seen) < count:
                if way == "iteration":
                    seen.append((await anext(consumer)).value)
                else:
                    seen.extend(row.value for one in await consumer.fetch_batches(5_000) for row in one.records)

        await read(2)
        with pytest.raises(UnreadableBatch) as first:
            await read(3)
        with pytest.raises(UnreadableBatch) as again:
            await read(3)
        consumer.seek(TOPIC, 0, first.value.next_offset)
        await read(3)

        assert seen == [b"a", b"b", b"c"]
        error = first.value
        assert (error.topic, error.partition, error.offset, error.next_offset) == (TOPIC, 0, 2, 5)
        assert f"{TOPIC}-0: the batch with offsets 2 to 4 cannot be read: records are not zstd data" in str(error)
        assert str(error).endswith("read on from offset 5 to skip it")
        assert again.value.offset == 2


async def test_an_unreadable_batch_behind_the_stop_offset_is_no_failure() -> None:
    """A consumer that stops at the end it found does not decode later records."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"a")
        await consumer.assign([TOPIC])
        await until(lambda: consumer.position(TOPIC, 0) == 0)
        write_unreadable(cluster, 1)
        consumer.seek(TOPIC, 0, 0)

        assert await read_all(consumer) == [b"a"]


@pytest.mark.parametrize(("policy", "values"), [("earliest", [b"a"]), ("latest", [])])
async def test_position_out_of_range_is_reset(policy: str, values: list[bytes]) -> None:
    """`auto_offset_reset` moves to the named end of the log instead."""
    async with fake_cluster() as cluster:
        consumer = Consumer(cluster.bootstrap, auto_offset_reset=policy, stop_at_end=True)  # type: ignore[arg-type]
        async with consumer:
            write(cluster, b"a")
            await consumer.assign([TOPIC], start=7)
            consumer._cursor(TOPIC, 0).stop_at = None

            assert await read_all(consumer) == values or consumer.is_finished


def diverging(epoch: int, end_offset: int) -> partition_pb2.FetchPartitionResponse:
    """A leader's answer that the log diverges from ``end_offset`` on."""
    end = partition_pb2.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return partition_pb2.FetchPartitionResponse(partition_index=0, diverging_epoch=end)


async def read_until_truncated(cluster: FakeCluster, consumer: Consumer) -> None:
    """Two records are read, of which the leader of the next epoch has the first only."""
    write(cluster, b"a")
    write(cluster, b"b")
    await consumer.assign([TOPIC])
    assert [(await anext(consumer)).value for _ in range(2)] == [b"a", b"b"]
    await until(lambda: cluster.nodes[0].fetched[-1].fetch_offset == 2)
    cluster.nodes[0].next_fetch.append(diverging(1, 1))
    cluster.log().truncate(1)
    write(cluster, b"B")
    cluster.move_leader(0)


async def test_truncation_is_an_error() -> None:
    """A log that lost records already read raises LogTruncated with position and first different offset."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        await read_until_truncated(cluster, consumer)
        with pytest.raises(LogTruncated) as lost:
            await consumer.fetch_batches(5_000)

        assert (lost.value.offset, lost.value.diverging_offset, lost.value.epoch) == (2, 1, 1)


async def test_truncation_is_reset_by_policy() -> None:
    """With a reset policy reading continues at the first offset that differs now."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        await read_until_truncated(cluster, consumer)
        (fetched,) = await consumer.fetch_batches(5_000)

        assert [(record.offset, record.value) for record in fetched.records] == [(1, b"B")]


async def test_damaged_answer_is_asked_again() -> None:
    """Bytes that do not match their CRC are never returned; the same offset is fetched again."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"a")
        damaged = bytearray(cluster.log().batches[0])
        damaged[-1] ^= 1
        cluster.nodes[0].next_fetch.append(
            partition_pb2.FetchPartitionResponse(partition_index=0, high_watermark=1, records=bytes(damaged))
        )
        await consumer.assign([TOPIC])

        assert await read_all(consumer) == [b"a"]
        assert len(cluster.nodes[0].fetched) >= 2


async def test_end_that_is_not_settled_is_asked_again() -> None:
    """OFFSET_NOT_AVAILABLE after an election (KIP-207) is waited out, not taken for an end."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"a")
        cluster.nodes[0].list_offsets_refusals.extend([ErrorCode.OFFSET_NOT_AVAILABLE] * 3)
        await consumer.assign([TOPIC])

        assert await read_all(consumer) == [b"a"]


async def test_stays_below_the_high_watermark() -> None:
    """stop_at_end ends at the HW, not at the LEO (M9)."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"a")
        write(cluster, b"b")
        cluster.log().hw = 1
        await consumer.assign([TOPIC])

        assert await read_all(consumer) == [b"a"]


async def test_wrong_partition_and_closed_consumer() -> None:
    """An unknown partition is rejected by name; a closed consumer reports that it is closed."""
    async with fake_cluster() as cluster:
        consumer = Consumer(cluster.bootstrap)
        with pytest.raises(ClientClosed):
            await consumer.fetch_batches(10)
        async with consumer:
            with pytest.raises(Refused, match="partition 5 of topic 't' must be 0 to 0"):
                await consumer.assign([(TOPIC, 5)])
            with pytest.raises(Refused, match="not assigned"):
                consumer.position(TOPIC, 0)
        with pytest.raises(ClientClosed):
            await anext(consumer)


@pytest.mark.parametrize("read_from", ["leader", "follower"])
async def test_deleted_topic_is_an_error(read_from: Literal["leader", "follower"]) -> None:
    """When the topic is deleted, fetched records are returned, then an error names the topic, in both ways to read."""
    async with fake_cluster(nodes=2) as cluster, Consumer(cluster.bootstrap, read_from=read_from) as consumer:
        write(cluster, b"a")
        await consumer.assign([TOPIC])
        first = await anext(consumer)
        waiting = asyncio.create_task(consumer.fetch_batches(5_000))
        await until(lambda: sum(len(node.fetched) for node in cluster.nodes) == 2)
        cluster.delete_topic()
        with pytest.raises(TopicDeleted, match="topic 't' was deleted"):
            await waiting
        with pytest.raises(TopicDeleted, match="topic 't' was deleted"):
            async with asyncio.timeout(5):
                await anext(consumer)

        assert first.value == b"a"


async def test_deleted_topic_without_a_position_is_an_error() -> None:
    """A topic that is deleted before a position in it was found is an error too, also after a seek."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        cluster.move_leader(None)
        await until(lambda: consumer._cluster.view.leader_of(cluster.tp()) is None)
        await consumer.assign([TOPIC])
        cluster.delete_topic()
        with pytest.raises(TopicDeleted, match="topic 't' was deleted"):
            await consumer.fetch_batches(5_000)
        consumer.seek_to_end()
        with pytest.raises(TopicDeleted, match="topic 't' was deleted"):
            await consumer.fetch_batches(5_000)


async def test_what_was_read_to_its_end_may_be_deleted() -> None:
    """With stop_at_end a topic that is deleted after all records were returned ends the iteration without an error."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"a")
        await consumer.assign([TOPIC])
        first = await anext(consumer)
        cluster.delete_topic()
        await until(lambda: consumer._cluster.view.topic(TOPIC) is None)

        assert first.value == b"a"
        assert await read_all(consumer) == []


async def test_partition_added_later_is_read_from_its_beginning() -> None:
    """A partition added to a topic that is assigned whole is read from its first record on."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"before")
        await consumer.assign([TOPIC], start="end")
        index = cluster.add_partition(leader=None)
        write(cluster, b"new", partition=index)
        cluster.move_leader(0, partition=index)
        (fetched,) = await consumer.fetch_batches(5_000)

        assert (fetched.partition, [record.value for record in fetched.records]) == (1, [b"new"])
        assert consumer.assignment() == {(TOPIC, 0), (TOPIC, 1)}


@pytest.mark.parametrize("given", [{"partitions": [(TOPIC, 0)]}, {"partitions": TOPIC, "follow_topic": False}, {}])
async def test_chosen_partitions_and_a_fixed_end_do_not_grow(given: dict[str, Any]) -> None:
    """No partition that is added later is read where partitions were assigned one by one, with `follow_topic=False`,
    and where reading stops at the end."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=not given) as consumer:
        await consumer.assign(**(given or {"partitions": TOPIC}))
        cluster.add_partition()
        await until(lambda: consumer._cluster.view.partition(cluster.tp(1)) is not None)

        assert consumer.assignment() == {(TOPIC, 0)}


async def test_a_partition_that_is_refused_keeps_no_other_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader refuses for good to say where it begins: calls raise that, and give the records of the others."""

    async def refusing(self: FakeNode, request: Any, context: Any) -> lpb.ListOffsetsResponse:
        answer = await listing(self, request, context)
        answer.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer

    listing = FakeNode.ListOffsets
    monkeypatch.setattr(FakeNode, "ListOffsets", refusing)
    async with fake_cluster(partitions=2) as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a", partition=1)
        await consumer.assign(TOPIC)
        records: list[ConsumerRecord[bytes, bytes]] = []
        refused = 0
        while not (records and refused):
            try:
                records += await consumer.poll(5_000)
            except Refused:
                refused += 1

        assert [record.value for record in records] == [b"a"]
