"""Collects rows in files and places the files at a destination, with retries when it does not accept them.

A file holds one dataset and one hour of one incarnation. It ends at the end of the hour, after `roll_us`, or at
`max_bytes`. A file that cannot be placed waits in memory, encoded, and is tried again; when too many wait, the oldest
samples are given up first, transitions only after the last sample, and both are reported as lost.

With a spool, files that a killed process had not placed are placed by the next one on its directory (`spool.py`).

Invariant: nothing here raises because a destination fails, and the bytes that wait are bounded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from strandline.export import layout
from strandline.export.counters import OutletStats
from strandline.export.destination import Destination
from strandline.export.encoding import ExportFormat, Growing, growing, suffix_of
from strandline.export.layout import Manifest, SeqRange
from strandline.export.local_lines import Lost
from strandline.export.rows import Emitter, Run
from strandline.export.schema import SAMPLES, SCHEMA_VERSION
from strandline.export.spool import Spool, SpoolFile

_FIRST_RETRY_US = 1_000_000
_LONGEST_RETRY_US = 30_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """When a file ends, and how much may wait for its destination."""

    roll_us: int = 300_000_000
    max_bytes: int = 64 << 20
    waiting_bytes: int = 64 << 20


@dataclass(slots=True)
class _Open:
    """A file that still grows."""

    events: Growing
    emitter: Emitter
    hour: int
    opened_us: int
    first_us: int
    first_seq: int
    last_seq: int = 0
    spooled: SpoolFile | None = None


@dataclass(frozen=True, slots=True)
class _Ready:
    """A file that waits for its destination."""

    dataset: str
    manifest: Manifest
    content: bytes
    by_type: dict[str, int]
    first_us: int
    spooled: SpoolFile | None


class FileExport:
    """The outlet of files. ``said`` gets a sentence when the destination begins to fail and when it is back."""

    def __init__(
        self,
        destination: Destination,
        kind: ExportFormat = ExportFormat.PARQUET,
        limits: FileLimits = FileLimits(),
        said: Callable[[str], None] = lambda _: None,
        spool: Spool | None = None,
    ) -> None:
        self._destination = destination
        self._spool = spool
        self._kind = kind
        self._limits = limits
        self._said = said
        self._open: dict[str, _Open] = {}
        self._ready: deque[_Ready] = deque()
        self._lost: list[Lost] = []
        self._now_us: int | None = None
        self._retry_at_us = 0
        self._retry_us = _FIRST_RETRY_US
        self._folder = ""
        self.stats = OutletStats()

    def write(self, run: Run) -> None:
        """Add events to the open files; an hour's end closes one."""
        for hour, part in run.by_hour():
            for dataset, events in part.by_dataset().items():
                self._add(dataset, hour, events)

    def _add(self, dataset: str, hour: int, run: Run) -> None:
        opened = self._open.get(dataset)
        if opened is not None and opened.hour != hour:
            self._end(dataset)
            opened = None
        if opened is None:
            self._folder = layout.cluster_folder(run.emitter.cluster_id)
            opened_us = self._now_us if self._now_us is not None else run.events[0].mono_us
            opened = self._open[dataset] = _Open(
                growing(self._kind), run.emitter, hour, opened_us, run.events[0].mono_us, run.seqs[0]
            )
            if self._spool is not None:
                opened.spooled = self._spool.begin(dataset, hour, run.emitter, run.seqs[0])
        opened.events.add(run)
        if opened.spooled is not None:
            opened.spooled.add(run)
        opened.last_seq = run.seqs[-1]
        self._count_waiting()

    def tend(self, mono_us: int) -> list[Lost]:
        """End the files that are due, place what waits, give up what does not fit. Returns what was given up."""
        self._now_us = mono_us
        if self._spool is not None:
            self._salvage(self._spool, mono_us)
        for dataset, opened in list(self._open.items()):
            is_old = mono_us - opened.opened_us >= self._limits.roll_us
            if is_old or opened.events.size_bytes >= self._limits.max_bytes:
                self._end(dataset)
        if mono_us >= self._retry_at_us:
            self._place(mono_us)
        self._make_room()
        lost, self._lost = self._lost, []
        return lost

    def close(self, mono_us: int) -> None:
        """End every file and try once to place what waits; what cannot be placed is lost, or is left in the spool."""
        for dataset in list(self._open):
            self._end(dataset)
        self._place(mono_us)
        if self._ready:
            self._said(f"{len(self._ready)} export files could not be written to {self._destination} before the end")

    def _end(self, dataset: str) -> None:
        opened = self._open.pop(dataset, None)
        if opened is not None:
            self._finish(dataset, opened)

    def _finish(self, dataset: str, opened: _Open) -> None:
        seqs = SeqRange(
            node_id=opened.emitter.node_id,
            incarnation=opened.emitter.incarnation,
            first_seq=opened.first_seq,
            last_seq=opened.last_seq,
        )
        finished = opened.events.finish()
        manifest = Manifest(
            path=layout.data_path(dataset, opened.hour, seqs, suffix_of(self._kind)),
            rows=finished.rows,
            ranges=(seqs,),
            min_ts_wall_us=finished.min_us,
            max_ts_wall_us=finished.max_us,
            size_bytes=len(finished.content),
            sha256=hashlib.sha256(finished.content).hexdigest(),
            schema_version=SCHEMA_VERSION,
        )
        self._ready.append(
            _Ready(dataset, manifest, finished.content, finished.by_type, opened.first_us, opened.spooled)
        )
        self._count_waiting()

    def _salvage(self, spool: Spool, mono_us: int) -> None:
        """Make the files that were growing when the process before was killed; done once."""
        for found in spool.left():
            if isinstance(found, Path):
                self._said(f"{found} is not a spool of events that can be read, and is removed")
                spool.forget(found)
                continue
            seqs = [seq for run in found.runs for seq in run.seqs]
            emitter = found.runs[0].emitter
            grown = _Open(growing(self._kind), emitter, found.hour, mono_us, mono_us, min(seqs), max(seqs))
            grown.spooled = SpoolFile(spool, found.path)
            for run in found.runs:
                grown.events.add(run)
            self._folder = layout.cluster_folder(emitter.cluster_id)
            self._finish(found.dataset, grown)
            self._said(f"{len(seqs)} {found.dataset} of a process that was killed are exported now: {found.path.name}")

    def _place(self, mono_us: int) -> None:
        """Place what waits, the oldest first, until one fails."""
        while self._ready:
            file = self._ready[0]
            try:
                self._destination.put(f"{self._folder}/{file.manifest.path}", file.content)
                manifest_path = layout.manifest_path(file.manifest.path)
                self._destination.put(f"{self._folder}/{manifest_path}", file.manifest.to_json().encode())
            except OSError as error:
                self._failed(error, mono_us)
                return
            self._ready.popleft()
            self._placed(file)

    def _placed(self, file: _Ready) -> None:
        if file.spooled is not None:
            file.spooled.forget()
        stats = self.stats
        stats.rows, stats.files = stats.rows + file.manifest.rows, stats.files + 1
        stats.bytes += file.manifest.size_bytes
        self._count_waiting()
        self._retry_us = _FIRST_RETRY_US
        if stats.is_failing:
            stats.is_failing = False
            self._said(f"export to {self._destination} works again")

    def _failed(self, error: OSError, mono_us: int) -> None:
        stats = self.stats
        stats.failures, stats.last_failure = stats.failures + 1, str(error)
        self._retry_at_us = mono_us + self._retry_us
        self._retry_us = min(2 * self._retry_us, _LONGEST_RETRY_US)
        if not stats.is_failing:
            stats.is_failing = True
            self._said(f"export to {self._destination} fails, the node goes on without it: {error}")

    def _make_room(self) -> None:
        while sum(len(file.content) for file in self._ready) > self._limits.waiting_bytes:
            victim = next((file for file in self._ready if file.dataset == SAMPLES), self._ready[0])
            self._ready.remove(victim)
            if victim.spooled is not None:
                victim.spooled.forget()
            (seqs,) = victim.manifest.ranges
            self._lost.append(Lost(first_seq=seqs.first_seq, last_seq=seqs.last_seq, by_type=victim.by_type))
            self.stats.lost_rows += victim.manifest.rows
        self._count_waiting()

    def _count_waiting(self) -> None:
        self.stats.waiting_files = len(self._ready)
        self.stats.waiting_bytes = sum(len(file.content) for file in self._ready)
        taken = [opened.first_us for opened in self._open.values()] + [file.first_us for file in self._ready]
        self.stats.oldest_us = min(taken, default=None)


# ---- recover
# The export of a process that was killed and does not run again yet: what its spool holds, placed as files.
#
# The next process on its data directory would place the same files, under the same names.
#
# Invariant: a spool is taken from no process that runs, and goes only when its file is at its place.

_LOCKS = (".lock", "lock")
"""What a data node, and a controller whose store is elsewhere, hold while they run."""


class StillRuns(Exception):
    """A process uses the data directory."""


def recover(data_dir: Path, destination: Destination, kind: ExportFormat, said: Callable[[str], None]) -> int:
    """Place what a killed process left; returns how many files that were.

    Raises:
        StillRuns: the process runs, and exports by itself.
        OSError: the destination does not take a file; what it did not take stays in the spool.
    """
    with _held(data_dir):
        outlet = FileExport(destination, kind, FileLimits(waiting_bytes=1 << 40), said, Spool(data_dir))
        outlet.tend(0)
        if outlet.stats.waiting_files:
            raise OSError(outlet.stats.last_failure)
        return outlet.stats.files


@contextmanager
def _held(data_dir: Path) -> Iterator[None]:
    """Keep a data directory from other processes that look."""
    locks = [path for name in _LOCKS if (path := data_dir / name).exists()]
    if not locks and _is_named(data_dir):
        raise StillRuns(f"the process that {data_dir / 'endpoint.json'} names runs")
    with ExitStack() as files:
        try:
            for path in locks:
                fcntl.flock(files.enter_context(path.open("rb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StillRuns(f"a process runs on {data_dir}") from error
        yield


def _is_named(data_dir: Path) -> bool:
    """Whether the directory names a process that lives."""
    try:
        os.kill(int(json.loads((data_dir / "endpoint.json").read_text(encoding="utf-8"))["pid"]), 0)
    except (FileNotFoundError, ProcessLookupError, ValueError, KeyError):
        return False
    except PermissionError:
        pass  # It is another user's.
    return True
