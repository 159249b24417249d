"""Decides what the bytes of a file are: Parquet, or JSON lines where pyarrow is not wanted.

Invariant: both formats hold the same rows in the same order (`schema.SORT_ORDER`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from strandline.export.layout import JSON_LINES, PARQUET
from strandline.export.local_lines import json_line
from strandline.export.rows import Row
from strandline.export.schema import SORT_ORDER

if TYPE_CHECKING:
    import pyarrow as pa


ROWS_AT_A_TIME = 2_000


class ExportFormat(StrEnum):
    """The formats of exported files."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class Growing(Protocol):
    """A file that is being collected in memory."""

    size_bytes: int

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows."""
        ...

    def content(self) -> bytes:
        """The bytes of the file."""
        ...


class GrowingParquet:
    """Rows as Arrow batches: small, and out of the interpreter's way when they are sorted and written."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._batches: list[pa.RecordBatch] = []
        self.size_bytes = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Convert rows some at a time: few enough that no roll takes long, enough that each costs little."""
        self._rows += rows
        if len(self._rows) >= ROWS_AT_A_TIME:
            self._convert()

    def _convert(self) -> None:
        from strandline.export.arrow import record_batches

        batches = record_batches(self._rows)
        self._rows = []
        self.size_bytes += sum(batch.nbytes for batch in batches)
        self._batches += batches

    def content(self) -> bytes:
        """Sort and compress."""
        from strandline.export.arrow import parquet_bytes, sorted_table

        self._convert()
        return parquet_bytes(sorted_table(self._batches))


class GrowingLines:
    """Rows as lines of JSON."""

    def __init__(self) -> None:
        self._lines: list[tuple[tuple[Any, ...], bytes]] = []
        self.size_bytes = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Convert rows now."""
        for row in rows:
            line = json_line(row).encode()
            self.size_bytes += len(line)
            self._lines.append((sort_key(row), line))

    def content(self) -> bytes:
        """The lines in order."""
        return b"".join(line for _, line in sorted(self._lines))


def sort_key(row: Row) -> tuple[Any, ...]:
    """The place of a row in its file, absent values first."""
    return tuple((row.get(name) is not None, row.get(name) if row.get(name) is not None else 0) for name in SORT_ORDER)


def growing(kind: ExportFormat) -> Growing:
    """An empty file of a format."""
    return GrowingParquet() if kind is ExportFormat.PARQUET else GrowingLines()


def prepare(kind: ExportFormat) -> None:
    """Load what a format needs now, while nobody is served: importing pyarrow takes a third of a second of CPU."""
    if kind is ExportFormat.PARQUET:
        from strandline.export.arrow import parquet_bytes, sorted_table, table_of

        parquet_bytes(sorted_table(table_of([])))


def suffix_of(kind: ExportFormat) -> str:
    """How names of files of a format end."""
    return PARQUET if kind is ExportFormat.PARQUET else JSON_LINES


def parse_lines(content: bytes) -> list[Row]:
    """The rows of a file of JSON lines; a line that was cut off at the end is passed over.

    Raises:
        ValueError: another line is no JSON object.
    """
    lines = content.split(b"\n")
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is no object")
        rows.append(row)
    return rows
