"""The entry point for Spark: the format's name and columns, and the classes that read and write it.

Invariant: this module and `sink` suffice for a batch; the reader of a stream is loaded when it is used, because
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
        """The columns of the rows read; without ``headers`` if the option says so."""
        return columns(headers=with_headers(read_given(self.options, KNOWN, what="source")))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        return TopicReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream.

        Raises:
            NeedsNewerSpark: this PySpark is too old for streams.
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
    """Reads one batch: everything from the starting to the ending offsets."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One for each partition with something to read, or more if the options ask for more."""
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
