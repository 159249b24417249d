"""Computes the offset ranges to read from each partition, their pieces, and the size of a micro-batch.

Invariant: ranges are within what a consumer may see, [log start, HW); pieces of a partition are adjacent and together
make up the whole range; a stream's end never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from strandline.client import TopicPartition
from strandline_analytics.topic.given import TopicFailed
from strandline_analytics.topic.options import TopicOptions
from strandline_analytics.topic.where import EARLIEST, LATEST, Offsets, Settled, check_partitions


@dataclass(frozen=True, slots=True)
class Extent:
    """The readable offsets of one partition: from ``start`` to before ``end``, its HW."""

    start: int
    end: int


Extents = Mapping[TopicPartition, Extent]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` to before ``end`` of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets, which is that of records unless transactions left offsets without any."""
        return self.end - self.start


def resolve(option: str, where: Settled, extents: Extents) -> dict[TopicPartition, int]:
    """The actual offset for every partition.

    Raises:
        TopicFailed: offsets are not given for exactly the existing partitions.
    """
    if isinstance(where, str):
        return {tp: extent.start if where == "earliest" else extent.end for tp, extent in extents.items()}
    check_partitions(option, where, extents)
    meant = {EARLIEST: lambda e: e.start, LATEST: lambda e: e.end}
    return {tp: meant[offset](extents[tp]) if offset in meant else offset for tp, offset in sorted(where.items())}


def batch_ranges(starting: Settled, ending: Settled, extents: Extents, *, fail_on_data_loss: bool) -> list[OffsetRange]:
    """The ranges that a batch reads; partitions with nothing to read are left out.

    Raises:
        TopicFailed: offsets are outside of the log, or the end is before the start.
    """
    starts = resolve("startingOffsets", starting, extents)
    ends = resolve("endingOffsets", ending, extents)
    ranges = []
    for tp, extent in sorted(extents.items()):
        start, end = starts[tp], ends[tp]
        if end > extent.end:
            raise TopicFailed(
                "endingOffsets",
                f"partition {_name(tp)} is committed up to {extent.end}, and {end} was asked for",
                f"give an offset of at most {extent.end}, or latest",
            )
        if start > end:
            raise TopicFailed(
                "startingOffsets",
                f"partition {_name(tp)} would be read from {start} to before {end}",
                f"the start must be at most the end; the log is {extent.start} to before {extent.end}",
            )
        start = _without_loss("startingOffsets", tp, start, extent, fail_on_data_loss)
        if start < end:
            ranges.append(OffsetRange(*tp, start, end))
    return ranges


def stream_ranges(start: Offsets, end: Offsets, extents: Extents, *, fail_on_data_loss: bool) -> list[OffsetRange]:
    """The ranges that a micro-batch reads; a partition that is new since ``start`` is read from its beginning."""
    ranges = []
    for tp, stop in sorted(end.items()):
        extent = extents.get(tp, Extent(0, stop))
        begin = start.get(tp, extent.start)
        if begin < stop:
            begin = _without_loss("failOnDataLoss", tp, begin, extent, fail_on_data_loss)
        if begin < stop:
            ranges.append(OffsetRange(*tp, begin, stop))
    return ranges


def next_end(
    start: Offsets,
    extents: Extents,
    limit: int | None,
    *,
    target: Offsets | None = None,
    fail_on_data_loss: bool,
) -> dict[TopicPartition, int]:
    """The end of the next micro-batch: every HW, or ``limit`` records shared out in proportion to waiting records.

    ``target`` is the end of a run that reads only what was there at its start; partitions that it lacks are left alone.

    Raises:
        TopicFailed: a log ends before the offset up to which it was already read, so records were lost.
    """
    begins: dict[TopicPartition, int] = {}
    waiting: dict[TopicPartition, int] = {}
    for tp, extent in sorted(extents.items()):
        if target is not None and tp not in target:
            continue
        begins[tp] = start.get(tp, extent.start)
        _check_end(tp, begins[tp], extent, fail_on_data_loss)
        end = extent.end if target is None else min(extent.end, target[tp])
        waiting[tp] = max(0, end - begins[tp])
    whole = sum(waiting.values())
    if limit is not None and whole > limit:
        # At least one record of each partition that has any, as in Kafka's source, so that a small one is not starved.
        waiting = {tp: min(n, max(1, n * limit // whole)) for tp, n in waiting.items()}
    return {tp: begins[tp] + n for tp, n in waiting.items()}


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None, *, max_records: int | None = None
) -> list[OffsetRange]:
    """Split large ranges until there are at least ``min_partitions`` pieces, if there are enough records.

    Args:
        ranges: the ranges of a batch.
        min_partitions: the minimum number of pieces; None for one per range.
        max_records: the maximum number of records of a piece; None for no limit.
    """
    whole = sum(one.size for one in ranges)
    largest = max_records or max(whole, 1)
    if min_partitions is not None and len(ranges) < min_partitions:
        largest = min(largest, max(1, whole // min_partitions))
    return [
        OffsetRange(one.topic, one.partition, start, min(start + largest, one.end))
        for one in ranges
        for start in range(one.start, one.end, largest)
    ]


def _without_loss(option: str, tp: TopicPartition, start: int, extent: Extent, fail_on_data_loss: bool) -> int:
    if start >= extent.start:
        return start
    if fail_on_data_loss:
        raise TopicFailed(
            option,
            f"partition {_name(tp)} begins at {extent.start}, and {start} was asked for: retention removed the rest",
            f"start at {extent.start} or later, or set failOnDataLoss to false to read what is left",
        )
    return extent.start


def _check_end(tp: TopicPartition, begin: int, extent: Extent, fail_on_data_loss: bool) -> None:
    if begin > extent.end and fail_on_data_loss:
        raise TopicFailed(
            "failOnDataLoss",
            f"partition {_name(tp)} ends at {extent.end}, but was read up to {begin} already",
            "an unclean election cut its log; begin with a new checkpointLocation, or set it to false to go on when "
            "the log has grown beyond that offset",
        )


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


@dataclass(frozen=True)
class TopicPartitionRange(InputPartition):
    """The range that one Spark task reads."""

    range: OffsetRange


def pieces(options: TopicOptions, ranges: list[OffsetRange]) -> list[InputPartition]:
    """The ranges for the tasks of a batch or micro-batch."""
    found = split(ranges, options.min_partitions, max_records=options.max_records_per_partition)
    return [TopicPartitionRange(one) for one in found]
