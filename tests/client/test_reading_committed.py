"""A consumer over a log with transactions: no marker, nothing aborted, and the position behind what is left out."""

from __future__ import annotations

import crc32c
import pytest
from tests.client.fake_cluster import TOPIC, FakeCluster, fake_cluster

from strandline.client import Consumer
from strandline.core.types import Marker
from strandline.records.batch import TRANSACTIONAL_BIT, parse_header, stamp
from strandline.records.codec import NewRecord, encode_batch, encode_marker
from strandline.v1 import partition_pb2

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


def fill(cluster: FakeCluster) -> None:
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
        fill(cluster)
        await consumer.assign([(TOPIC, 0)])
        given = [(record.offset, record.value) async for record in consumer]

        assert given == [(1, b"b1")]
        assert consumer.position(TOPIC, 0) == 5


@pytest.mark.parametrize("way", ["poll", "batches"])
async def test_the_position_is_behind_what_was_left_out(way: str) -> None:
    """KAFKA-5443: a lag of 0 and a commit mean the end of what was read, whichever way the records are given."""
    async with fake_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        fill(cluster)
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
