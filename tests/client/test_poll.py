"""Records given in bounded lists, what a cursor keeps of an answer, and where a consumer reads."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import crc32c
import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster, until, write

from strandline.client import (
    Consumer,
    ConsumerRecord,
    DeserializationFailed,
    Interceptor,
    OffsetOutOfRange,
    TopicDeleted,
)
from strandline.client.cluster.view import ClusterView
from strandline.client.consume.cursor import Cursor, FetchAnswer
from strandline.client.consume.fetching import choose_replica
from strandline.client.errors import UnreadableBatch
from strandline.core.errors import Refused
from strandline.core.messages import Endpoint, MetadataImage
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.convert.subscription import update_of_image


async def test_a_poll_without_time_gives_what_is_buffered() -> None:
    """A time-out of 0 returns buffered records and does not wait."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        await consumer.assign(TOPIC)
        nothing = await consumer.poll(0)
        write(cluster, b"a")
        await until(lambda: consumer.stats().buffered_bytes > 0)

        assert nothing == []
        assert [record.value for record in await consumer.poll(0)] == [b"a"]


async def test_a_poll_must_ask_for_something() -> None:
    """`max_records` below 1 is rejected."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        with pytest.raises(ValueError, match="max_records 0 must be positive"):
            await consumer.poll(max_records=0)


async def test_a_poll_takes_from_several_partitions() -> None:
    """One poll has records of all partitions that have some, each partition's in order."""
    async with fake_cluster(partitions=2) as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a", b"b")
        write(cluster, b"c", partition=1)
        await consumer.assign(TOPIC)
        await until(lambda: all(part.buffered_bytes for part in consumer.stats().partitions.values()))
        records = await consumer.poll(0)

        assert sorted(records) == sorted(records, key=lambda one: (one.partition, one.offset))
        assert {(one.partition, one.offset) for one in records} == {(0, 0), (0, 1), (1, 0)}


async def test_the_three_ways_to_read_go_on_where_another_was() -> None:
    """Iteration, `poll` and `fetch_batches` share one position: each record comes once, whichever gives it."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, *(b"%d" % number for number in range(9)))
        await consumer.assign(TOPIC)
        one = await anext(consumer)
        two = await consumer.poll(5_000, max_records=2)
        three = await anext(consumer)
        (rest,) = await consumer.fetch_batches(5_000)

        assert [one.value, *(record.value for record in two), three.value] == [b"0", b"1", b"2", b"3"]
        assert [record.value for record in rest.records] == [b"4", b"5", b"6", b"7", b"8"]
        assert rest.epoch_starts == [(0, 1)]
        # Everything came out of one fetch.
        assert len(cluster.nodes[0].fetched) == 1


async def test_what_is_paused_is_not_given_and_stays_buffered() -> None:
    """A paused partition gives nothing, in any way to read, and goes on from its buffer when it is resumed."""
    async with fake_cluster(partitions=2) as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a", b"b", b"c")
        await consumer.assign(TOPIC)
        first = await anext(consumer)
        consumer.pause((TOPIC, 0))
        write(cluster, b"other", partition=1)
        other = await anext(consumer)
        write(cluster, b"more", partition=1)
        (more,) = await consumer.fetch_batches(5_000)
        nothing = (await consumer.poll(0), await consumer.fetch_batches(0))
        paused = consumer.paused()
        fetched = [one for one in cluster.nodes[0].fetched if one.partition == 0]
        consumer.resume((TOPIC, 0))

        assert (first.value, other.value, [record.value for record in more.records]) == (b"a", b"other", [b"more"])
        assert nothing == ([], [])
        assert paused == {(TOPIC, 0)}
        assert [record.value for record in await consumer.poll(0)] == [b"b", b"c"]
        # Nothing was fetched again, and nothing ahead while it was paused beyond the fetch under way.
        assert [one.fetch_offset for one in fetched] == [0, 3]


async def test_a_waiting_read_returns_what_is_resumed() -> None:
    """A `poll` that waits gets the records of a partition that is resumed meanwhile."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a")
        await consumer.assign(TOPIC)
        await until(lambda: consumer.stats().buffered_bytes > 0)
        consumer.pause()
        waiting = asyncio.create_task(consumer.poll(10_000))
        await until(lambda: bool(consumer._news._waiters))
        consumer.resume()

        assert [record.value for record in await waiting] == [b"a"]


async def test_nothing_more_is_fetched_for_what_is_paused() -> None:
    """The fetch under way is answered into the buffer; the next one waits for `resume`."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a")
        await consumer.assign(TOPIC)
        await until(lambda: len(cluster.nodes[0].fetched) == 2)
        consumer.pause()
        write(cluster, b"b")
        await until(lambda: len(consumer._cursor(TOPIC, 0).chunks) == 2)
        outstanding = consumer._cursor(TOPIC, 0).outstanding
        consumer.resume()

        assert outstanding is None
        assert [record.value for record in await consumer.poll(5_000)] == [b"a", b"b"]


async def test_a_paused_topic_that_is_deleted() -> None:
    """What was fetched stays withheld until `resume`, and the error comes behind it."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a")
        await consumer.assign(TOPIC)
        await until(lambda: consumer.stats().buffered_bytes > 0)
        consumer.pause()
        cluster.delete_topic()
        await until(lambda: consumer._cursor(TOPIC, 0).failure is not None)
        withheld = (await consumer.poll(0), await consumer.fetch_batches(0))
        consumer.resume()
        given = await consumer.poll(0)

        assert withheld == ([], [])
        assert [record.value for record in given] == [b"a"]
        with pytest.raises(TopicDeleted):
            await consumer.poll(5_000)


async def test_a_seek_and_an_error_pass_a_pause() -> None:
    """A paused partition may be moved; that its position is not in the log is raised although it is paused."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        write(cluster, b"a", b"b")
        await consumer.assign(TOPIC)
        await until(lambda: consumer.stats().buffered_bytes > 0)
        consumer.pause()
        consumer.seek(TOPIC, 0, 1)
        position = consumer.position(TOPIC, 0)
        consumer.resume()
        (record,) = await consumer.poll(5_000)
        consumer.seek(TOPIC, 0, 99)
        await until(lambda: consumer._cursor(TOPIC, 0).failure is not None)
        consumer.pause()

        assert (position, record.value) == (1, b"b")
        with pytest.raises(OffsetOutOfRange):
            await consumer.poll(5_000)


def read_by_poll(consumer: Consumer[Any, Any]) -> Callable[[], Any]:
    async def one() -> Any:
        return (await consumer.poll(5_000, max_records=1))[0]

    return one


def read_by_iteration(consumer: Consumer[Any, Any]) -> Callable[[], Any]:
    return lambda: anext(consumer)


@pytest.mark.parametrize("way", [read_by_poll, read_by_iteration])
async def test_deserializers_make_keys_and_values(way: Callable[[Consumer[Any, Any]], Callable[[], Any]]) -> None:
    """Keys and values are what the deserializers return; None is never deserialized."""
    async with (
        fake_cluster() as cluster,
        Consumer(cluster.bootstrap, key=lambda key: key.decode(), value=int) as consumer,
    ):
        write(cluster, b"1", None, key=b"k")
        write(cluster, b"2")
        await consumer.assign(TOPIC)
        read = way(consumer)
        records = [await read() for _ in range(3)]

        assert [(one.key, one.value) for one in records] == [("k", 1), ("k", None), (None, 2)]


@pytest.mark.parametrize("way", [read_by_poll, read_by_iteration])
async def test_a_record_that_cannot_be_deserialized(way: Callable[[Consumer[Any, Any]], Callable[[], Any]]) -> None:
    """It is raised with the raw record and its place, and the next call goes on behind it."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, value=int) as consumer:
        write(cluster, b"1", b"secret", b"3")
        await consumer.assign(TOPIC)
        read = way(consumer)
        first = await read()
        with pytest.raises(DeserializationFailed, match=r"t-0 at offset 1: the value .*ValueError") as caught:
            await read()
        position = consumer.position(TOPIC, 0)
        third = await read()

        assert (first.value, third.value) == (1, 3)
        assert (caught.value.record.value, caught.value.field) == (b"secret", "value")
        assert isinstance(caught.value.__cause__, ValueError)
        assert "secret" not in str(caught.value)
        assert position == 2


class _Odd(Interceptor):
    """Leaves even values out."""

    def on_records(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        return [record for record in records if record.value % 2]


class _Broken(Interceptor):
    """Damages its list, then fails."""

    def on_records(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        records.clear()
        raise LookupError("not today")


@pytest.mark.parametrize("way", [read_by_poll, read_by_iteration])
async def test_interceptors_see_deserialized_records(way: Callable[[Consumer[Any, Any]], Callable[[], Any]]) -> None:
    """What an interceptor leaves out is not given, and counts as given."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, value=int, interceptors=[_Odd()]) as consumer:
        write(cluster, b"0", b"1", b"2", b"3", b"4")
        await consumer.assign(TOPIC)
        read = way(consumer)

        assert [(await read()).value, (await read()).value] == [1, 3]
        assert await consumer.poll(100) == []
        assert consumer.position(TOPIC, 0) == 5


async def test_a_failing_interceptor_swallows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged, and the records are given as they were."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, interceptors=[_Broken()]) as consumer:
        write(cluster, b"1", b"2")
        await consumer.assign(TOPIC)
        with caplog.at_level(logging.ERROR, "strandline.client"):
            records = await consumer.poll(5_000)

        assert [record.value for record in records] == [b"1", b"2"]
        assert "on_records of _Broken failed" in caplog.text
        assert "not today" in caplog.text


def _batch(base_offset: int, *values: bytes, attributes: int = 0) -> bytes:
    """As a log holds it; with the bits of a codec in ``attributes`` over plain bytes it cannot be unpacked."""
    batch = bytearray(encode_batch([NewRecord(None, value, 5) for value in values]))
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    stamp(batch, base_offset, 3)
    return bytes(batch)


def _cursor(offset: int = 0) -> Cursor:
    cursor = Cursor("t", TopicPartition("id", 0))
    cursor.seek(offset=Offset(offset))
    return cursor


def _take(cursor: Cursor, payload: bytes) -> None:
    unknown: Any = None
    cursor.take(FetchAnswer(unknown, Offset(100), Offset(0), unknown, payload))


def _offsets(cursor: Cursor) -> list[int]:
    return [record.offset for record in cursor.pop_records().records]


@pytest.mark.parametrize(
    "payload",
    [
        _batch(0, b"a") + _batch(2, b"c"),
        _batch(0, b"a", b"b") + _batch(1, b"b"),
        _batch(1, b"b"),
        _batch(0, b"a") + _batch(1, b"b")[:-1] + b"?",
    ],
    ids=["a gap", "an overlap", "a later offset", "damaged bytes"],
)
def test_an_answer_that_is_not_dense_is_not_kept(payload: bytes) -> None:
    """P4: whole or not at all, so that the very offset is asked for again."""
    cursor = _cursor()
    with pytest.raises(Refused, match=r"^CORRUPT_MESSAGE"):
        _take(cursor, payload)

    assert (cursor.fetch_offset, cursor.has_records, cursor.buffered_bytes) == (0, False, 0)


def test_what_lies_before_the_offset_in_its_batch_is_not_given() -> None:
    """A fetch from inside a batch brings the batch whole; the next one goes on behind it."""
    cursor = _cursor(1)
    _take(cursor, _batch(0, b"a", b"b", b"c"))

    assert cursor.fetch_offset == 3
    assert _offsets(cursor) == [1, 2]


def test_nothing_of_before_a_seek_is_given_after_it() -> None:
    """Neither what was fetched nor what was unpacked, and an answer under way is known to be of before."""
    cursor = _cursor()
    _take(cursor, _batch(0, b"a", b"b"))
    cursor.unpack(cursor.pop_records(ConsumerRecord, cursor.name))
    _take(cursor, _batch(2, b"c"))
    generation = cursor.generation
    cursor.seek(offset=Offset(7))

    assert (cursor.has_records, cursor.buffered_bytes) == (False, 0)
    assert (cursor.position, cursor.fetch_offset) == (7, 7)
    assert cursor.generation != generation


def test_nothing_behind_a_batch_that_cannot_be_unpacked_is_given() -> None:
    """The records before it are; then its error is raised, until the user goes elsewhere."""
    cursor = _cursor()
    _take(cursor, _batch(0, b"a") + _batch(1, b"no zstd", attributes=4) + _batch(2, b"c"))
    _take(cursor, _batch(3, b"d"))
    given = _offsets(cursor)

    assert given == [0]
    assert isinstance(cursor.failure, UnreadableBatch)
    assert (cursor.has_records, cursor.buffered_bytes, cursor.fetch_offset) == (False, 0, 1)
    assert not cursor.may_fetch(0, 1 << 20)


RACKS = {0: "a", 1: "b", 2: "b", 3: "c"}


def image() -> MetadataImage:
    """Four nodes at ports 1000 to 1003 in three racks, all in sync; node 0 leads."""
    cluster = FakeCluster(4, 1)
    cluster.racks = dict(RACKS)
    for node in cluster.nodes:
        node.endpoint = Endpoint("n", 1000 + node.node_id)
    return cluster.image()


def chosen(of: MetadataImage, rack: str | None, *, draws: range = range(8)) -> set[int]:
    """The nodes that consumers with these draws read from."""
    view = ClusterView()
    view.apply(update_of_image(of))
    (topic,) = of.topics
    (partition,) = topic.partitions
    leader = view.leader_of(partition.tp)
    assert leader is not None
    return {choose_replica(view, partition, leader, rack=rack, draw=draw).port - 1000 for draw in draws}


def with_isr(*node_ids: int) -> MetadataImage:
    """The image with only these in sync."""
    whole = image()
    (topic,) = whole.topics
    (partition,) = topic.partitions
    changed = replace(partition, isr=tuple(NodeId(node_id) for node_id in node_ids))
    return replace(whole, topics=(replace(topic, partitions=(changed,)),))


def without(image_: MetadataImage, *node_ids: int) -> MetadataImage:
    """The image with these nodes fenced."""
    nodes = tuple(replace(node, fenced=node.node_id in node_ids) for node in image_.nodes)
    return replace(image_, nodes=nodes)


CHOICES = {
    "in the rack": (image(), "b", {1, 2}),
    "one in the rack": (image(), "c", {3}),
    "only the leader is in the rack": (image(), "a", {0}),
    "none in the rack": (image(), "elsewhere", {1, 2, 3}),
    "no rack": (image(), None, {1, 2, 3}),
    "in the rack and in sync": (with_isr(0, 2, 3), "b", {2}),
    "in sync goes before the rack": (with_isr(0, 3), "b", {3}),
    "no other in sync": (with_isr(0), "b", {1, 2}),
    "no other in sync, none in the rack": (with_isr(0), "elsewhere", {1, 2, 3}),
    "the rack's other one is gone": (without(image(), 1), "b", {2}),
    "only the leader lives": (without(image(), 1, 2, 3), "b", {0}),
}


@pytest.mark.parametrize(("of", "rack", "expected"), CHOICES.values(), ids=CHOICES)
def test_rack_first_then_spread(of: MetadataImage, rack: str | None, expected: set[int]) -> None:
    """An in-sync replica in the reader's rack goes first; readers are spread over all that are equally good."""
    assert chosen(of, rack) == expected


def test_a_reader_stays_with_its_choice() -> None:
    """The same draw chooses the same replica again."""
    assert all(len(chosen(image(), "b", draws=range(draw, draw + 1))) == 1 for draw in range(8))
