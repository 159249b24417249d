"""How Spark finds the format ``strandline`` by itself: PySpark looks for modules of this prefix on the driver's path.

Invariant: finding it loads nothing of ours: Spark looks in every session, and few of them read topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from strandline_analytics.topic.source import TopicSource


class DefaultSource(DataSource):
    """`TopicSource`, loaded when a topic is read or written; the name of the class is PySpark's."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "strandline"

    def schema(self) -> str:
        """The columns of what is read."""
        return self._loaded().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        return self._loaded().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream."""
        return self._loaded().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch."""
        return self._loaded().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a stream."""
        return self._loaded().streamWriter(schema, overwrite)

    def _loaded(self) -> TopicSource:
        from strandline_analytics.topic.source import TopicSource

        return TopicSource(self.options)
