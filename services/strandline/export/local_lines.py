"""What a data directory keeps of its own events: the transitions, as JSON lines, in two files at most.

For people and for `strandline demo`; the files for analysis are `files.py`'s. Samples are left out: they would push
what happened out of the two files within minutes.

Invariant: a failing disk ends this record, never the process; the number of events is known from their ``seq``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from strandline.export.counters import OutletStats
from strandline.export.rows import Row, Run
from strandline.export.schema import TRANSITIONS

# ---- outlet
# What takes numbered events from the pipeline: files for analysis, or a short local record for people.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Rows that an outlet had to give up: their numbers lie in this range, so many of each type."""

    first_seq: int
    last_seq: int
    by_type: dict[str, int]


class Outlet(Protocol):
    """Called by the writer thread only. Nothing here may raise for a destination that fails."""

    @property
    def stats(self) -> OutletStats:
        """What became of the events so far."""
        ...

    def write(self, run: Run) -> None:
        """Take events in the order of their numbers."""
        ...

    def tend(self, mono_us: int) -> list[Lost]:
        """Do what is due (roll, retry). Returns what was given up since the last time."""
        ...

    def close(self, mono_us: int) -> None:
        """Write what is left, as far as the destination lets."""
        ...


EVENTS_NAME = "events.jsonl"
MAX_FILE_BYTES = 64 << 20


class LocalLines:
    """Writes ``events.jsonl``; the previous file is kept as ``events.jsonl.1``."""

    def __init__(self, directory: Path, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = directory / EVENTS_NAME
        self._max_file_bytes = max_file_bytes
        self._file: TextIO | None = None
        self.is_broken = False
        self.stats = OutletStats()
        """Empty: this record is not a destination, and its rows are in the files as well."""

    def write(self, run: Run) -> None:
        """Append a line for each event that is no sample."""
        rows = run.of(TRANSITIONS).rows()
        if self.is_broken or not rows:
            return
        try:
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8")
            self._file.writelines(map(json_line, rows))
            self._file.flush()
            if self._file.tell() > self._max_file_bytes:
                self._rotate(self._file)
        except OSError:
            # Reports are not worth a process: a full disk stops them, not the node.
            self.is_broken = True

    def _rotate(self, file: TextIO) -> None:
        file.close()
        self._path.replace(self._path.with_name(f"{EVENTS_NAME}.1"))
        self._file = self._path.open("a", encoding="utf-8")

    def tend(self, mono_us: int) -> list[Lost]:
        """Nothing is ever due, and what does not fit is not reported here."""
        return []

    def close(self, mono_us: int) -> None:
        """Close the file."""
        try:
            if self._file is not None:
                self._file.close()
        except OSError:
            self.is_broken = True


def json_line(row: Row) -> str:
    """A row as a line of JSON."""
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"
