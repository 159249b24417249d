"""Lets Spark read a topic as a stream: its offsets are the log's, and micro-batches are adjacent.

Invariant: a micro-batch is planned from the checkpoint and the cluster's answers, never from this process's memory,
which decides only when the next one begins, and where a run of availableNow ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from strandline.client import TopicPartition
from strandline_analytics.topic.cluster import FoundPartitions, ask, read, settle, written
from strandline_analytics.topic.options import TopicOptions
from strandline_analytics.topic.ranges import TopicPartitionRange, next_end, pieces, resolve, stream_ranges
from strandline_analytics.topic.reading import read_range

# ---- pacing
# Delays a micro-batch until there are enough records, or the maximum delay is over.
#
# It works like ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` of Kafka's source; the first micro-batch of a query
# does not wait.
#
# Invariant: records wait at most for the delay; a run that reads only present records (availableNow) never waits.


class Pacing:
    """Remembers when the last micro-batch of one query began, by the caller's clock."""

    def __init__(self, options: TopicOptions) -> None:
        self._least = options.min_offsets_per_trigger
        self._delay_ms = options.max_trigger_delay_ms
        self._last_ms: float | None = None

    def waits(self, n_records: int, now_ms: float) -> bool:
        """Whether this number of records must wait; otherwise a micro-batch begins now."""
        is_little = self._least is not None and n_records < self._least
        if is_little and self._last_ms is not None and now_ms - self._last_ms < self._delay_ms:
            return True
        self._last_ms = now_ms
        return False


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream; `cluster.written` defines the form of its offsets."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self._pacing = Pacing(options)
        self._target: Mapping[TopicPartition, int] | None = None
        self._latest: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a stream without a checkpoint."""
        found = self._ask()
        starting = settle(self._options.connection, self._options.starting, found)
        return written(found, resolve("startingOffsets", starting, found.partitions))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxOffsetsPerTrigger`` or ``minOffsetsPerTrigger``, if one was given."""
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the present end of each log; this run reads no further."""
        self._target = {tp: extent.end for tp, extent in self._ask().partitions.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; ``start`` while it waits for more records."""
        found = self._ask()
        self._latest = written(found, {tp: extent.end for tp, extent in found.partitions.items()})
        begin = self._offsets(start, found)
        end = self._end(begin, found, None)
        if isinstance(limit, ReadAllAvailable):
            # A run of one micro-batch reads everything, whatever the options say.
            return written(found, {**begin, **end})
        n_waiting = sum(offset - begin.get(tp, found.partitions[tp].start) for tp, offset in end.items())
        if self._target is None and self._pacing.waits(n_waiting, time.monotonic() * 1_000):
            return start
        return written(found, {**begin, **self._end(begin, found, self._options.max_offsets_per_trigger)})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the logs when last observed, for the query's progress."""
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges between two offsets."""
        found = self._ask()
        ranges = stream_ranges(
            self._offsets(start, found),
            self._offsets(end, found),
            found.partitions,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return pieces(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range; runs in a worker."""
        assert isinstance(partition, TopicPartitionRange)
        return read_range(self._options, partition.range)

    def _ask(self) -> FoundPartitions:
        return ask(self._options.connection, self._options.selection)

    def _offsets(self, position: Mapping[str, Any], found: FoundPartitions) -> dict[TopicPartition, int]:
        return read(position, found, fail_on_data_loss=self._options.fail_on_data_loss)

    def _end(
        self, begin: Mapping[TopicPartition, int], found: FoundPartitions, limit: int | None
    ) -> dict[TopicPartition, int]:
        return next_end(
            begin,
            found.partitions,
            limit,
            target=self._target,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
