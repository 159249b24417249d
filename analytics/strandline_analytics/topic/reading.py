"""Reads one range in a worker, with the public client, which follows a leader that moves.

Invariant: every committed record of the range is returned once, in order; a range that cannot be read to its end is an
error, never a shorter answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from strandline.client import Consumer, FetchedRecords, LogTruncated, OffsetOutOfRange, TopicDeleted
from strandline.client.blocking import loop_thread
from strandline_analytics.topic.connection import borrowed
from strandline_analytics.topic.given import TopicFailed
from strandline_analytics.topic.options import TopicOptions
from strandline_analytics.topic.ranges import OffsetRange

_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_CREATE_TIME = 0
_NO_TIME = -1
_LAST_DATE_MS = 253_402_300_799_999
"""The last ms of the year 9999. Above: Kafka's types of timestamps, the producer's time (the only one here) or none."""

_ARROW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "leader_epoch": pa.int32(),
}


def columns(*, headers: bool) -> str:
    """The columns of a row as a Spark schema: those of Kafka's source in its order, then ``leader_epoch``.

    ``timestamp`` is the record's own.
    """
    return (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
        f"{_HEADERS + ', ' if headers else ''}leader_epoch INT"
    )


def read_range(options: TopicOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range.

    Raises:
        TopicFailed: the cluster stopped answering, or records of the range are gone.
    """
    reset: Literal["error", "earliest"] = "error" if options.fail_on_data_loss else "earliest"
    connection, run = options.connection, loop_thread().run

    def make() -> Consumer:
        return Consumer(connection.bootstrap, auto_offset_reset=reset, stop_at_end=True, **connection.tls)

    with borrowed(connection, ("consumer", reset), make) as consumer:
        # The partition existed when the read was planned.
        run(consumer.assign, [(wanted.topic, wanted.partition)], start=wanted.start, end=wanted.end)
        position = wanted.start
        while fetched := run(_next, consumer, options, wanted, position):
            for one in fetched:
                position = one.end
                yield _batch(one, headers=options.include_headers)
        # Nothing is fetched until the next task, which sets its own start.
        run(consumer.assign, [])


async def _next(consumer: Consumer, options: TopicOptions, wanted: OffsetRange, position: int) -> list[FetchedRecords]:
    """The next records of the range; empty at its end, which may come after markers and aborted records."""
    try:
        fetched = await consumer.fetch_batches(options.fetch_timeout_ms)
    except (OffsetOutOfRange, LogTruncated) as error:
        raise TopicFailed(
            "failOnDataLoss",
            f"records of partition {wanted.topic}-{wanted.partition} from offset {position} on are gone: {error}",
            "start from offsets that are there, with a new checkpoint; or set it to false to skip them",
        ) from error
    except TopicDeleted as error:
        raise TopicFailed(
            options.selection.option, str(error), "name a topic that exists, with a new checkpoint"
        ) from error
    if not fetched and not consumer.is_finished:
        raise TopicFailed(
            "fetchTimeoutMs",
            f"partition {wanted.topic}-{wanted.partition} gave nothing from offset {position} on for "
            f"{options.fetch_timeout_ms} ms, and {wanted.end - position} records are missing",
            "look whether it has a leader (`strandline cluster status`), or wait longer",
        )
    return fetched


def _batch(fetched: FetchedRecords, *, headers: bool) -> pa.RecordBatch:
    records, count = fetched.records, len(fetched.records)
    starts = [start for start, _ in fetched.epoch_starts]
    given = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "topic": [fetched.topic] * count,
        "partition": [fetched.partition] * count,
        "offset": [record.offset for record in records],
        "timestamp": [_time_us(record.timestamp_ms) for record in records],
        "timestampType": [_NO_TIME if record.timestamp_ms is None else _CREATE_TIME for record in records],
        "leader_epoch": [fetched.epoch_starts[bisect_right(starts, record.offset) - 1][1] for record in records],
    }
    if headers:
        given["headers"] = [[{"key": key, "value": value} for key, value in record.headers] for record in records]
    schema = pa.schema([(name, form) for name, form in _ARROW.items() if name in given])
    return pa.RecordBatch.from_arrays([pa.array(given[field.name], field.type) for field in schema], schema=schema)


def _time_us(timestamp_ms: int | None) -> int | None:
    """A record's time for Spark; None if it has none, or if it is after the year 9999, which has no date."""
    return None if timestamp_ms is None or timestamp_ms > _LAST_DATE_MS else timestamp_ms * 1_000
