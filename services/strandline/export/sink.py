"""Decides how state events reach a file: a bounded ring in memory, one writer thread, two files at most.

Invariant: taking an event never blocks and never fails the caller; when the ring is full the event is
dropped and counted, and the count is written as an event of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from strandline.core.types import TopicPartition

EVENTS_NAME = "events.jsonl"
_RING_EVENTS = 50_000
_MAX_FILE_BYTES = 64 << 20
_WRITE_EVERY_S = 0.2

Row = tuple[int, str, TopicPartition | None, Mapping[str, object]]
"""Wall-clock ms, event type, partition, fields."""


class EventSink:
    """Writes events as JSON lines to ``events.jsonl``; the previous file is kept as ``events.jsonl.1``."""

    def __init__(
        self,
        directory: Path,
        common: Mapping[str, object],
        *,
        ring_events: int = _RING_EVENTS,
        max_file_bytes: int = _MAX_FILE_BYTES,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._path = directory / EVENTS_NAME
        self._common = dict(common)
        self._ring: deque[Row] = deque()
        self._ring_events = ring_events
        self._max_file_bytes = max_file_bytes
        self._wall_ms = wall_ms
        self.dropped = 0
        self._reported_drops = 0
        self._broken = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write_forever, name="events", daemon=True)
        self._thread.start()

    def take(self, event_type: str, tp: TopicPartition | None, fields: Mapping[str, object]) -> None:
        """Keep an event for the writer, or drop it when there is no room."""
        if self._broken or len(self._ring) >= self._ring_events:
            self.dropped += 1
            return
        self._ring.append((self._wall_ms(), event_type, tp, fields))

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._closing.set()
        self._thread.join(timeout=5)

    def _write_forever(self) -> None:
        try:
            file: TextIO = self._path.open("a", encoding="utf-8")
            while not self._closing.wait(_WRITE_EVERY_S):
                file = self._write_ring(file)
            self._write_ring(file).close()
        except OSError:
            # Reports are not worth a process: a full disk stops them, not the node.
            self._broken = True

    def _write_ring(self, file: TextIO) -> TextIO:
        if self.dropped > self._reported_drops:
            lost, self._reported_drops = self.dropped - self._reported_drops, self.dropped
            file.write(self._line((self._wall_ms(), "EVENTS_DROPPED", None, {"count": lost})))
        while self._ring:
            file.write(self._line(self._ring.popleft()))
        file.flush()
        return self._rotate(file) if file.tell() > self._max_file_bytes else file

    def _rotate(self, file: TextIO) -> TextIO:
        file.close()
        self._path.replace(self._path.with_name(f"{EVENTS_NAME}.1"))
        return self._path.open("a", encoding="utf-8")

    def _line(self, row: Row) -> str:
        time_ms, event_type, tp, fields = row
        event: dict[str, object] = {"time_ms": time_ms, "event": event_type, **self._common}
        if tp is not None:
            event |= {"topic_id": tp.topic_id, "partition": tp.partition}
        return json.dumps(event | dict(fields), default=str, separators=(",", ":")) + "\n"
