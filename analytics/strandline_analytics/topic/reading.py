"""How a worker reads one range: with the client that everybody uses, which follows a leader that moves.

Invariant: exactly the offsets of the range that have committed records come out, in order, each once; a range that
cannot be read to its end is an error and never a shorter answer.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, Protocol, TypeVar

import pyarrow as pa

from strandline.client import (
    ClusterUnreachable,
    Consumer,
    FetchedRecords,
    LogTruncated,
    OffsetOutOfRange,
    TlsWrong,
    TopicDeleted,
)
from strandline.client.blocking import loop_thread
from strandline_analytics.topic.options import Connection, TopicFailed, TopicOptions, unreachable
from strandline_analytics.topic.ranges import OffsetRange

# ---- pool
# Which clients a Spark process keeps from one task to the next, so that a micro-batch opens no connection.
#
# Spark runs many tasks one after another in one Python worker, and the reader of a stream is one process for as long as
# its query runs. All clients of a process run in the thread that the client library has for that (`loop_thread`), so
# they follow leaders and answer pings between tasks as well.
#
# Invariant: a client is used by one task at a time; one whose task failed or was given up is closed and never used
# again.

_KEPT_OF_A_KIND = 2
"""A worker runs one task at a time; a process in which several threads read keeps no more than these."""


class Client(Protocol):
    """What all clients of the library have."""

    async def start(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """End every connection."""
        ...


C = TypeVar("C", bound=Client)

_lock = threading.Lock()
_idle: dict[Hashable, list[Client]] = {}


@contextmanager
def borrowed(connection: Connection, kind: Hashable, make: Callable[[], C]) -> Iterator[C]:
    """A client that is connected: one that an earlier task has given back, or a new one.

    Args:
        connection: of the client.
        kind: equal for clients that are made with equal settings.
        make: makes a client that has not started.

    Raises:
        TopicFailed: no node answers, or an option of the connection is wrong.
    """
    key = (connection, kind)
    with _lock:
        found = _idle.get(key)
        kept = found.pop() if found else None
    # Of one kind all were made by the same function.
    client: C = _started(connection, make) if kept is None else kept  # type: ignore[assignment]
    try:
        yield client
    except BaseException:
        _close(client)
        raise
    with _lock:
        others = _idle.setdefault(key, [])
        is_kept = len(others) < _KEPT_OF_A_KIND
        if is_kept:
            others.append(client)
    if not is_kept:
        _close(client)


def close_idle() -> None:
    """Close every client that is kept, for a process that outlives the clusters that it read from."""
    with _lock:
        left = [client for clients in _idle.values() for client in clients]
        _idle.clear()
    for client in left:
        _close(client)


def _started(connection: Connection, make: Callable[[], C]) -> C:
    async def start() -> C:
        # Made there as well: a client belongs to the loop in which it is made.
        client = make()
        await client.start()
        return client

    try:
        return loop_thread().run(start)
    except ClusterUnreachable as error:
        raise unreachable(connection, error) from error
    except TlsWrong as error:
        raise TopicFailed("tlsCert", str(error), "give tlsCert, tlsKey and tlsCa of a client") from error
    except ValueError as error:
        raise TopicFailed("bootstrap", str(error), "give host:port of a process of the cluster") from error


def _close(client: Client) -> None:
    # What it failed of was reported by the call that found it, and a process that ends has no loop any more.
    with suppress(RuntimeError):
        loop_thread().run(client.close)


os.register_at_fork(after_in_child=_idle.clear)


_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_CREATE_TIME = 0
_NO_TIME = -1
_LAST_DATE_MS = 253_402_300_799_999
"""Kafka's numbers: the producer's time, which is the only one that a log has here, or none."""

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
    """What a row has, as Spark spells it: the columns of Kafka's source in its order, then ``leader_epoch``.

    ``timestamp`` is the record's own.
    """
    return (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
        f"{_HEADERS + ', ' if headers else ''}leader_epoch INT"
    )


def read_range(options: TopicOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range.

    Raises:
        TopicFailed: the cluster fell silent, or records of the range are gone.
    """
    reset: Literal["error", "earliest"] = "error" if options.fail_on_data_loss else "earliest"
    connection, run = options.connection, loop_thread().run

    def make() -> Consumer:
        return Consumer(connection.bootstrap, auto_offset_reset=reset, stop_at_end=True, **connection.tls)

    with borrowed(connection, ("consumer", reset), make) as consumer:
        # Known to exist since it was planned.
        run(consumer.assign, [(wanted.topic, wanted.partition)], start=wanted.start, end=wanted.end)
        position = wanted.start
        while fetched := run(_next, consumer, options, wanted, position):
            for one in fetched:
                position = one.end
                yield _batch(one, headers=options.include_headers)
        # Nothing is fetched for nobody until the next task comes, which begins where it says.
        run(consumer.assign, [])


async def _next(consumer: Consumer, options: TopicOptions, wanted: OffsetRange, position: int) -> list[FetchedRecords]:
    """The next records of the range; empty at its end, which may lie behind markers and aborted records."""
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
    """A record's time as Spark takes it; None without one, and for one beyond the year 9999, which has no date."""
    return None if timestamp_ms is None or timestamp_ms > _LAST_DATE_MS else timestamp_ms * 1_000


# ---- pacing
# Whether a micro-batch waits for more records: until there are enough, or the longest delay is over.
#
# As Kafka's source does with ``minOffsetsPerTrigger`` and ``maxTriggerDelay``; the first micro-batch of a query waits
# for nothing.
#
# Invariant: records wait at most for the delay; a run that reads what is there now (availableNow) never waits.


class Pacing:
    """Of one query: when its last micro-batch began, by the caller's clock."""

    def __init__(self, options: TopicOptions) -> None:
        self._least = options.min_offsets_per_trigger
        self._delay_ms = options.max_trigger_delay_ms
        self._last_ms: float | None = None

    def waits(self, n_records: int, now_ms: float) -> bool:
        """Whether so many records wait on; otherwise a micro-batch begins now."""
        is_little = self._least is not None and n_records < self._least
        if is_little and self._last_ms is not None and now_ms - self._last_ms < self._delay_ms:
            return True
        self._last_ms = now_ms
        return False
