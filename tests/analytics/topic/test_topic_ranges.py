"""The ranges of a topic that the source plans, when a micro-batch begins, and what a worker reads of a range."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.client.fake_cluster import TOPIC, fake_cluster
from tests.client.transactional_log import A, B, end, fill_committed, send, write

from strandline.client import TopicPartition
from strandline.records.codec import NewRecord, encode_batch
from strandline.v1 import partition_pb2
from strandline_analytics.topic.cluster import ask
from strandline_analytics.topic.connection import close_idle
from strandline_analytics.topic.given import TopicFailed
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.ranges import Extent, OffsetRange, batch_ranges, next_end, split, stream_ranges
from strandline_analytics.topic.reading import read_range
from strandline_analytics.topic.stream_source import Pacing
from strandline_analytics.topic.where import Offsets


def logs_of(*extents: Extent) -> dict[TopicPartition, Extent]:
    """The partitions of one topic."""
    return {TopicPartition("t", partition): extent for partition, extent in enumerate(extents)}


LOGS = logs_of(Extent(0, 10), Extent(5, 8), Extent(3, 3))


def at(offsets: Mapping[int, int]) -> Offsets:
    """Offsets of the partitions of one topic."""
    return {TopicPartition("t", partition): offset for partition, offset in offsets.items()}


def spans(*found: tuple[int, int, int]) -> list[OffsetRange]:
    """Ranges of the partitions of one topic."""
    return [OffsetRange("t", *one) for one in found]


def test_a_batch_reads_what_is_committed() -> None:
    """A batch reads from log start to HW; an empty partition has no range."""
    ranges = batch_ranges("earliest", "latest", LOGS, fail_on_data_loss=True)

    assert ranges == spans((0, 0, 10), (1, 5, 8))


def test_offsets_may_be_given_for_each_partition() -> None:
    """-2 and -1 mean the ends of the log, other numbers are offsets."""
    ranges = batch_ranges(at({0: 4, 1: -2, 2: -2}), at({0: 6, 1: -1, 2: -1}), LOGS, fail_on_data_loss=True)

    assert ranges == spans((0, 4, 6), (1, 5, 8))


@pytest.mark.parametrize(
    ("starting", "ending", "reported"),
    [
        (at({0: 1}), "latest", "startingOffsets: it names partitions t-0, read are t-0, t-1, t-2; give a number for"),
        (
            at({0: 1, 1: 4, 2: 3}),
            "latest",
            "startingOffsets: partition t-1 begins at 5, and 4 was asked for: retention",
        ),
        (
            "earliest",
            at({0: 11, 1: 8, 2: 3}),
            "endingOffsets: partition t-0 is committed up to 10, and 11 was asked for",
        ),
        (
            at({0: 7, 1: 5, 2: 3}),
            at({0: 6, 1: 8, 2: 3}),
            "startingOffsets: partition t-0 would be read from 7 to before 6",
        ),
    ],
)
def test_offsets_outside_of_the_log_are_refused(starting: object, ending: object, reported: str) -> None:
    """Nothing is read that does not exist, and nothing is left out without an error."""
    with pytest.raises(TopicFailed, match=reported):
        batch_ranges(starting, ending, LOGS, fail_on_data_loss=True)  # type: ignore[arg-type]


def test_lost_records_are_skipped_if_asked() -> None:
    """With failOnDataLoss false reading begins at the first remaining record."""
    ranges = batch_ranges(at({0: 10, 1: 0, 2: 0}), "latest", LOGS, fail_on_data_loss=False)

    assert ranges == spans((1, 5, 8))


def test_a_new_partition_is_read_from_its_beginning() -> None:
    """A partition that the previous offset did not name is not skipped."""
    ranges = stream_ranges(at({0: 9}), at({0: 10, 1: 8}), LOGS, fail_on_data_loss=True)

    assert ranges == spans((0, 9, 10), (1, 5, 8))


def test_a_limit_is_shared_out() -> None:
    """A limit is divided in proportion to the waiting records, with at least one record for each that has some."""
    logs = logs_of(Extent(0, 1_000), Extent(0, 10), Extent(0, 0))

    assert next_end({}, logs, 101, fail_on_data_loss=True) == at({0: 100, 1: 1, 2: 0})
    assert next_end({}, logs, None, fail_on_data_loss=True) == at({0: 1_000, 1: 10, 2: 0})


def test_a_target_is_not_passed() -> None:
    """A run over the existing records reads neither later records nor later partitions, and never goes back."""
    logs = logs_of(*[Extent(0, 20)] * 3)

    end = next_end(at({0: 3, 1: 15}), logs, None, target=at({0: 10, 1: 12}), fail_on_data_loss=True)

    assert end == at({0: 10, 1: 15})


def test_a_log_that_ends_before_what_was_read_is_loss() -> None:
    """An unclean election truncated it: reported, or with failOnDataLoss false waited out at the same offset."""
    with pytest.raises(TopicFailed, match="failOnDataLoss: partition t-0 ends at 10, but was read up to 12"):
        next_end(at({0: 12}), logs_of(Extent(0, 10)), None, fail_on_data_loss=True)

    assert next_end(at({0: 12}), logs_of(Extent(0, 10)), None, fail_on_data_loss=False) == at({0: 12})


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), min_size=1, max_size=5),
    st.integers(1, 20),
)
def test_pieces_are_the_whole(sizes: list[tuple[int, int]], pieces: int) -> None:
    """For any split of a batch, the pieces of a partition are adjacent and cover its range."""
    ranges = [OffsetRange("t", p, start, start + size) for p, (start, size) in enumerate(sizes)]
    found = split(ranges, pieces)

    assert [(one.partition, offset) for one in found for offset in range(one.start, one.end)] == [
        (one.partition, offset) for one in ranges for offset in range(one.start, one.end)
    ]
    assert len(found) >= min(pieces, sum(one.size for one in ranges))


def test_a_piece_has_at_most_so_many_records() -> None:
    """maxRecordsPerPartition cuts ranges further than minPartitions needs."""
    pieces = split(spans((0, 0, 10), (1, 5, 8)), 2, max_records=4)

    assert pieces == spans((0, 0, 4), (0, 4, 8), (0, 8, 10), (1, 5, 8))


# When a micro-batch begins that has a least number of records.


def pacing(**options: str) -> Pacing:
    """Of a query with these options."""
    return Pacing(read_options({"bootstrap": "127.0.0.1:1", "topic": "t"} | options, streaming=True))


def test_records_wait_until_there_are_enough() -> None:
    """After the first micro-batch, fewer than the least number of records wait."""
    query = pacing(minOffsetsPerTrigger="10")

    assert not query.waits(1, 0.0)
    assert query.waits(9, 1.0)
    assert not query.waits(10, 2.0)


def test_records_wait_no_longer_than_the_delay() -> None:
    """The delay counts from the last micro-batch that began."""
    query = pacing(minOffsetsPerTrigger="10", maxTriggerDelay="2s")
    query.waits(1, 0.0)

    assert query.waits(1, 1_999.0)
    assert not query.waits(1, 2_000.0)
    assert query.waits(1, 3_999.0)


def test_without_a_least_number_nothing_waits() -> None:
    """A micro-batch begins for one record."""
    query = pacing()
    query.waits(1, 0.0)

    assert not query.waits(1, 0.0)


# Ranges of a log with transactions, as a worker reads them: only committed records, and never a wait at a marker.


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
        fill_committed(cluster)

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
        fill_committed(cluster)
        options = read_options({"bootstrap": cluster.bootstrap, "topic": TOPIC}, streaming=False)

        def found() -> Any:
            try:
                return ask(options.connection, options.selection)
            finally:
                close_idle()

        await asyncio.to_thread(found)
        assert cluster.nodes[0].list_offsets_levels == {partition_pb2.ISOLATION_LEVEL_READ_COMMITTED}
