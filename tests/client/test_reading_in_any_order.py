"""However a user reads, each record comes once and in order, also from a log with transactions."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster, write
from tests.client.transactional_log import A, end, fill_committed, send

from strandline.client import Consumer, TopicPartition, sync
from strandline.client.consume.cursor import Cursor
from strandline.client.groups.committed_offsets import OffsetAndMetadata
from strandline.client.groups.committing import OlderAssignments, refusals
from strandline.core import types
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.types import Offset
from strandline.records.codec import NewRecord, encode_batch
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
            counted = self.consumer.stats().partitions[TopicPartition(TOPIC, partition)].position
            assert {self.consumer.position(TOPIC, partition), counted} <= {self.next[partition], None}
        else:
            getattr(self.consumer, kind)((TOPIC, partition))
        self.changed(kind, partition, offset)


@pytest.mark.parametrize(
    ("kind", "seed"), [*((Consumer, one) for one in range(12)), *((sync.Consumer, one) for one in range(100, 108))]
)
async def test_steps_in_any_order(kind: Any, seed: int) -> None:
    """Whatever a user does next, each record comes once and in order; the blocking consumer's `for` takes them in
    another thread."""
    draw = random.Random(seed)

    async def call(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return await (
            asyncio.to_thread(work, *given, **named) if kind is sync.Consumer else _now(work(*given, **named))
        )

    async with fake_cluster(partitions=PARTITIONS) as cluster, asyncio.timeout(60):
        fill(cluster, draw)
        consumer = kind(cluster.bootstrap, max_wait_ms=10)
        await call(consumer.start)
        reader = Reader(consumer, cluster, draw)
        await call(consumer.assign, TOPIC)
        for _ in range(STEPS):
            step, arguments = reader.step()
            if step == "poll":
                found = await call(consumer.poll, 10_000, max_records=arguments[0])
                assert 0 < len(found) <= arguments[0]
                for record in found:
                    reader.give(record.partition, record)
            elif step == "next":
                record = await call(next if kind is sync.Consumer else anext, consumer)
                reader.give(record.partition, record)
            elif step == "batches":
                for batch in await call(consumer.fetch_batches, 10_000):
                    for one in batch.records:
                        reader.give(batch.partition, one)
            else:
                await call(reader.do, step, *arguments)
        await call(consumer.resume)
        reader.paused.clear()
        while reader.left:
            for record in await call(consumer.poll, 10_000):
                reader.give(record.partition, record)
        await call(consumer.close)


async def _now(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


@pytest.mark.parametrize("way", ["poll", "fetch_batches", "iterate"])
async def test_the_position_stops_where_reading_does(way: str) -> None:
    """Reading that stops in the middle of a batch leaves the position there, and not behind the batch."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        write(cluster, b"0", b"1", b"2")
        write(cluster, b"3", b"4", b"5")
        await consumer.assign(TOPIC, end=4)

        assert await given(consumer, way) == [b"0", b"1", b"2", b"3"]
        assert consumer.position(TOPIC, 0) == 4


async def given(consumer: Consumer, way: str) -> list[bytes | None]:
    """Every value up to the end."""
    values: list[bytes | None] = []
    while not consumer.is_finished:
        if way == "poll":
            values += [record.value for record in await consumer.poll()]
        elif way == "fetch_batches":
            for batch in await consumer.fetch_batches():
                assert batch.end > batch.records[-1].offset
                values += [record.value for record in batch.records]
        else:
            values += [record.value async for record in consumer]
    return values


async def test_what_is_committed_is_asked_for() -> None:
    """X14: without a setting fetches and the end of a reading are of committed records, or a reading up to the end
    would wait for an open transaction; "read_uncommitted" asks for the others."""
    asked = []
    for isolation in ({}, {"isolation": "read_uncommitted"}):
        async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True, **isolation) as consumer:  # type: ignore[arg-type]
            write(cluster, b"a")
            await consumer.assign([(TOPIC, 0)])
            assert await given(consumer, "poll") == [b"a"]
            asked += [cluster.nodes[0].isolation_levels, cluster.nodes[0].list_offsets_levels]

    committed, uncommitted = partition_pb2.ISOLATION_LEVEL_READ_COMMITTED, partition_pb2.ISOLATION_LEVEL_UNSPECIFIED
    assert asked == [{committed}, {committed}, {uncommitted}, {uncommitted}]


@pytest.mark.parametrize("way", ["poll", "fetch_batches", "iterate"])
async def test_aborted_records_are_not_given(way: str) -> None:
    """X14, KAFKA-5443: by no way to read, and the position is behind what was left out, up to the end of the log."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap, stop_at_end=True) as consumer:
        fill_committed(cluster)
        await consumer.assign([(TOPIC, 0)])

        assert await given(consumer, way) == [b"b1"]
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


ZERO = TopicPartition("waves", 0)
KEY = types.TopicPartition("id", 0)


class _Reader:
    """A consumer of one partition, as far as it is needed here."""

    def __init__(self) -> None:
        fetching: Any = SimpleNamespace(cursors={})
        self._cursors: dict[types.TopicPartition, Cursor] = fetching.cursors
        self.older = OlderAssignments(fetching)
        self.assigned(0)

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
    cursor = reader.lost()
    cursor.position = Offset(3)
    reader.older.gave(cursor, Offset(0))
    reader.assigned(0)

    assert reader.refused == [1, 2, 3]


def test_a_refusal_is_definite() -> None:
    """It names the partition and the offset, and what to do; nothing was asked of the coordinator."""
    reader = _Reader()
    reader.given(2)
    reader.lost()
    (refusal,) = reader.older.refusals({ZERO: OffsetAndMetadata(Offset(2))}).values()

    assert (refusal.code, refusal.outcome) == (ErrorCode.STALE_MEMBER_EPOCH, Outcome.NOT_APPENDED)
    assert "below offset 2 of waves-0" in refusal.message
    assert "poll again" in refusal.message
