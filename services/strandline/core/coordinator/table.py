"""What a coordinator's log folds to: the newest value of each key, and how many bytes of the log that is.

Invariant: `live_bytes` is the sum of the sizes of the rows. A deleted key has no row.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.core.coordinator.records import Key, Record
from strandline.core.types import Offset


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
