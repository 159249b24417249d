"""Writes rows as records of a topic: picks the columns, and waits until every record is acknowledged or the task fails.

As in Kafka's Spark sink, it writes ``value`` and optionally ``key``, ``headers``, ``topic`` and ``partition``, and no
other columns. Without a partition, the record goes by its key to the partition that Kafka's default would choose.

Invariant: a task succeeds only when all in-sync replicas have acknowledged every record of it. A repeated task or
micro-batch writes its records again: at least once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from strandline.client import ErrorCode, Producer, RecordMetadata, Refused, SendFailed
from strandline.client.blocking import loop_thread
from strandline_analytics.topic.connection import OPTIONS, Connection, borrowed, read_connection
from strandline_analytics.topic.given import TopicFailed, read_given

KNOWN = (
    *OPTIONS, "topic", "includeHeaders", "kafka.acks", "kafka.compression.type", "kafka.linger.ms", "kafka.batch.size",
    "kafka.max.block.ms",
)  # fmt: skip
_LINGER_MS = 5
_BATCH_BYTES = 256 << 10
_MAX_BLOCK_MS = 60_000
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_BYTES = (StringType, BinaryType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": _BYTES, "key": _BYTES, "topic": (StringType,), "partition": (IntegerType,),
}  # fmt: skip
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """The destination of records, and the settings for sending them."""

    connection: Connection
    topic: str | None
    """The topic of every record; None if each row names its own."""
    compression: str
    linger_ms: int
    batch_bytes: int
    max_block_ms: int
    """The maximum time that a row waits for its topic to exist, or for room in the send buffer."""

    def producer(self) -> Producer:
        """A producer that waits for all in-sync replicas, and whose retries write no duplicates."""
        return Producer(
            self.connection.bootstrap,
            compression=None if self.compression == "none" else self.compression,
            linger_ms=self.linger_ms,
            batch_bytes=self.batch_bytes,
            max_block_ms=self.max_block_ms,
            **self.connection.tls,
        )


def sink_of(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> TopicSink:
    """Read the options of a sink, and check the columns of its rows.

    Raises:
        TopicFailed: an option or a column is unknown, missing, or of the wrong kind; or a topic would be overwritten.
    """
    given = read_given(options, KNOWN, what="sink")
    if overwrite:
        raise TopicFailed("mode", "it is overwrite", 'a topic is only appended to: .mode("append")')
    # Rows without a column of headers have none, so the option has no effect.
    given.flag("includeHeaders", default=True)
    given.choice("kafka.acks", ("all", "-1"), "all")
    sink = TopicSink(
        connection=read_connection(given),
        topic=given.text("topic") or None,
        compression=given.choice("kafka.compression.type", _COMPRESSIONS, "none"),
        linger_ms=given.count("kafka.linger.ms") or _LINGER_MS,
        batch_bytes=given.count("kafka.batch.size") or _BATCH_BYTES,
        max_block_ms=given.count("kafka.max.block.ms") or _MAX_BLOCK_MS,
    )
    _check_columns(sink, schema)
    return sink


def _check_columns(sink: TopicSink, schema: StructType) -> None:
    there = {field.name: field.dataType for field in schema.fields}
    if "value" not in there:
        raise TopicFailed.of_column("value", "it is missing", "select what is written AS value")
    if sink.topic is None and "topic" not in there:
        raise TopicFailed("topic", "it is missing", "name the topic by it, or in a column of this name")
    for name, kinds in _COLUMNS.items():
        if name in there and not isinstance(there[name], kinds):
            words = " or ".join(kind.typeName() for kind in kinds)
            raise TopicFailed.of_column(name, f"it is {there[name].simpleString()}", f"cast it to {words}")
    if "headers" in there and there["headers"].simpleString() != _HEADERS:
        raise TopicFailed.of_column("headers", f"it is {there['headers'].simpleString()}", f"make it {_HEADERS}")


@dataclass(frozen=True)
class TaskSent(WriterCommitMessage):
    """The records that one task wrote."""

    n_records: int


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch. Written records cannot be taken back, so there is nothing to commit or to abort."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSent:
        """Write the rows of one task; runs in a worker."""
        return send_all(self._sink, iterator)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, each micro-batch like a batch."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSent:
        """Write the rows of one task; runs in a worker."""
        return send_all(self._sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: everything has been acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: acknowledged records stay."""


def send_all(sink: TopicSink, batches: Iterable[pa.RecordBatch]) -> TaskSent:
    """Send rows in order, and wait until all are acknowledged.

    Raises:
        TopicFailed: a row names no topic, or one that does not exist.
        SendFailed: sending a record failed for good.
        Refused: a record is too large, or its partition does not exist.
    """
    kind = ("producer", sink.compression, sink.linger_ms, sink.batch_bytes, sink.max_block_ms)
    n_records = 0
    with borrowed(sink.connection, kind, sink.producer) as producer:
        sending = _Sending(sink, producer)
        for batch in batches:
            loop_thread().run(sending.send, batch)
            n_records += batch.num_rows
        loop_thread().run(sending.finish)
    return TaskSent(n_records)


class _Sending:
    """The records that one task has sent."""

    def __init__(self, sink: TopicSink, producer: Producer) -> None:
        self._sink = sink
        self._producer = producer
        self._failed: SendFailed | None = None

    async def send(self, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in _WRITTEN}
        for row in range(batch.num_rows):
            if self._failed is not None:
                raise self._failed
            await self._send_row({name: values[row] for name, values in columns.items()})

    async def _send_row(self, row: Mapping[str, Any]) -> None:
        topic = self._sink.topic or row["topic"]
        if topic is None:
            raise TopicFailed.of_column("topic", "it is null", "name the topic in every row, or by the option topic")
        try:
            await self._producer.send(
                topic,
                _bytes(row["value"]),
                _bytes(row.get("key")),
                partition=row.get("partition"),
                headers=[(header["key"], header["value"]) for header in row.get("headers") or ()],
                on_done=self._done,
            )
        except Refused as refused:
            if refused.refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise TopicFailed("topic", str(refused), "create the topic first") from refused

    async def finish(self) -> None:
        await self._producer.flush()
        if self._failed is not None:
            raise self._failed

    def _done(self, written: RecordMetadata | None, failed: SendFailed | None) -> None:
        self._failed = self._failed or failed


_WRITTEN = frozenset((*_COLUMNS, "headers"))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
