"""One append and one sync for all small changes of a step: the frames of ``checkpoint.journal``.

Decides which frames are replayed, and when an unreadable one is a loss. The frames are in two files that take turns:
one grows until the checkpoint files hold everything in the other, which is then started again.

Invariants: frames are numbered without a gap. A frame records which frames were durable, and which ones the checkpoint
files held, when it was written. An unreadable frame that was durable and is in no checkpoint file is a loss (M58); any
other unreadable one is a torn end, which was never acknowledged.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import crc32c

from strandline.storage.disk import StorageFailed, sync_data, sync_directory, truncate_file, write_again, write_at

JOURNAL_NAMES = ("checkpoint.journal.0", "checkpoint.journal.1")
LIMIT_BYTES = 4 << 20
"""The size at which a file stops growing. A start reads 4 MiB in some milliseconds; metadata of 1,000 partitions has
about 0.1 MB, so the checkpoint files are written once per some ten changes of all leaders."""

_MAGIC = b"SLJ1"
_HEAD = struct.Struct(">4sIIQQQ")
_CRC = struct.Struct(">I")
HEAD_BYTES = _HEAD.size + _CRC.size
_NONE = -1


class Head(NamedTuple):
    """The head of a frame: facts about itself and about the frames before it."""

    size_bytes: int
    """Size of the payload."""
    payload_crc: int
    sequence: int
    """The frame's number, from 1 on."""
    durable: int
    """The last frame that was durable when this one was written, 0 without one."""
    complete: int
    """The last frame whose changes were all durable in the checkpoint files by then, 0 without one."""


class Frame(NamedTuple):
    """A whole frame, and where it ends in its file."""

    head: Head
    payload: bytes
    end: int


class FoundFile(NamedTuple):
    """The content of one file: whole frames from its first byte on, and intact ones behind the first fault."""

    frames: tuple[Frame, ...] = ()
    later: tuple[Frame, ...] = ()
    strays: tuple[Head, ...] = ()
    """Intact heads behind the fault, with or without a whole frame."""

    @property
    def end(self) -> int:
        """The end position of the frames in front of the fault."""
        return self.frames[-1].end if self.frames else 0

    @property
    def last(self) -> int:
        """The number of the last frame in front of the fault; 0 without one."""
        return self.frames[-1].head.sequence if self.frames else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJournal:
    """The content of both files, and the verdict on it."""

    exists: bool
    """False in a directory of a release without a journal."""
    files: tuple[FoundFile, FoundFile] = (FoundFile(), FoundFile())
    payloads: tuple[bytes, ...] = ()
    """The payloads of the frames that the checkpoint files do not hold, in order."""
    last: int = 0
    """The number of the last valid frame."""
    complete: int = 0
    """The number of the frame up to which the checkpoint files hold everything."""
    fault: str | None = None
    """Which durable frames cannot be read (M58)."""

    @property
    def highest(self) -> int:
        """The highest number in any intact head; later frames must not use it again."""
        return max((head.sequence for head in _heads(self.files)), default=0)


def encode_frame(payload: bytes, *, sequence: int, durable: int, complete: int) -> list[bytes]:
    """Head and payload of a frame, in the form in which they are written."""
    head = _HEAD.pack(_MAGIC, len(payload), crc32c.crc32c(payload), sequence, durable, complete)
    return [head, _CRC.pack(crc32c.crc32c(head)), payload]


def read_file(content: bytes) -> FoundFile:
    """The frames of one file; a size in a damaged head is compared with the file, and never allocated."""
    frames: list[Frame] = []
    at = 0
    while (frame := _frame_at(content, at)) is not None:
        if frames and frame.head.sequence != frames[-1].head.sequence + 1:
            break
        frames.append(frame)
        at = frame.end
    # Heads behind the fault show whether what cannot be read was durable, and thus lost, or only a torn end.
    behind = [(head, _frame_at(content, place)) for head, place in _heads_behind(content, at)]
    later = tuple(frame for _, frame in behind if frame is not None)
    return FoundFile(tuple(frames), later, tuple(head for head, _ in behind))


def _frame_at(content: bytes, at: int) -> Frame | None:
    head = _head_at(content, at)
    if head is None or head.size_bytes > len(content) - at - HEAD_BYTES:
        return None
    end = at + HEAD_BYTES + head.size_bytes
    payload = content[at + HEAD_BYTES : end]
    return Frame(head, payload, end) if crc32c.crc32c(payload) == head.payload_crc else None


def _head_at(content: bytes, at: int) -> Head | None:
    if len(content) - at < HEAD_BYTES:
        return None
    magic, *fields = _HEAD.unpack_from(content, at)
    (crc,) = _CRC.unpack_from(content, at + _HEAD.size)
    if magic != _MAGIC or crc != crc32c.crc32c(content[at : at + _HEAD.size]):
        return None
    return Head(*fields)


def _heads_behind(content: bytes, at: int) -> Iterator[tuple[Head, int]]:
    while (at := content.find(_MAGIC, at)) != _NONE:
        head = _head_at(content, at)
        if head is not None:
            yield head, at
        at += 1


def _heads(files: Iterable[FoundFile]) -> Iterator[Head]:
    for file in files:
        yield from (frame.head for frame in file.frames)
        yield from file.strays


def read_journal(directory: Path, *, at_least: int = 0) -> FoundJournal:
    """Read both files. Nothing is changed, so it can be used while the node runs.

    ``at_least``: the number of a frame that is known to have been durable.
    """
    contents = _contents(directory)
    found = _read(contents, at_least)
    while found.fault is not None and (again := _contents(directory)) != contents:
        # A running node may have written between the readings of the two files.
        contents = again
        found = _read(contents, at_least)
    return found


def _read(contents: list[bytes | None], at_least: int) -> FoundJournal:
    if all(content is None for content in contents):
        return FoundJournal(exists=False)
    first, second = (read_file(content or b"") for content in contents)
    found = judge((first, second), at_least)
    # Both are created before the first frame is written, so one alone means that the other was lost.
    missing = [name for name, content in zip(JOURNAL_NAMES, contents, strict=True) if content is None]
    return replace(found, fault=f"{missing[0]} is missing") if missing else found


def judge(files: tuple[FoundFile, FoundFile], at_least: int = 0) -> FoundJournal:
    """Decide which frames are valid, and whether durable ones cannot be read."""
    heads = tuple(_heads(files))
    if not heads:
        return FoundJournal(exists=True, files=files, fault="checkpoint.journal has no frame that can be read")
    # An intact head counts without its payload: what it says of earlier frames was true when it was written.
    complete = max(head.complete for head in heads)
    durable = max(at_least, *(head.durable for head in heads))
    last, payloads = complete, []
    whole = (frame for file in files for frame in (*file.frames, *file.later))
    for frame in sorted(whole, key=lambda frame: frame.head.sequence):
        # Behind a frame that is missing no other is used: it would change a state that is not known.
        if frame.head.sequence == last + 1:
            payloads.append(frame.payload)
            last += 1
    fault = None
    if last < durable:
        fault = f"checkpoint.journal is damaged: frames {last + 1} to {durable} were durable and cannot be read"
    return FoundJournal(exists=True, files=files, payloads=tuple(payloads), last=last, complete=complete, fault=fault)


def _contents(directory: Path) -> list[bytes | None]:
    return [_content(directory / name) for name in JOURNAL_NAMES]


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@dataclass(slots=True)
class Journal:
    """The journal of one locked data directory, written by one process. For the loop thread only.

    The simulator has files in memory, and overrides the four methods whose names end in "file" or "files".
    """

    directory: Path
    found: FoundJournal
    limit_bytes: int = LIMIT_BYTES
    sequence: int = field(init=False)
    """The number of the last frame."""
    durable: int = field(init=False)
    """The number of the last frame that is durable."""
    complete: int = field(init=False)
    """The number of the last frame whose changes are durable in the checkpoint files."""
    _active: int = field(init=False)
    _size_bytes: int = field(init=False)
    _last_of: list[int] = field(init=False)
    # What the last durable frame says about the checkpoint files: only this survives a power failure.
    _stated: int = field(init=False)
    _fds: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        found = self.found
        self.sequence = self.durable = found.last
        self.complete = found.complete
        kept = [frame.head.complete for file in found.files for frame in file.frames]
        self._stated = max(kept, default=0)
        self._last_of = [file.last for file in found.files]
        self._active = self._last_of.index(found.last) if found.last in self._last_of else 0
        self._size_bytes = found.files[self._active].end

    @property
    def begins_again(self) -> bool:
        """Whether `open` discards the files, absent or damaged; the checkpoint files must then hold what was read."""
        found = self.found
        if not found.exists or found.fault is not None or found.last not in self._last_of:
            return True
        # A number that a later frame will use must not be read twice; a torn end is cut off.
        other = found.files[1 - self._active]
        kept = (*found.files[self._active].frames, *other.frames, *other.later)
        return any(frame.head.sequence > found.last for frame in kept)

    @property
    def is_full(self) -> bool:
        """Whether the current file has reached its limit and the other one is still needed."""
        return self._size_bytes >= self.limit_bytes and self.complete < self._last_of[1 - self._active]

    @property
    def size_bytes(self) -> int:
        """The size of the current file."""
        return self._size_bytes

    def open(self, *, again: bool | None = None) -> None:
        """Make the content durable and drop a torn end, or begin ``again``; the default is `begins_again`.

        Raises:
            StorageFailed: the disk failed.
        """
        self.open_files()
        if self.begins_again if again is None else again:
            for self._active in (0, 1):
                self.cut_file(0)
                self.sync_file()
            self._begin()
            return
        self.cut_file(self._size_bytes)
        self.sync_file()

    def _begin(self) -> None:
        """Write a first frame, so that a journal without any readable frame is known to be damaged."""
        # Numbers continue, and all earlier ones are in the checkpoint files, so remains of lost writes are never used.
        self.sequence = self.durable = self.complete = max(self.found.highest, self.found.last)
        self._active = self._size_bytes = 0
        self._last_of = [0, 0]
        self.append(b"", durable=True)

    def append(self, payload: bytes, *, durable: bool) -> None:
        """Write one frame; with ``durable`` make it and all before it durable. Raises `StorageFailed`."""
        if not self._fds:
            self.open()
        if self._size_bytes >= self.limit_bytes and self._stated >= self._last_of[1 - self._active]:
            self._take_turns()
        sequence = self.sequence + 1
        buffers = encode_frame(payload, sequence=sequence, durable=self.durable, complete=self.complete)
        self.write_file(buffers)
        self._size_bytes += HEAD_BYTES + len(payload)
        self.sequence = self._last_of[self._active] = sequence
        if durable:
            self._sync()

    def _sync(self) -> None:
        self.sync_file()
        self.durable, self._stated = self.sequence, self.complete

    def _take_turns(self) -> None:
        """Continue in the other file, because the checkpoint files hold all of it and a durable frame says so."""
        # Later syncs are of the other file and would never cover the frames of this one.
        if self.durable < self.sequence:
            self._sync()
        self._active = 1 - self._active
        # Not synced: a power failure can only bring back frames that the checkpoint files hold.
        self.cut_file(0)
        self._size_bytes = 0

    def open_files(self) -> None:
        """Open both files, or create them durably."""
        self._fds = [_opened(self.directory / name) for name in JOURNAL_NAMES]
        sync_directory(self.directory)

    def write_file(self, buffers: list[bytes]) -> None:
        """Write behind the last frame."""
        write_at(self._fds[self._active], self._path, buffers, self._size_bytes)

    def sync_file(self) -> None:
        """Make all of the file durable."""
        sync_data(self._fds[self._active], self._path)

    def cut_file(self, size_bytes: int) -> None:
        """Truncate the file and rewrite what is left, so that the next sync makes it durable.

        The last run may have ended with a failed sync, after which the kernel marks lost pages as clean.
        """
        fd = self._fds[self._active]
        truncate_file(fd, self._path, size_bytes)
        write_again(fd, self._path, 0, size_bytes)

    @property
    def _path(self) -> Path:
        return self.directory / JOURNAL_NAMES[self._active]

    def close(self) -> None:
        """Close the files."""
        while self._fds:
            os.close(self._fds.pop())


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageFailed("open", path, error) from error
