"""The bytes of a file: Parquet, or JSON lines where pyarrow is not wanted.

Invariant: both formats hold the same rows in the same order (`schema.SORT_ORDER`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

from strandline.core.state_events import ExportHeartbeat
from strandline.export.layout import JSON_LINES, PARQUET
from strandline.export.local_lines import json_line
from strandline.export.rows import Emitter, Finished, Row, Run, Taken
from strandline.export.schema import SORT_ORDER


class ExportFormat(StrEnum):
    """The formats of exported files."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class Growing(Protocol):
    """A file that is being collected in memory."""

    size_bytes: int

    def add(self, run: Run) -> None:
        """Take events."""
        ...

    def finish(self) -> Finished:
        """The file."""
        ...


class GrowingLines:
    """Rows as lines of JSON."""

    def __init__(self) -> None:
        self._lines: list[tuple[tuple[Any, ...], bytes]] = []
        self._by_type: dict[str, int] = {}
        self._walls_us: list[int] = []
        self.size_bytes = 0

    def add(self, run: Run) -> None:
        """Convert events now."""
        for row in run.rows():
            line = json_line(row).encode()
            self.size_bytes += len(line)
            self._lines.append((sort_key(row), line))
            self._walls_us.append(row["ts_wall_us"])
            self._by_type[row["event_type"]] = self._by_type.get(row["event_type"], 0) + 1

    def finish(self) -> Finished:
        """The lines in order."""
        return Finished(
            content=b"".join(line for _, line in sorted(self._lines)),
            by_type=self._by_type,
            min_us=min(self._walls_us),
            max_us=max(self._walls_us),
        )


def sort_key(row: Row) -> tuple[Any, ...]:
    """The place of a row in its file, absent values first."""
    return tuple((row.get(name) is not None, row.get(name) if row.get(name) is not None else 0) for name in SORT_ORDER)


def growing(kind: ExportFormat) -> Growing:
    """An empty file of a format."""
    if kind is ExportFormat.PARQUET:
        from strandline.export.arrow import GrowingParquet

        return GrowingParquet()
    return GrowingLines()


def encoded(kind: ExportFormat, rows: Sequence[Row]) -> bytes:
    """The bytes of a file of rows that were read from others."""
    if kind is ExportFormat.PARQUET:
        from strandline.export.arrow import parquet_bytes, table_of, whole_table

        return parquet_bytes(whole_table(table_of(rows)))
    return "".join(json_line(row) for row in sorted(rows, key=sort_key)).encode()


def prepare(kind: ExportFormat) -> None:
    """Write a file of one event now, before anything is served: loading pyarrow takes a third of a second of CPU."""
    unused = Emitter(cluster_id="", node_id=0, incarnation=0)
    file = growing(kind)
    file.add(Run(unused, [1], [Taken(0, 0, ExportHeartbeat(0), None)], lambda _: None))
    file.finish()


def suffix_of(kind: ExportFormat) -> str:
    """How names of files of a format end."""
    return PARQUET if kind is ExportFormat.PARQUET else JSON_LINES


def parse_lines(content: bytes) -> list[Row]:
    """The rows of a file of JSON lines; a line that was cut off at the end is passed over.

    Raises:
        ValueError: another line is not a JSON object.
    """
    lines = content.split(b"\n")
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except RecursionError:
            raise ValueError(f"line {number} is nested too deeply") from None
        except ValueError:
            if number == len(lines):
                break
            raise
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not an object")
        rows.append(row)
    return rows
