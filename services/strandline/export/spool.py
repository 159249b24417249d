"""Keeps the events of files that still grow beyond the end of the process, in spools on its own disk.

An exported file is collected in memory for minutes and placed whole, so it would be lost if the process is killed.
Its events are therefore also written to a spool, as they came from the core, and the next process on that directory
makes the same file from them, with the same name and rows. A spool is removed when its file was placed or given up;
placing a file twice replaces it by an identical one.

Nothing is fsynced: a process that is killed loses the events that the writer had not taken yet, a second at most; a
machine that loses power may lose all events in the spools.

Invariant: a disk that fails or is full ends a spool but never the export; spools take ``most_bytes`` at most; what
cannot be read back is skipped. Parts are MessagePack and are read back as values of declared types, never as code.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from strandline.core.state_events import EVENT_TYPES, NAME_OF
from strandline.core.types import TopicPartition
from strandline.export.rows import Emitter, Run, Taken

FOLDER = "export-spool"
SUFFIX = ".spool"
MOST_BYTES = 64 << 20
_FORMAT = 3
_FRAME = Struct(">II")
"""Before each part: its length in bytes and its CRC-32."""


class _Head(NamedTuple):
    """The first part of a spool: identifies the file that the other parts belong to."""

    form: int
    dataset: str
    hour: int
    cluster_id: str
    node_id: int
    incarnation: int


class _Spooled(NamedTuple):
    """A `Taken` with the name of its event's class, and its values."""

    wall_us: int
    mono_us: int
    name: str
    values: list[Any]
    tp: TopicPartition | None
    controller_epoch: int | None


class _Part(NamedTuple):
    """Events with their numbers, and the names of their topics where known."""

    seqs: list[int]
    events: list[_Spooled]
    names: dict[str, str | None]


_HEAD, _PART = msgspec.msgpack.Decoder(_Head), msgspec.msgpack.Decoder(_Part)
_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The events of one file that an earlier process left behind."""

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
        head = _Head(_FORMAT, dataset, hour, emitter.cluster_id, emitter.node_id, emitter.incarnation)
        return SpoolFile(self, self._folder / name, head)

    def left(self) -> Iterator[Left | Path]:
        """Each spool that an earlier process left: its events, or its path if unreadable. Later calls yield nothing."""
        paths, self._left = self._left, []
        for path in paths:
            yield _read(path) or path

    def forget(self, path: Path) -> None:
        """Remove a spool whose file was placed or given up."""
        try:
            size = path.stat().st_size
            path.unlink()
            self.size_bytes -= size
        except OSError:
            # The next process salvages it once more, into the same file.
            return

    def append(self, path: Path, parts: Sequence[object]) -> None:
        """Append parts to a spool.

        Raises:
            OSError: the disk fails, or the spools would exceed their limit.
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
        """Append events. After a failure no more are appended, so that salvaged events have no gap before their end."""
        if self._is_broken:
            return
        topics = {event.tp.topic_id for event in run.events if event.tp is not None}
        names = {topic_id: run.topic_name(topic_id) for topic_id in topics}
        events = [_spooled(taken) for taken in run.events]
        try:
            self._spool.append(self._path, [*self._before, _Part(list(run.seqs), events, names)])
        except (OSError, msgspec.MsgspecError, TypeError, OverflowError):
            self._is_broken = True
        self._before = []

    def forget(self) -> None:
        """Remove the spool, because its file was placed or given up."""
        self._spool.forget(self._path)


def _spooled(taken: Taken) -> _Spooled:
    name = NAME_OF[type(taken.event)]
    return _Spooled(taken.wall_us, taken.mono_us, name, list(taken.event), taken.tp, taken.controller_epoch)


def _taken(spooled: _Spooled) -> Taken:
    event = msgspec.convert(spooled.values, EVENT_TYPES[spooled.name].kind)
    return Taken(spooled.wall_us, spooled.mono_us, event, spooled.tp, spooled.controller_epoch)


def _framed(part: object) -> bytes:
    content = _ENCODER.encode(part)
    return _FRAME.pack(len(content), zlib.crc32(content)) + content


def _read(path: Path) -> Left | None:
    """The events of a spool, up to where it was cut off; None if it has none that can be read."""
    try:
        contents = list(_contents(path.read_bytes()))
        head = _HEAD.decode(contents[0])
        parts = [_PART.decode(content) for content in contents[1:]]
        events = [[_taken(event) for event in part.events] for part in parts]
    except (OSError, IndexError, KeyError, msgspec.MsgspecError):
        return None
    if head.form != _FORMAT or not parts:
        return None
    emitter = Emitter(cluster_id=head.cluster_id, node_id=head.node_id, incarnation=head.incarnation)
    topics = {topic: name for part in parts for topic, name in part.names.items() if name is not None}
    runs = tuple(Run(emitter, part.seqs, taken, topics.get) for part, taken in zip(parts, events, strict=True))
    return Left(path=path, dataset=head.dataset, hour=head.hour, runs=runs)


def _contents(spool: bytes) -> Iterator[bytes]:
    place = 0
    while place + _FRAME.size <= len(spool):
        length, crc = _FRAME.unpack_from(spool, place)
        content = spool[place + _FRAME.size : place + _FRAME.size + length]
        if len(content) != length or zlib.crc32(content) != crc:
            return
        yield content
        place += _FRAME.size + length
