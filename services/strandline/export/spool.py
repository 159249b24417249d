"""Decides what of the files that still grow outlives the process: their events, appended to a spool on its own disk.

An exported file is collected in memory for minutes and placed whole, so a process that is killed would take it along.
Its events therefore stand in a spool as well, as they came from the core, and whoever starts next on the same directory
makes of them the very file that was growing: the same name, the same rows. A spool goes when its file was placed or was
given up; placing a file twice replaces it by itself.

Nothing is fsynced: a process that is killed loses what the writer had not taken yet, a second at most; a machine that
loses power may lose all of it.

Invariant: a disk that fails or is full ends a spool and never the export; spools take ``most_bytes`` at most; what
cannot be read back is passed over. Reading runs no code: only plain values, tuples of ours and enums are read.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Any

from strandline.export.rows import Emitter, Taken
from strandline.export.runs import Run

FOLDER = "export-spool"
SUFFIX = ".spool"
MOST_BYTES = 64 << 20
_FORMAT = 1
_FRAME = Struct(">II")
"""Before each part: its length in bytes and its CRC-32."""
_UNREADABLE = (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, AttributeError, ImportError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a process left behind of one file."""

    path: Path
    dataset: str
    hour: int
    runs: tuple[Run, ...]


class Spool:
    """The spools of a data directory."""

    def __init__(self, directory: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = directory / FOLDER
        self._most_bytes = most_bytes
        self._left = sorted(self._folder.glob(f"*{SUFFIX}")) if self._folder.is_dir() else []
        self.size_bytes = sum(path.stat().st_size for path in self._left)

    def begin(self, dataset: str, hour: int, emitter: Emitter, first_seq: int) -> SpoolFile:
        """A spool for a file that begins to grow."""
        name = f"{dataset}-n{emitter.node_id}-i{emitter.incarnation}-{first_seq}{SUFFIX}"
        head = (_FORMAT, dataset, hour, (emitter.cluster_id, emitter.node_id, emitter.incarnation))
        return SpoolFile(self, self._folder / name, head)

    def left(self) -> Iterator[Left | Path]:
        """What the process before left behind, once: its events, or the path of what cannot be read."""
        paths, self._left = self._left, []
        for path in paths:
            yield _read(path) or path

    def forget(self, path: Path) -> None:
        """Remove a spool whose file is at its place, or is given up."""
        try:
            size = path.stat().st_size
            path.unlink()
            self.size_bytes -= size
        except OSError:
            # It is salvaged once more, into the same file.
            return

    def append(self, path: Path, parts: Sequence[object]) -> None:
        """Write parts behind each other.

        Raises:
            OSError: the disk fails, or there is too much already.
        """
        content = b"".join(_framed(part) for part in parts)
        if self.size_bytes + len(content) > self._most_bytes:
            raise OSError(f"spools hold {self.size_bytes} bytes, at most {self._most_bytes}")
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(content)
        self.size_bytes += len(content)


class SpoolFile:
    """The spool of one file that grows."""

    def __init__(self, spool: Spool, path: Path, head: object = None) -> None:
        self._spool = spool
        self._path = path
        self._before: list[object] = [head]
        self._is_broken = False

    def add(self, run: Run) -> None:
        """Append events. After a failure nothing more is: what is salvaged has no hole but its end."""
        if self._is_broken:
            return
        topics = {event.tp.topic_id for event in run.events if event.tp is not None}
        names = {topic_id: run.topic_name(topic_id) for topic_id in topics}
        try:
            self._spool.append(self._path, [*self._before, (list(run.seqs), list(run.events), names)])
        except (OSError, pickle.PicklingError, TypeError, AttributeError):
            self._is_broken = True
        self._before = []

    def forget(self) -> None:
        """Its file is at its place, or is given up."""
        self._spool.forget(self._path)


def _framed(part: object) -> bytes:
    content = pickle.dumps(part, protocol=5)
    return _FRAME.pack(len(content), zlib.crc32(content)) + content


class _Plain(pickle.Unpickler):
    """Reads values, tuples of ours and enums, and nothing that could do anything."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.partition(".")[0] == "strandline" else None
        if isinstance(found, type) and issubclass(found, (tuple, Enum)):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no value")


def _read(path: Path) -> Left | None:
    """What a spool holds, up to where it was cut off; None if that is nothing."""
    try:
        parts = list(_parts(path.read_bytes()))
        form, dataset, hour, (cluster_id, node_id, incarnation) = parts[0]
        if form != _FORMAT or len(parts) == 1:
            return None
        emitter = Emitter(cluster_id=cluster_id, node_id=node_id, incarnation=incarnation)
        topics = {topic: name for *_, names in parts[1:] for topic, name in names.items() if name is not None}
        runs = tuple(
            Run(emitter, seqs, [Taken(*event) for event in events], topics.get) for seqs, events, _ in parts[1:]
        )
        return Left(path=path, dataset=dataset, hour=hour, runs=runs)
    except (OSError, IndexError, *_UNREADABLE):
        return None


def _parts(content: bytes) -> Iterator[Any]:
    place = 0
    while place + _FRAME.size <= len(content):
        length, crc = _FRAME.unpack_from(content, place)
        part = content[place + _FRAME.size : place + _FRAME.size + length]
        if len(part) != length or zlib.crc32(part) != crc:
            return
        yield _Plain(io.BytesIO(part)).load()
        place += _FRAME.size + length
