"""However a user mixes the ways to read, pauses and seeks: each record once, in order, from the position on."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster

from strandline.client import Consumer, sync
from strandline.records.codec import NewRecord, encode_batch

PARTITIONS = 3
STEPS = 60


def fill(cluster: FakeCluster, draw: random.Random) -> None:
    """Some batches of some records in every partition, each value its offset."""
    for partition in range(PARTITIONS):
        for _ in range(draw.randrange(1, 6)):
            first = cluster.log(partition).leo
            values = [b"%d" % offset for offset in range(first, first + draw.randrange(1, 8))]
            cluster.append(cluster.tp(partition), encode_batch([NewRecord(None, value, 1) for value in values]))


class Reader:
    """Takes random steps with a consumer, and knows what each must give."""

    def __init__(self, consumer: Any, cluster: FakeCluster, draw: random.Random) -> None:
        self.consumer = consumer
        self.draw = draw
        self.ends = [cluster.log(partition).leo for partition in range(PARTITIONS)]
        self.next = [0] * PARTITIONS
        self.paused: set[int] = set()

    @property
    def left(self) -> int:
        """How many records may be given now."""
        return sum(self.ends[one] - self.next[one] for one in range(PARTITIONS) if one not in self.paused)

    def give(self, partition: int, record: Any) -> None:
        """Check one record that was given."""
        assert partition not in self.paused
        assert record.offset == self.next[partition], f"partition {partition}"
        assert record.value == b"%d" % record.offset
        self.next[partition] += 1

    def step(self) -> tuple[str, list[Any]]:
        """What to do next."""
        partition = self.draw.randrange(PARTITIONS)
        kind = self.draw.choice(["poll", "poll", "next", "next", "next", "batches", "pause", "resume", "seek", "look"])
        if kind in ("poll", "next", "batches") and not self.left:
            kind = "seek"
        if kind == "poll":
            return kind, [self.draw.randrange(1, 9)]
        if kind == "seek":
            return kind, [partition, self.draw.randrange(self.ends[partition] + 1)]
        return kind, [partition]

    def changed(self, kind: str, partition: int, offset: int = 0) -> None:
        """A step that gives nothing was made."""
        if kind == "pause":
            self.paused.add(partition)
        elif kind == "resume":
            self.paused.discard(partition)
        elif kind == "seek":
            self.next[partition] = offset

    def do(self, kind: str, partition: int, offset: int = 0) -> None:
        """A step that does not wait."""
        if kind == "seek":
            self.consumer.seek(TOPIC, partition, offset)
        elif kind == "look":
            assert self.consumer.position(TOPIC, partition) in (self.next[partition], None)
        else:
            getattr(self.consumer, kind)((TOPIC, partition))
        self.changed(kind, partition, offset)


@pytest.mark.parametrize("seed", range(12))
async def test_in_a_loop(seed: int) -> None:
    """The asynchronous consumer."""
    draw = random.Random(seed)
    async with fake_cluster(partitions=PARTITIONS) as cluster, Consumer(cluster.bootstrap, max_wait_ms=10) as consumer:
        fill(cluster, draw)
        reader = Reader(consumer, cluster, draw)
        await consumer.assign(TOPIC)
        async with asyncio.timeout(30):
            for _ in range(STEPS):
                kind, arguments = reader.step()
                if kind == "poll":
                    found = await consumer.poll(10_000, max_records=arguments[0])
                    assert 0 < len(found) <= arguments[0]
                    for record in found:
                        reader.give(record.partition, record)
                elif kind == "next":
                    record = await anext(consumer)
                    reader.give(record.partition, record)
                elif kind == "batches":
                    for batch in await consumer.fetch_batches(10_000):
                        for one in batch.records:
                            reader.give(batch.partition, one)
                else:
                    reader.do(kind, *arguments)
            consumer.resume()
            reader.paused.clear()
            while reader.left:
                for record in await consumer.poll(10_000):
                    reader.give(record.partition, record)


@pytest.mark.parametrize("seed", range(100, 108))
async def test_without_a_loop(seed: int) -> None:
    """The blocking consumer, whose `for` takes records in another thread."""
    draw = random.Random(seed)

    def program() -> None:
        with sync.Consumer(cluster.bootstrap, max_wait_ms=10) as consumer:
            reader = Reader(consumer, cluster, draw)
            consumer.assign(TOPIC)
            for _ in range(STEPS):
                kind, arguments = reader.step()
                if kind == "poll":
                    found = consumer.poll(10_000, max_records=arguments[0])
                    assert 0 < len(found) <= arguments[0]
                    for record in found:
                        reader.give(record.partition, record)
                elif kind == "next":
                    record = next(consumer)
                    reader.give(record.partition, record)
                elif kind == "batches":
                    for batch in consumer.fetch_batches(10_000):
                        for one in batch.records:
                            reader.give(batch.partition, one)
                else:
                    reader.do(kind, *arguments)
            consumer.resume()
            reader.paused.clear()
            while reader.left:
                for record in consumer.poll(10_000):
                    reader.give(record.partition, record)

    async with fake_cluster(partitions=PARTITIONS) as cluster, asyncio.timeout(60):
        fill(cluster, draw)
        await asyncio.to_thread(program)


@pytest.mark.parametrize("way", ["poll", "fetch_batches", "iterate"])
async def test_the_position_stops_where_reading_does(way: str) -> None:
    """Reading that stops in the middle of a batch leaves the position there, and not behind the batch."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        for first in (0, 3):
            values = [b"%d" % number for number in range(first, first + 3)]
            cluster.append(cluster.tp(0), encode_batch([NewRecord(None, value, 1) for value in values]))
        await consumer.assign(TOPIC, end=4)
        given: list[bytes | None] = []
        while not consumer.is_finished:
            if way == "poll":
                given += [record.value for record in await consumer.poll()]
            elif way == "fetch_batches":
                given += [record.value for batch in await consumer.fetch_batches() for record in batch.records]
            else:
                given += [record.value async for record in consumer]
        position = consumer.position(TOPIC, 0)

    assert (given, position) == ([b"0", b"1", b"2", b"3"], 4)
