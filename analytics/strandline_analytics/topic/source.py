"""How Spark meets a topic: one Spark partition per log partition and range, a stream's offsets are log offsets.

Invariant: a stream's offset names the topic's id, so that a topic that was deleted and created again under the same
name is noticed instead of continued in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from strandline_analytics.topic.cluster import TopicExtent, ask
from strandline_analytics.topic.errors import TopicReadFailed
from strandline_analytics.topic.options import TopicOptions, read_options
from strandline_analytics.topic.ranges import OffsetRange, batch_ranges, next_end, resolve, split, stream_ranges
from strandline_analytics.topic.reading import COLUMNS, read_range


@dataclass(frozen=True)
class TopicPartitionRange(InputPartition):
    """What one Spark task reads."""

    range: OffsetRange


class TopicSource(DataSource):
    """``spark.read.format("strandline")``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "strandline"

    def schema(self) -> str:
        """The columns, always the same."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch."""
        return TopicReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Of a stream."""
        return TopicStreamReader(read_options(self.options, streaming=True))


class TopicReader(DataSourceReader):
    """One batch: everything from the starting to the ending offsets."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One for each partition that has something to read, more if so many were asked for."""
        options = self._options
        found = ask(options)
        ranges = batch_ranges(
            options.starting, options.ending, found.partitions, fail_on_data_loss=options.fail_on_data_loss
        )
        return [TopicPartitionRange(one) for one in split(ranges, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range; runs in a worker."""
        assert isinstance(partition, TopicPartitionRange)
        return read_range(self._options, partition.range)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; its offsets are ``{"topic_id": …, "offsets": {"0": 23}}``, the next offset of each partition."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self._target: Mapping[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a stream without a checkpoint begins."""
        found = ask(self._options)
        return _offset(found, resolve("startingOffsets", self._options.starting, found.partitions))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxOffsetsPerTrigger``, if it was given."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where everything ends now; this run reads no further."""
        self._target = {p: extent.end for p, extent in ask(self._options).partitions.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends."""
        found = ask(self._options)
        begin = _offsets(start, found)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = next_end(
            begin, found.partitions, rows, target=self._target, fail_on_data_loss=self._options.fail_on_data_loss
        )
        return _offset(found, {**begin, **end})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges between two offsets."""
        found = ask(self._options)
        ranges = stream_ranges(
            _offsets(start, found),
            _offsets(end, found),
            found.partitions,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return [TopicPartitionRange(one) for one in split(ranges, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range; runs in a worker."""
        assert isinstance(partition, TopicPartitionRange)
        return read_range(self._options, partition.range)


def _offset(found: TopicExtent, offsets: Mapping[int, int]) -> dict[str, Any]:
    return {"topic_id": found.topic_id, "offsets": {str(p): offset for p, offset in sorted(offsets.items())}}


def _offsets(offset: Mapping[str, Any], found: TopicExtent) -> dict[int, int]:
    if offset["topic_id"] != found.topic_id:
        raise TopicReadFailed(
            "topic",
            f"the checkpoint is of the topic with id {offset['topic_id']}, the topic of this name is {found.topic_id}",
            "it was deleted and created again: begin with a new checkpointLocation",
        )
    return {int(p): int(at) for p, at in offset["offsets"].items()}
