"""Sweep and trim: a coordinator's log is kept short by rewriting its live keys and removing its front (G9).

Invariant: once every key that was live when the sweep began was written again, or otherwise since, and the HW is past
all of that, the newest value of each key lies at or above the sweep's first offset, on every replica that can lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from strandline.core.coordinator.machine import Batch, Key, Record
from strandline.core.types import Offset

# ---- table
# What a coordinator's log folds to: the newest value of each key, and how many bytes of the log that is.
#
# Invariant: `live_bytes` is the sum of the sizes of the rows. A deleted key has no row.


class Row(NamedTuple):
    """The newest value of one key, the size of its record, and an offset at or below which that record lies."""

    value: object
    size_bytes: int
    offset: Offset


class Table:
    """The rows of one shard, in the order in which their keys came first."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.live_bytes = 0

    def fold(self, record: Record, size_bytes: int, offset: Offset) -> None:
        """Take over a record that lies at ``offset`` or, while a log is loaded, not above it."""
        before = self.rows.get(record.key)
        if before is not None:
            self.live_bytes -= before.size_bytes
        if record.value is None:
            self.rows.pop(record.key, None)
            return
        self.rows[record.key] = Row(record.value, size_bytes, offset)
        self.live_bytes += size_bytes

    def values(self) -> dict[Key, object]:
        """Key to value, for comparisons."""
        return {key: row.value for key, row in self.rows.items()}


class Sweep:
    """One sweep over the keys of a table."""

    def __init__(self, table: Table, first_offset: Offset) -> None:
        self._table = table
        # The current keys: a later one is written at or above the first offset anyway.
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
            # What was written since the sweep began is above it already. A deleted key has no row: it needs no
            # tombstone, because it is just not written again (G9).
            if row is not None and row.offset < self.first_offset:
                batch.append(Record(self._ahead, row.value))
                size_bytes += row.size_bytes
            self._ahead = next(self._keys, None)
        return tuple(batch), size_bytes
