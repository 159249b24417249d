"""Decides how each effect is done: one performer per effect type, in a table.

Invariant: a performer does its effect in full or raises; one that answers with an event returns it, and the
driver steps it before any other. Unknown effects do not exist: the table is checked against the union.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.core import effects as want
from strandline.core.events import (
    Event,
    FetchServed,
    LogOpened,
    LogRolled,
    LogTruncated,
    RetentionFound,
)
from strandline.core.messages import MetadataImage, Served, ServedPartition
from strandline.core.types import Offset, TopicPartition
from strandline.runtime.calls import Calls
from strandline.runtime.clock import Clock
from strandline.runtime.flusher import Flusher
from strandline.runtime.ports import Logs, Peers, Reporter

Perform = Callable[[Any], Event | None]


class Halted(Exception):
    """The core asked to stop this process for good."""


class Performers:
    """The table. ``alter_partition``, ``report_logs``, ``refresh``, ``believe`` and ``ignore`` belong to the controller
    session, ``look_up`` to `Lookups`."""

    def __init__(
        self,
        *,
        logs: Logs,
        flusher: Flusher,
        peers: Peers,
        calls: Calls,
        reporter: Reporter,
        clock: Clock,
        alter_partition: Callable[[want.SendAlterPartition], None],
        report_logs: Callable[[want.SendReplicaLogs], None],
        refresh: Callable[[], None],
        believe: Callable[[MetadataImage], None],
        ignore: Callable[[str], None],
        look_up: Callable[[want.AnswerOffsets], None],
    ) -> None:
        self._logs = logs
        self._calls = calls
        self._clock = clock
        self._look_up = look_up
        self.bytes_to_replicas = 0
        self.bytes_to_consumers = 0
        """Of records, since the process began."""
        self.table: dict[type[object], Perform] = {
            want.OpenLog: self._open,
            want.DeleteLog: lambda effect: logs.delete(effect.tp),
            want.Append: self._append,
            want.AppendReplicated: self._append_replicated,
            want.Truncate: self._truncate,
            want.RestartLog: lambda effect: logs.restart(effect.tp, effect.offset),
            want.AdvanceLogStart: logs.advance_log_start,
            want.ApplyRetention: self._apply_retention,
            want.SaveEpochs: lambda effect: logs.save_epochs(effect.tp, effect.entries),
            want.SaveHighWatermarks: lambda effect: logs.save_high_watermarks(
                effect.high_watermarks, durable=effect.durable
            ),
            want.SaveReconciledEpochs: lambda effect: logs.save_reconciled_epochs(effect.epochs),
            want.SaveProducers: lambda effect: logs.save_producers(effect.tp, effect.offset, effect.rows),
            want.NoteDurable: lambda effect: logs.note_durable(effect.tp, effect.offset),
            want.BelieveMetadata: lambda effect: believe(effect.image),
            want.IgnoreMetadata: lambda effect: ignore(effect.reason),
            want.SaveMetadata: lambda effect: logs.save_metadata(effect.image),
            want.Flush: lambda effect: flusher.flush(effect.tp),
            want.SendFetch: peers.send_fetch,
            want.SendForget: peers.send_forget,
            want.SendEpochEnds: peers.send_epoch_ends,
            want.SendListOffsets: peers.send_list_offsets,
            want.SendAlterPartition: alter_partition,
            want.SendReplicaLogs: report_logs,
            want.RefreshMetadata: lambda _: refresh(),
            want.AnswerProduce: lambda effect: calls.answer(effect.request_id, effect.results),
            want.AnswerFetch: self._answer_fetch,
            want.AnswerEpochEnds: lambda effect: calls.answer(effect.request_id, effect.answers),
            want.AnswerOffsets: self._answer_offsets,
            want.AnswerCall: lambda effect: calls.answer(effect.request_id, effect.answers),
            want.Emit: reporter.emit,
            want.Halt: self._halt,
        }

    def _open(self, effect: want.OpenLog) -> Event:
        found = self._logs.open(effect.tp, effect.topic)
        return LogOpened(self._clock(), effect.tp, *found)

    def _append(self, effect: want.Append) -> Event | None:
        return LogRolled(self._clock(), effect.tp) if self._logs.append(effect) else None

    def _append_replicated(self, effect: want.AppendReplicated) -> Event | None:
        return LogRolled(self._clock(), effect.tp) if self._logs.append_replicated(effect) else None

    def _truncate(self, effect: want.Truncate) -> Event:
        leo, producers = self._logs.truncate(effect.tp, effect.offset, durable=effect.durable)
        return LogTruncated(self._clock(), effect.tp, leo, producers)

    def _apply_retention(self, effect: want.ApplyRetention) -> Event | None:
        offset = self._logs.expired(effect.tp, effect.high_watermark)
        return RetentionFound(self._clock(), effect.tp, offset) if offset is not None else None

    def _answer_fetch(self, effect: want.AnswerFetch) -> Event | None:
        room = self._calls.room_bytes(effect.request_id, effect.max_bytes)
        if room is None:
            return None
        served: list[ServedPartition] = []
        ends: list[tuple[TopicPartition, Offset]] = []
        is_first = room > 0
        for result in effect.results:
            payload = b""
            if result.read is not None:
                start, end, limit = result.read
                if is_first or room > 0:
                    chunk = self._logs.read(result.tp, start, end, min(limit, room), at_least_one=is_first)
                    payload, start = chunk.payload, chunk.end
                ends.append((result.tp, start))
                is_first = is_first and not payload
                room -= len(payload)
            served.append(ServedPartition(result, payload))
        self._calls.answer(effect.request_id, Served(served, effect.done))
        size_bytes = sum(len(one.payload) for one in served)
        if effect.replica is None:
            self.bytes_to_consumers += size_bytes
            return None
        self.bytes_to_replicas += size_bytes
        if not ends:
            return None
        return FetchServed(self._clock(), effect.replica, tuple(ends))

    def _answer_offsets(self, effect: want.AnswerOffsets) -> None:
        if all(answer.lookup is None for answer in effect.answers):
            self._calls.answer(effect.request_id, effect.answers)
        else:
            self._look_up(effect)

    def _halt(self, effect: want.Halt) -> None:
        raise Halted(effect.reason)
