"""Ranges of a log with transactions, as a worker reads them: only committed records, and never a wait at a marker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster
from tests.client.test_reading_committed import A, B, end, fill, send, write

from strandline.records.codec import NewRecord, encode_batch
from strandline.v1 import partition_pb2
from strandline_analytics.topic.cluster import ask
from strandline_analytics.topic.errors import TopicFailed
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.pool import close_idle
from strandline_analytics.topic.ranges import OffsetRange
from strandline_analytics.topic.reading import read_range


async def _read(bootstrap: str, start: int, stop: int, **options: Any) -> list[tuple[int, bytes]]:
    """Offset and value of each row; a worker has a thread without a loop."""
    given = read_options({"bootstrap": bootstrap, "topic": TOPIC, **options}, streaming=False)

    def rows() -> list[tuple[int, bytes]]:
        try:
            batches = list(read_range(given, OffsetRange(TOPIC, 0, start, stop)))
        finally:
            close_idle()
        return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]

    async with asyncio.timeout(30):
        return await asyncio.to_thread(rows)


@pytest.mark.parametrize(
    ("start", "stop", "found"),
    [(0, 5, [(1, b"b1")]), (0, 1, []), (2, 5, []), (1, 3, [(1, b"b1")]), (3, 4, []), (5, 5, [])],
)
async def test_a_range_holds_what_is_committed_in_it(start: int, stop: int, found: list[tuple[int, bytes]]) -> None:
    """Aborted records and markers are left out; a range that ends with them ends, though nothing comes after it."""
    async with fake_cluster() as cluster:
        fill(cluster)

        assert await _read(cluster.bootstrap, start, stop) == found


async def test_any_time_that_a_log_can_hold_is_read() -> None:
    """A time beyond the year 9999 has no date in Spark: the record comes without one, its neighbours with theirs."""
    times = (0, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1)
    async with fake_cluster() as cluster:
        for timestamp_ms in times:
            write(cluster, bytearray(encode_batch([NewRecord(None, b"v", timestamp_ms)])))

        given = read_options({"bootstrap": cluster.bootstrap, "topic": TOPIC}, streaming=False)
        batches = await asyncio.to_thread(lambda: list(read_range(given, OffsetRange(TOPIC, 0, 0, 4))))
        close_idle()
    found = [time for batch in batches for time in batch.column("timestamp").cast("int64").to_pylist()]

    assert found == [0, 253_402_300_799_999_000, None, None]


async def test_what_lies_behind_the_range_is_not_read() -> None:
    """Also in the same answer."""
    async with fake_cluster() as cluster:
        for number in range(3):
            send(cluster, B, b"b%d" % number)
            end(cluster, B, commit=True)

        assert await _read(cluster.bootstrap, 0, 4) == [(0, b"b0"), (2, b"b1")]


async def test_a_range_that_does_not_come_is_an_error() -> None:
    """Offsets that an open transaction holds back are missing, and not committed to nothing."""
    async with fake_cluster() as cluster:
        send(cluster, A, b"a0")
        cluster.log(0).hw = 0
        with pytest.raises(TopicFailed, match="fetchTimeoutMs"):
            await _read(cluster.bootstrap, 0, 1, fetchTimeoutMs="300")


async def test_an_extent_ends_where_committed_records_do() -> None:
    """The end that is planned is the last stable offset."""
    async with fake_cluster() as cluster:
        fill(cluster)
        options = read_options({"bootstrap": cluster.bootstrap, "topic": TOPIC}, streaming=False)

        def found() -> Any:
            try:
                return ask(options.connection, options.selection)
            finally:
                close_idle()

        await asyncio.to_thread(found)
        assert cluster.nodes[0].list_offsets_levels == {partition_pb2.ISOLATION_LEVEL_READ_COMMITTED}
