"""What is read of each partition: from which offset to before which, in how many pieces, how much at once.

Invariant: ranges lie within what a consumer may see, [log start, HW); pieces of a partition lie side by side and
together are the whole range; a stream's end never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strandline_analytics.topic.errors import TopicReadFailed
from strandline_analytics.topic.options import EARLIEST, LATEST, Offsets, Where


@dataclass(frozen=True, slots=True)
class Extent:
    """What there is to be read of one partition: ``start`` to before ``end``, its HW."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` to before ``end`` of a partition."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many records that is; logs are dense."""
        return self.end - self.start


def resolve(option: str, where: Where, extents: Mapping[int, Extent]) -> dict[int, int]:
    """The offset that is meant, for every partition.

    Raises:
        TopicReadFailed: offsets are not given for exactly the partitions that there are.
    """
    if isinstance(where, str):
        return {p: extent.start if where == "earliest" else extent.end for p, extent in extents.items()}
    if where.keys() != extents.keys():
        raise TopicReadFailed(
            option,
            f"it names partitions {sorted(where)}, the topic has {sorted(extents)}",
            "give an offset for each of them; -2 is earliest, -1 is latest",
        )
    meant = {EARLIEST: lambda e: e.start, LATEST: lambda e: e.end}
    return {p: meant[offset](extents[p]) if offset in meant else offset for p, offset in sorted(where.items())}


def batch_ranges(
    starting: Where, ending: Where, extents: Mapping[int, Extent], *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """What a batch reads of each partition; partitions with nothing to read are left out.

    Raises:
        TopicReadFailed: offsets lie outside of the log, or the end lies before the start.
    """
    starts = resolve("startingOffsets", starting, extents)
    ends = resolve("endingOffsets", ending, extents)
    ranges = []
    for partition, extent in sorted(extents.items()):
        start, end = starts[partition], ends[partition]
        if end > extent.end:
            raise TopicReadFailed(
                "endingOffsets",
                f"partition {partition} is committed up to {extent.end}, and {end} was asked for",
                f"give an offset of at most {extent.end}, or latest",
            )
        if start > end:
            raise TopicReadFailed(
                "startingOffsets",
                f"partition {partition} would be read from {start} to before {end}",
                f"the start must be at most the end; the log is {extent.start} to before {extent.end}",
            )
        start = _without_loss("startingOffsets", partition, start, extent, fail_on_data_loss)
        if start < end:
            ranges.append(OffsetRange(partition, start, end))
    return ranges


def stream_ranges(
    start: Offsets, end: Offsets, extents: Mapping[int, Extent], *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """What a micro-batch reads; a partition that is new since ``start`` is read from its beginning."""
    ranges = []
    for partition, stop in sorted(end.items()):
        extent = extents.get(partition, Extent(0, stop))
        begin = start.get(partition, extent.start)
        if begin < stop:
            begin = _without_loss("failOnDataLoss", partition, begin, extent, fail_on_data_loss)
        if begin < stop:
            ranges.append(OffsetRange(partition, begin, stop))
    return ranges


def next_end(
    start: Offsets,
    extents: Mapping[int, Extent],
    limit: int | None,
    *,
    target: Offsets | None = None,
    fail_on_data_loss: bool,
) -> dict[int, int]:
    """Where the next micro-batch ends: at every HW, or after ``limit`` records shared out by what is waiting.

    ``target`` is where a run that reads what is there now ends; partitions that it does not name are left alone.

    Raises:
        TopicReadFailed: a log ends before what was read of it already, so records were lost.
    """
    begins: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for partition, extent in sorted(extents.items()):
        if target is not None and partition not in target:
            continue
        begins[partition] = start.get(partition, extent.start)
        _check_end(partition, begins[partition], extent, fail_on_data_loss)
        end = extent.end if target is None else min(extent.end, target[partition])
        waiting[partition] = max(0, end - begins[partition])
    whole = sum(waiting.values())
    if limit is not None and whole > limit:
        # At least one record of each that has some, as Kafka's source does: a small partition is not starved.
        waiting = {p: min(n, max(1, n * limit // whole)) for p, n in waiting.items()}
    return {p: begins[p] + n for p, n in waiting.items()}


def split(ranges: Sequence[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Cut large ranges until there are at least so many pieces, as far as there are records."""
    whole = sum(one.size for one in ranges)
    if min_partitions is None or len(ranges) >= min_partitions or not whole:
        return list(ranges)
    largest = max(1, whole // min_partitions)
    pieces = []
    for one in ranges:
        borders = list(range(one.start, one.end, largest))
        pieces += [OffsetRange(one.partition, start, min(start + largest, one.end)) for start in borders]
    return pieces


def _without_loss(option: str, partition: int, start: int, extent: Extent, fail_on_data_loss: bool) -> int:
    if start >= extent.start:
        return start
    if fail_on_data_loss:
        raise TopicReadFailed(
            option,
            f"partition {partition} begins at {extent.start}, and {start} was asked for: retention removed the rest",
            f"start at {extent.start} or later, or set failOnDataLoss to false to read what is left",
        )
    return extent.start


def _check_end(partition: int, begin: int, extent: Extent, fail_on_data_loss: bool) -> None:
    if begin > extent.end and fail_on_data_loss:
        raise TopicReadFailed(
            "failOnDataLoss",
            f"partition {partition} ends at {extent.end}, but was read up to {begin} already",
            "an unclean election cut its log; begin with a new checkpointLocation, or set it to false to go on when "
            "the log has grown beyond that offset",
        )
