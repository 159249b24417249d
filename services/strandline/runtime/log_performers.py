"""How each effect on logs is done: in files by `node.logs`, in memory by `sim.memory_logs`, and nowhere else.

Invariant: a performer does its effect in full or raises; one that answers with an event returns it, and the driver
steps it before any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from strandline.core.log import effects as want
from strandline.core.log.events import Event, LogOpened, LogRolled, LogTruncated, RetentionFound
from strandline.core.messages import FetchResult, ServedPartition
from strandline.core.types import Offset, Payload, TopicPartition
from strandline.runtime.clock import Clock
from strandline.runtime.ports import Logs

Perform = Callable[[Any], Event | None]


class Found(NamedTuple):
    """What was read for an answer to a fetch, up to where in each partition, and how much."""

    partitions: list[ServedPartition]
    ends: list[tuple[TopicPartition, Offset]]
    size_bytes: int


class LogPerformers:
    """The table of the effects on logs."""

    def __init__(self, logs: Logs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self.table: dict[type[object], Perform] = {
            want.OpenLog: self._open,
            want.DeleteLog: lambda effect: logs.delete(effect.tp),
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
        """Read what an answer to a fetch wants: whole batches, of the first partition that has any at least one."""
        partitions: list[ServedPartition] = []
        ends: list[tuple[TopicPartition, Offset]] = []
        size_bytes, is_first = 0, room_bytes > 0
        for result in results:
            payload: Payload = b""
            if result.read is not None:
                start, end, limit = result.read
                if is_first or room_bytes > 0:
                    chunk = self._logs.read(result.tp, start, end, min(limit, room_bytes), at_least_one=is_first)
                    payload, start = chunk.payload, chunk.end
                ends.append((result.tp, start))
                if result.aborted:
                    result = _aborted_below(result, start)
                is_first = is_first and not payload
                room_bytes -= len(payload)
                size_bytes += len(payload)
            partitions.append(ServedPartition(result, payload))
        return Found(partitions, ends, size_bytes)


def _aborted_below(result: FetchResult, end: Offset) -> FetchResult:
    """The answer with those aborted transactions alone that begin in what was read, up to ``end``."""
    return result._replace(aborted=tuple(t for t in result.aborted if t.first_offset < end))
