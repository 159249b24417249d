"""How Spark meets a topic: the format's name and columns, and what reads and writes it.

Invariant: what a batch needs is here and in `sink`; what a stream reads with is loaded when a stream is read, because
PySpark 4.1 has no such classes (`stream_source`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from strandline_analytics.pyspark_range import check_streams
from strandline_analytics.topic.cluster import ask, settle
from strandline_analytics.topic.given import read_given
from strandline_analytics.topic.options import KNOWN, TopicOptions, read_options, with_headers
from strandline_analytics.topic.ranges import TopicPartitionRange, batch_ranges, pieces
from strandline_analytics.topic.reading import columns, read_range
from strandline_analytics.topic.sink import TopicStreamWriter, TopicWriter, sink_of


class TopicSource(DataSource):
    """``spark.read.format("strandline")`` and ``df.write.format("strandline")``, and both as streams."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "strandline"

    def schema(self) -> str:
        """The columns of what is read; without ``headers`` where the option says so."""
        return columns(headers=with_headers(read_given(self.options, KNOWN, what="source")))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        return TopicReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream.

        Raises:
            NeedsNewerSpark: this PySpark is too old for it.
        """
        check_streams("spark.read reads the topic as a batch, and writeStream writes it")
        from strandline_analytics.topic.stream_source import TopicStreamReader

        return TopicStreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch."""
        return TopicWriter(sink_of(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a stream, in any output mode: each micro-batch is appended."""
        return TopicStreamWriter(sink_of(self.options, schema, overwrite=False))


class TopicReader(DataSourceReader):
    """One batch: everything from the starting to the ending offsets."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One for each partition that has something to read, more if so many were asked for."""
        options = self._options
        found = ask(options.connection, options.selection)
        ranges = batch_ranges(
            settle(options.connection, options.starting, found),
            settle(options.connection, options.ending, found),
            found.partitions,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return pieces(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range; runs in a worker."""
        assert isinstance(partition, TopicPartitionRange)
        return read_range(self._options, partition.range)
