"""Performs each effect on logs: on files with `node.logs`, in memory with the simulator's logs.

Invariant: a performer completes its effect or raises; if an event follows it returns the event, which the driver steps
before any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from strandline.core.log import effects as want
from strandline.core.log.events import Event, LogFlushed, LogOpened, LogRolled, LogTruncated, RetentionFound
from strandline.core.messages import FetchResult, ServedPartition
from strandline.core.types import Offset, Payload, TopicPartition
from strandline.runtime.clock import Clock
from strandline.runtime.ports import FlushToken, Logs, Threads

Perform = Callable[[Any], Event | None]


class Found(NamedTuple):
    """What was read to answer a fetch: the partitions, the end offset and bytes read of each, and the total size."""

    partitions: list[ServedPartition]
    ends: list[tuple[TopicPartition, Offset, int]]
    size_bytes: int


class LogPerformers:
    """The performers of the effects on logs, by type of effect."""

    def __init__(self, logs: Logs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self.table: dict[type[object], Perform] = {
            want.OpenLog: self._open,
            want.DeleteLog: lambda effect: logs.delete(effect.tp),
            want.SetLogAside: lambda effect: logs.set_aside(effect.tp),
            want.Append: self._append,
            want.AppendReplicated: self._append_replicated,
            want.Truncate: self._truncate,
            want.RestartLog: lambda effect: logs.restart(
                effect.tp, effect.offset, effect.producers, effect.transactions
            ),
            want.AdvanceLogStart: logs.advance_log_start,
            want.ApplyRetention: self._apply_retention,
            want.SaveEpochs: lambda effect: logs.save_epochs(effect.tp, effect.entries),
            want.SaveHighWatermarks: lambda effect: logs.save_high_watermarks(
                effect.high_watermarks, durable=effect.durable
            ),
            want.SaveReconciledEpochs: lambda effect: logs.save_reconciled_epochs(effect.epochs),
            want.SaveProducers: lambda effect: logs.save_producers(
                effect.tp, effect.offset, effect.rows, effect.transactions
            ),
            want.NoteDurable: lambda effect: logs.note_durable(effect.tp, effect.offset),
            want.SaveMetadata: lambda effect: logs.save_metadata(effect.image),
        }

    def _open(self, effect: want.OpenLog) -> Event:
        found = self._logs.open(effect.tp, effect.topic)
        return LogOpened(self._clock(), effect.tp, *found)

    def _append(self, effect: want.Append) -> Event | None:
        return LogRolled(self._clock(), effect.tp) if self._logs.append(effect) else None

    def _append_replicated(self, effect: want.AppendReplicated) -> Event | None:
        return LogRolled(self._clock(), effect.tp) if self._logs.append_replicated(effect) else None

    def _truncate(self, effect: want.Truncate) -> Event:
        return LogTruncated(
            self._clock(), effect.tp, *self._logs.truncate(effect.tp, effect.offset, durable=effect.durable)
        )

    def _apply_retention(self, effect: want.ApplyRetention) -> Event | None:
        offset = self._logs.expired(effect.tp, effect.high_watermark)
        return RetentionFound(self._clock(), effect.tp, offset) if offset is not None else None

    def read(self, results: Iterable[FetchResult], room_bytes: int) -> Found:
        """Read the records to answer a fetch: whole batches, at least one from the first partition that has any."""
        partitions: list[ServedPartition] = []
        ends: list[tuple[TopicPartition, Offset, int]] = []
        size_bytes, is_first = 0, room_bytes > 0
        for result in results:
            payload: Payload = b""
            if result.read is not None:
                start, end, limit = result.read
                if is_first or room_bytes > 0:
                    chunk = self._logs.read(result.tp, start, end, min(limit, room_bytes), at_least_one=is_first)
                    payload, start = chunk.payload, chunk.end
                ends.append((result.tp, start, len(payload)))
                if result.aborted:
                    result = _aborted_below(result, start)
                is_first = is_first and not payload
                room_bytes -= len(payload)
                size_bytes += len(payload)
            partitions.append(ServedPartition(result, payload))
        return Found(partitions, ends, size_bytes)


def _aborted_below(result: FetchResult, end: Offset) -> FetchResult:
    """The answer, with only those aborted transactions that begin below ``end``, the end of what was read."""
    return result._replace(aborted=tuple(t for t in result.aborted if t.first_offset < end))


# ---- flusher
# Makes a log's bytes durable: one sync in a worker thread for each commit that the core orders.
#
# Invariant: a commit's event is raised only after its sync returned without error; at most one commit per log is under
# way, so one sync serves every append that waited for it (M55), and never more commits wait than there are logs.

Raise = Callable[[LogFlushed], None]
Fail = Callable[[BaseException], None]


class Flusher:
    """Group commit. ``step`` is called with completed commits, ``fail`` with the first error, which ends all syncs.

    ``observed`` is called with the seconds that each sync took, including the wait for a thread.
    """

    def __init__(
        self,
        logs: Logs,
        step: Raise,
        fail: Fail,
        clock: Clock,
        *,
        threads: Threads,
        observed: Callable[[float], None] | None = None,
    ) -> None:
        self._logs = logs
        self._step = step
        self._fail = fail
        self._clock = clock
        self._observed = observed
        self._threads = threads
        self._looked_at_ms: int | None = None
        # The commit under way for each log, and since when.
        self._under_way: dict[TopicPartition, tuple[FlushToken, int]] = {}
        self._idle = asyncio.Event()
        self.commits = 0
        self.syncs = 0
        """The number of commits that had anything to sync."""

    def flush(self, tp: TopicPartition) -> LogFlushed | None:
        """Issue a commit. A log with nothing to sync is already durable: its event is returned at once."""
        token = self._logs.issue_flush(tp)
        self.commits += 1
        if not token.has_work:
            return LogFlushed(self._clock(), tp, token.leo_at_issue)
        self.syncs += 1
        # It replaces the commit of an earlier log of this partition, whose end says nothing about this log.
        self._under_way[tp] = token, self._clock()
        self._threads.run(token.sync, partial(self._finished, tp, token, perf_counter()))
        return None

    def _finished(self, tp: TopicPartition, token: FlushToken, asked_s: float, error: BaseException | None) -> None:
        if is_latest := tp in self._under_way and self._under_way[tp][0] is token:
            del self._under_way[tp]
            self._idle.set()
        if self._observed is not None:
            self._observed(perf_counter() - asked_s)
        if error is not None:
            self._fail(error)
        elif is_latest:
            self._step(LogFlushed(self._clock(), tp, token.leo_at_issue))

    def oldest_ms(self, now_ms: int, longest_look_ms: int) -> int:
        """Age in ms of the longest sync under way, 0 without one (M59).

        It is called periodically. A gap of more than ``longest_look_ms`` between two calls means that this process
        was paused (SIGSTOP, a frozen machine); the time beyond it does not count, because no disk could answer then.
        """
        paused_ms = max(0, now_ms - self._looked_at_ms - longest_look_ms) if self._looked_at_ms is not None else 0
        self._looked_at_ms = now_ms
        for tp, (token, started) in self._under_way.items():
            self._under_way[tp] = token, min(now_ms, started + paused_ms)
        return max((now_ms - started for _, started in self._under_way.values()), default=0)

    async def until_idle(self) -> None:
        """Wait until no sync is under way."""
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()

    def close(self) -> None:
        """Start no new sync; those under way are not interrupted."""
        self._threads.close()
