"""How a worker reads one range: with the client that everybody uses, which follows a leader that moves.

Invariant: exactly the offsets of the range come out, in order, each once; a range that cannot be read to its end is
an error and never a shorter answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from strandline.client import ClusterUnreachable, Consumer, FetchedRecords, LogTruncated, OffsetOutOfRange, TopicDeleted
from strandline_analytics.topic.cluster import unreachable
from strandline_analytics.topic.errors import TopicReadFailed
from strandline_analytics.topic.loop import wait
from strandline_analytics.topic.options import TopicOptions
from strandline_analytics.topic.ranges import OffsetRange

COLUMNS = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, leader_epoch INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
"""What a row has, as Spark spells it; ``timestamp`` is the record's own."""

_ARROW = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("leader_epoch", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def read_range(options: TopicOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range.

    Raises:
        TopicReadFailed: the cluster fell silent, or records of the range are gone.
    """
    consumer = wait(_started(options, wanted))
    try:
        position = wanted.start
        while position < wanted.end:
            for one in wait(_next(consumer, options, wanted, position)):
                rows = [record for record in one.records if record.offset < wanted.end]
                position = one.records[-1].offset + 1
                if rows:
                    yield _batch(one, len(rows))
    finally:
        wait(consumer.close())


async def _started(options: TopicOptions, wanted: OffsetRange) -> Consumer:
    reset: Literal["error", "earliest"] = "error" if options.fail_on_data_loss else "earliest"
    consumer = Consumer(options.bootstrap, auto_offset_reset=reset, **options.tls)
    try:
        await consumer.start()
    except ClusterUnreachable as error:
        raise unreachable(options, error) from error
    # Known to exist since it was planned.
    await consumer.assign([(options.topic, wanted.partition)], start=wanted.start)
    return consumer


async def _next(consumer: Consumer, options: TopicOptions, wanted: OffsetRange, position: int) -> list[FetchedRecords]:
    try:
        fetched = await consumer.fetch_batches(options.fetch_timeout_ms)
    except (OffsetOutOfRange, LogTruncated) as error:
        raise TopicReadFailed(
            "failOnDataLoss",
            f"records of partition {wanted.partition} from offset {position} on are gone: {error}",
            "start from offsets that are there, with a new checkpoint; or set it to false to skip them",
        ) from error
    except TopicDeleted as error:
        raise TopicReadFailed("topic", str(error), "name a topic that exists, with a new checkpoint") from error
    if not fetched:
        raise TopicReadFailed(
            "fetchTimeoutMs",
            f"partition {wanted.partition} gave nothing from offset {position} on for {options.fetch_timeout_ms} ms, "
            f"and {wanted.end - position} records are missing",
            "look whether it has a leader (`strandline cluster status`), or wait longer",
        )
    return fetched


def _batch(fetched: FetchedRecords, count: int) -> pa.RecordBatch:
    records = fetched.records[:count]
    starts = [start for start, _ in fetched.epoch_starts]
    epochs = [fetched.epoch_starts[bisect_right(starts, record.offset) - 1][1] for record in records]
    columns = [
        [fetched.partition] * count,
        [record.offset for record in records],
        [None if record.timestamp_ms is None else record.timestamp_ms * 1_000 for record in records],
        epochs,
        [record.key for record in records],
        [record.value for record in records],
        [[{"key": key, "value": value} for key, value in record.headers] for record in records],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
