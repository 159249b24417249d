"""The fakes behave as the real clients do: each test runs on both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio
from tests.client.fake_cluster import TOPIC, Refuse, fake_cluster

from strandline import client
from strandline.client.fakes import FakeConsumer, FakeProducer, FakeTopics
from strandline.client.produce.routes import partition_for_key
from strandline.core.errors import ErrorCode

PARTITIONS = 3


class World:
    """Producers and consumers of one topic, and how the next batch is refused."""

    def __init__(
        self,
        producer: Callable[..., client.Producer[Any, Any]],
        consumer: Callable[..., client.Consumer[Any, Any]],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        self.producer = producer
        self.consumer = consumer
        self.refuse = refuse

    async def write(self, *values: bytes, partition: int = 0) -> None:
        async with self.producer() as producer:
            for number, value in enumerate(values):
                await producer.send(TOPIC, value, partition=partition, timestamp_ms=1_000 + number)

    async def all_of(self, **settings: Any) -> list[bytes | None]:
        async with self.consumer(stop_at_end=True, **settings) as consumer:
            await consumer.assign(TOPIC)
            return [record.value async for record in consumer]


@pytest_asyncio.fixture(params=["real", "fake"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "fake":
        topics = FakeTopics({TOPIC: PARTITIONS})
        yield World(
            lambda **settings: FakeProducer(topics, **settings),
            lambda **settings: FakeConsumer(topics, **settings),
            topics.refuse,
        )
        return
    async with fake_cluster(partitions=PARTITIONS) as cluster:
        cluster.groups.has_topic = True

        yield World(
            lambda **settings: client.Producer(cluster.bootstrap, **{"max_block_ms": 100, **settings}),
            lambda **settings: client.Consumer(cluster.bootstrap, **settings),
            lambda code: cluster.nodes[0].next_produce.append(Refuse(code)),
        )


async def test_what_is_sent_is_read(world: World) -> None:
    """By every way of sending: keys, headers, partition and time come back, with the offset of the acknowledgement."""
    async with world.producer() as producer:
        sent = await producer.send_and_wait(TOPIC, b"a", b"k", partition=1, timestamp_ms=7, headers=[("h", b"1")])
        assert sent == client.RecordMetadata(TOPIC, 1, 0, 7)  # type: ignore[arg-type]
        delivery = await producer.send(TOPIC, b"b", partition=1)
        assert (await delivery).offset == 1
        assert delivery.done
        assert await producer.ready(TOPIC) == PARTITIONS
        producer.send_nowait(TOPIC, b"c", partition=1)
        many = await producer.send_many(TOPIC, [(b"k", b"d"), (b"k", b"e")])
        await producer.send_batch(TOPIC, 2, [client.NewRecord(None, b"f", 1), client.NewRecord(None, b"g", 2)])
        await producer.flush()
        placed = [one.result() for one in many]
    async with world.consumer(stop_at_end=True) as consumer:
        assert await consumer.assign(TOPIC) == {client.TopicPartition(TOPIC, index) for index in range(PARTITIONS)}
        records = [record async for record in consumer]
        assert consumer.is_finished

    assert {record.value for record in records} == {b"a", b"b", b"c", b"d", b"e", b"f", b"g"}
    first = next(record for record in records if record.value == b"a")
    assert (first.key, first.timestamp_ms, list(first.headers)) == (b"k", 7, [("h", b"1")])
    assert [one.partition for one in placed] == [partition_for_key(b"k", PARTITIONS)] * 2
    assert [one.value for one in records if one.partition == 2][-2:] == [b"f", b"g"]


async def test_serializers_callbacks_and_partitioners(world: World) -> None:
    """Functions of the user are called alike, and what one raises is the same error."""
    ended: list[object] = []
    outcomes: list[client.BatchOutcome] = []

    def to_json(value: object) -> bytes:
        return json.dumps(value).encode()

    async with world.producer(
        key=str.encode, value=to_json, partitioner=lambda topic, key, count: 2, on_delivery=outcomes.append
    ) as producer:
        await producer.send(TOPIC, {"a": 1}, "k", on_done=lambda at, failed: ended.append(at and at.partition), tag=5)
        await producer.send(TOPIC, None, "k")
        with pytest.raises(client.SerializationFailed):
            await producer.send(TOPIC, object())
    values = []
    async with world.consumer(value=json.loads, stop_at_end=True) as consumer:
        await consumer.assign(TOPIC)
        values = [record.value for record in await consumer.poll()]

    assert values == [{"a": 1}, None]
    assert ended == [2]
    assert [(one.partition, one.record_count, list(one.tags)) for one in outcomes] == [(2, 2, [5, None])]


async def test_errors_of_a_producer(world: World) -> None:
    """A batch that is refused fails its deliveries; an unknown topic and partition are refused before."""
    async with world.producer() as producer:
        await producer.ready(TOPIC)
        world.refuse(ErrorCode.INVALID_RECORD)
        with pytest.raises(client.SendFailed) as failed:
            await producer.send_and_wait(TOPIC, b"x")
        with pytest.raises(client.Refused) as unknown:
            await producer.send("missing", b"x")
        with pytest.raises(client.Refused) as beyond:
            await producer.send(TOPIC, b"x", partition=PARTITIONS)
        await producer.send_and_wait(TOPIC, b"after")
        stats = producer.stats()

    assert (failed.value.refusal.code, failed.value.is_definite) == (ErrorCode.INVALID_RECORD, True)
    assert unknown.value.refusal.code is beyond.value.refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (stats.records_acknowledged, stats.records_failed) == (1, 1)
    assert await world.all_of() == [b"after"]


async def test_positions(world: World) -> None:
    """Seeking, pausing and reading on follow one position; what comes later wakes a consumer that waits."""
    await world.write(*(b"%d" % number for number in range(5)))
    async with world.consumer() as consumer:
        await consumer.assign([(TOPIC, 0)], start=3)
        assert [record.value for record in await consumer.poll()] == [b"3", b"4"]
        assert consumer.position(TOPIC, 0) == 5
        consumer.seek(TOPIC, 0, 1)
        assert [record.value for record in await consumer.poll(max_records=2)] == [b"1", b"2"]
        # As `time.time() * 1_000` is.
        consumer.seek_to_time(1_004.0)  # type: ignore[arg-type]
        assert (await anext(consumer)).value == b"4"
        consumer.seek_to_time(9_999)
        assert await consumer.poll(50) == []
        consumer.seek_to_beginning()
        consumer.pause()
        assert await consumer.poll(50) == []
        consumer.resume()
        (fetched,) = await consumer.fetch_batches()
        assert (len(fetched.records), fetched.high_watermark) == (5, 5)
        consumer.seek_to_end()
        waiting = asyncio.ensure_future(consumer.poll())
        await asyncio.sleep(0)
        await world.write(b"later")
        assert [record.value for record in await waiting] == [b"later"]
        consumer.seek(TOPIC, 0, 99)
        with pytest.raises(client.OffsetOutOfRange) as lost:
            await consumer.poll(5_000)
        assert lost.value.offset == 99


async def test_a_record_that_cannot_be_read_is_passed_over(world: World) -> None:
    """Those before it are given, the next call raises, and the one after that goes on behind it."""
    await world.write(b"1", b"no json", b"3")
    given: list[object] = []
    async with world.consumer(value=json.loads, stop_at_end=True) as consumer:
        await consumer.assign(TOPIC)
        while not consumer.is_finished:
            try:
                given += [record.value for record in await consumer.poll()]
            except client.DeserializationFailed as failure:
                given.append(failure.record.offset)

    assert given == [1, 1, 3]


class Heard(client.RebalanceListener):
    def __init__(self) -> None:
        self.partitions: list[client.TopicPartition] = []

    async def on_assigned(self, partitions: Sequence[client.TopicPartition]) -> None:
        self.partitions += partitions


@pytest.mark.parametrize("by", [{"topics": TOPIC}, {"pattern": TOPIC + ".*"}])
async def test_a_member_goes_on_where_its_group_has_committed(world: World, by: dict[str, str]) -> None:
    """What was worked on is committed, by itself or by hand, and a later member begins behind it."""
    await world.write(*(b"%d" % number for number in range(6)))
    heard = Heard()
    async with world.consumer(group="g") as consumer:
        await consumer.subscribe(**by, listener=heard)  # type: ignore[arg-type]
        assert len(await consumer.poll(max_records=2)) == 2
        assert len(await consumer.poll(max_records=1)) == 1
    async with world.consumer(group="g", auto_commit=False) as consumer:
        await consumer.subscribe(**by)  # type: ignore[arg-type]
        records = await consumer.poll(max_records=2)
        await consumer.commit(records)
        committed = await consumer.committed((TOPIC, 0), (TOPIC, 1))
    async with world.consumer(group="g", stop_at_end=True) as consumer:
        await consumer.assign(TOPIC)
        rest = [record.value async for record in consumer]

    assert [record.value for record in records] == [b"2", b"3"]
    assert [one and one.offset for one in committed.values()] == [4, None]
    assert rest == [b"4", b"5"]
    assert sorted(heard.partitions) == [client.TopicPartition(TOPIC, index) for index in range(PARTITIONS)]


async def test_what_was_sent_can_be_looked_at() -> None:
    """A test of a program that produces asks the topics for the records."""
    topics = FakeTopics({"orders": 2})
    async with FakeProducer[str, str](topics, key=str.encode, value=str.encode) as producer:
        await producer.send("orders", "one", "k", partition=1)

    (record,) = topics.records("orders")
    assert (record.partition, record.offset, record.key, record.value) == (1, 0, b"k", b"one")
