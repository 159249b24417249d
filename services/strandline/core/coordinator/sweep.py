"""Sweep and trim: a coordinator's log is kept short by writing its live keys again and cutting off its front (G9).

Invariant: once every key that was live when the sweep began was written again, or otherwise since, and the HW is past
all of that, the newest value of each key lies at or above the sweep's first offset, on every replica that can lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strandline.core.coordinator.records import Batch, Key, Record
from strandline.core.coordinator.table import Table
from strandline.core.types import Offset


class Sweep:
    """One sweep over the keys of a table."""

    def __init__(self, table: Table, first_offset: Offset) -> None:
        self._table = table
        # The keys of now: one that comes later is written at or above the first offset anyway.
        self._keys: Iterator[Key] = iter(tuple(table.rows))
        self._ahead: Key | None = next(self._keys, None)
        self.first_offset = first_offset
        self.bytes_since = 0
        """What was appended since the sweep began, by it or by others."""
        self.end: Offset | None = None
        """Where the log ended when the last key had been written; None before."""

    def step(self, step_bytes: int, batch_bytes: int, append: Callable[[Batch], None]) -> None:
        """Append about ``step_bytes`` of keys that were not written since the sweep began, in batches of about
        ``batch_bytes``."""
        left = step_bytes
        while left > 0 and self._ahead is not None:
            batch, size_bytes = self._next_batch(min(batch_bytes, left))
            left -= size_bytes
            if batch:
                append(batch)

    @property
    def is_written(self) -> bool:
        """Whether no key is left to write."""
        return self._ahead is None

    def _next_batch(self, limit_bytes: int) -> tuple[Batch, int]:
        batch: list[Record] = []
        size_bytes = 0
        while self._ahead is not None and size_bytes < limit_bytes:
            row = self._table.rows.get(self._ahead)
            if row is not None and row.offset < self.first_offset:
                batch.append(Record(self._ahead, row.value))
                size_bytes += row.size_bytes
            self._ahead = next(self._keys, None)
        return tuple(batch), size_bytes
