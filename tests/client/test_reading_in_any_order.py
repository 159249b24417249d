"""However a user reads, each record comes once and in order, also from a log with transactions."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import crc32c
import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster

from strandline.client import Consumer, TopicPartition, sync
from strandline.client.consume.cursor import Cursor
from strandline.client.groups.committed_offsets import OffsetAndMetadata
from strandline.client.groups.committing import OlderAssignments, refusals
from strandline.core import types
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.types import Marker, Offset
from strandline.records.batch import TRANSACTIONAL_BIT, parse_header, stamp
from strandline.records.codec import NewRecord, encode_batch, encode_marker
from strandline.v1 import partition_pb2

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


# A consumer over a log with transactions: no marker, nothing aborted, and the position behind what is left out.


A, B = 7, 8


def send(cluster: FakeCluster, producer: int, *values: bytes) -> None:
    """A batch of a transaction."""
    batch = bytearray(
        encode_batch([NewRecord(None, v, 1) for v in values], producer_id=producer, producer_epoch=0, base_sequence=0)
    )
    batch[22] |= TRANSACTIONAL_BIT
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    write(cluster, batch)


def end(cluster: FakeCluster, producer: int, *, commit: bool) -> None:
    """The marker of a transaction."""
    marker = encode_marker(Marker(commit, 1), producer_id=producer, producer_epoch=1, timestamp_ms=1)
    write(cluster, bytearray(marker.view))


def write(cluster: FakeCluster, batch: bytearray) -> None:
    """A batch at the end of the only partition."""
    log = cluster.log(0)
    stamp(batch, log.leo, 1)
    log.batches.append(bytes(batch))
    log.leo += parse_header(batch).record_count
    log.wake()


def fill_committed(cluster: FakeCluster) -> None:
    """B commits what it sent at 1, A aborts what it sent at 0 and 2; the log ends with A's marker at 4."""
    send(cluster, A, b"a0")
    send(cluster, B, b"b1")
    send(cluster, A, b"a2")
    end(cluster, B, commit=True)
    end(cluster, A, commit=False)
    cluster.log(0).aborted = [(A, 0)]


async def test_aborted_records_are_not_given() -> None:
    """X14: by iteration up to the end, which lies behind a marker; the reading ends there."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        fill_committed(cluster)
        await consumer.assign([(TOPIC, 0)])
        given = [(record.offset, record.value) async for record in consumer]

        assert given == [(1, b"b1")]
        assert consumer.position(TOPIC, 0) == 5


@pytest.mark.parametrize("way", ["poll", "batches"])
async def test_the_position_is_behind_what_was_left_out(way: str) -> None:
    """KAFKA-5443: a lag of 0 and a commit mean the end of what was read, whichever way the records are given."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        fill_committed(cluster)
        await consumer.assign([(TOPIC, 0)])
        if way == "poll":
            values = [record.value for record in await consumer.poll(5_000)]
        else:
            (fetched,) = await consumer.fetch_batches(5_000)
            values = [record.value for record in fetched.records]
            assert fetched.end == 5

        assert values == [b"b1"]
        assert consumer.position(TOPIC, 0) == 5


async def test_a_log_of_nothing_but_aborted_records_ends_a_reading() -> None:
    """KAFKA-5443's kind: nothing is given, and the consumer does not ask for the same batches for ever."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        send(cluster, A, b"a0", b"a1")
        end(cluster, A, commit=False)
        cluster.log(0).aborted = [(A, 0)]
        await consumer.assign([(TOPIC, 0)])

        assert [record async for record in consumer] == []
        assert consumer.position(TOPIC, 0) == 3


async def test_the_end_of_committed_records_is_asked_for() -> None:
    """X14: with stop_at_end the end is the last stable offset, or the reading would wait for an open transaction."""
    asked = []
    for isolation in ({}, {"isolation": "read_uncommitted"}):
        async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True, **isolation) as consumer:  # type: ignore[arg-type]
            await consumer.assign([(TOPIC, 0)])
            assert [record async for record in consumer] == []
            asked.append(cluster.nodes[0].list_offsets_levels)

    assert asked == [{partition_pb2.ISOLATION_LEVEL_READ_COMMITTED}, {partition_pb2.ISOLATION_LEVEL_UNSPECIFIED}]


# Which positions rest on what was given before a partition was lost.


ZERO = TopicPartition("waves", 0)
KEY = types.TopicPartition("id", 0)


class _Reader:
    """A consumer of one partition, as far as it is needed here."""

    def __init__(self) -> None:
        fetching: Any = SimpleNamespace(cursors={})
        self._cursors: dict[types.TopicPartition, Cursor] = fetching.cursors
        self.older = OlderAssignments(fetching)

    def assigned(self, position: int) -> None:
        self._cursors[KEY] = Cursor("waves", KEY, seek_time=None, position=Offset(position))

    def given(self, until: int) -> None:
        cursor = self._cursors[KEY]
        assert cursor.position is not None
        self.older.gave(cursor, cursor.position)
        cursor.position = Offset(until)

    def sought(self, position: int) -> None:
        self.older.moved(self._cursors[KEY])
        self._cursors[KEY].seek(offset=Offset(position))

    def lost(self, committed: int | None = None) -> Cursor:
        cursor = self._cursors.pop(KEY)
        self.older.taken_away(cursor, None if committed is None else Offset(committed))
        return cursor

    @property
    def refused(self) -> list[int]:
        """The positions up to 12 that are refused outside of a transaction."""
        return [at for at in range(13) if self.older.refusals({ZERO: OffsetAndMetadata(Offset(at))})]

    @property
    def refused_in_a_transaction(self) -> list[int]:
        superseded = self.older.superseded()
        return [at for at in range(13) if refusals({ZERO: OffsetAndMetadata(Offset(at))}, superseded)]


def test_what_is_given_again_may_be_committed() -> None:
    """Below where reading began again another member has committed; above, the records are still to come."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(8)
    reader.lost()
    assert reader.refused == reader.refused_in_a_transaction == [1, 2, 3, 4, 5, 6, 7, 8]
    reader.assigned(3)
    reader.given(5)

    assert reader.refused_in_a_transaction == [1, 2, 3, 6, 7, 8]
    reader.given(11)
    assert reader.refused_in_a_transaction == [1, 2, 3]


def test_where_reading_stands_may_be_committed_again_but_not_with_outputs() -> None:
    """It moves nothing; the outputs of the record below it are another member's, unless this one had committed it."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(4)
    reader.lost()
    reader.assigned(4)
    assert (reader.refused, reader.refused_in_a_transaction) == ([1, 2, 3], [1, 2, 3, 4])
    reader.given(6)
    reader.lost(committed=6)
    reader.assigned(6)

    assert reader.refused_in_a_transaction == [1, 2, 3, 4, 5]


def test_a_seek_changes_nothing_of_what_was_given() -> None:
    """What was given before a seek was lost with the rest, and what was given again before one stays so."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(4)
    reader.sought(2)
    reader.lost()
    assert reader.refused == [1, 2, 3, 4]
    reader.assigned(0)
    reader.given(2)
    reader.sought(9)

    assert reader.refused == [3, 4]


def test_what_a_blocking_consumer_reports_after_the_loss_was_given_before_it() -> None:
    """Its position follows with its next call, when the partition may be away, and back."""
    reader = _Reader()
    reader.assigned(0)
    cursor = reader.lost()
    cursor.position = Offset(3)
    reader.older.gave(cursor, Offset(0))
    reader.assigned(0)

    assert reader.refused == [1, 2, 3]


def test_a_refusal_is_definite() -> None:
    """It names the partition and the offset, and what to do; nothing was asked of the coordinator."""
    reader = _Reader()
    reader.assigned(0)
    reader.given(2)
    reader.lost()
    (refusal,) = reader.older.refusals({ZERO: OffsetAndMetadata(Offset(2))}).values()

    assert (refusal.code, refusal.outcome) == (ErrorCode.STALE_MEMBER_EPOCH, Outcome.NOT_APPENDED)
    assert "below offset 2 of waves-0" in refusal.message
    assert "poll again" in refusal.message
