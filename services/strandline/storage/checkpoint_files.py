"""The small text files next to the logs: epochs, offsets, and the topic id of each log's directory.

Invariant: each file is replaced as a whole and contains its own length, so a damaged one is recognized
(`CheckpointDamaged`) and never read as a shorter one. The forms are Kafka's (M36, M63).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.storage.disk import replace_file

# ---- saves
# The changes of the small files, in the form of the journal's frames.
#
# Invariant: decoding gives exactly what was encoded, or raises `SavesDamaged`; a declared count is compared with the
# remaining bytes before it is used.

LogName = tuple[str, int]
"""Topic name and partition: the name of a log in the files of a data directory."""


class Kind(IntEnum):
    """The file of offsets that a change belongs to."""

    HIGH_WATERMARK = 0
    RECOVERY_POINT = 1
    LOG_START = 2
    RECONCILED_EPOCH = 3


class OffsetsSaved(NamedTuple):
    """Offsets of some logs, in one of the files of a data directory."""

    kind: Kind
    rows: tuple[tuple[LogName, Offset], ...]


class EpochsSaved(NamedTuple):
    """All epochs of one log."""

    name: LogName
    topic_id: str
    """Empty if the writer did not know it."""
    entries: tuple[EpochEntry, ...]


class LogMade(NamedTuple):
    """A log was created, for this topic id (M63)."""

    name: LogName
    topic_id: str


MOVED = ".moved"
"""An older release reads it as part of the topic id, finds no such log, and leaves the folder alone."""


class LogForgotten(NamedTuple):
    """A log is gone: nothing that was saved under its name is valid any more."""

    name: LogName
    topic_id: str
    """The topic id of a deleted log, followed by `MOVED` if its files are kept for a while (C78); empty for a log that
    was already set aside."""


class MetadataSaved(NamedTuple):
    """The newest metadata, in the form of `metadata.snapshot`."""

    content: bytes


Save = OffsetsSaved | EpochsSaved | LogMade | LogForgotten | MetadataSaved

_NAME = struct.Struct(">HI")
_LENGTH = struct.Struct(">I")
_SHORT = struct.Struct(">H")
_OFFSETS = struct.Struct(">BI")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">iq")
_ROW_BYTES = _NAME.size + _OFFSET.size


class SavesDamaged(Exception):
    """A frame's payload has a form that this release does not write."""


def encode(saves: Iterable[Save]) -> bytes:
    """The changes of one step, in order."""
    parts: list[bytes] = []
    for save in saves:
        kind = _KINDS.index(type(save))
        parts.append(bytes((kind,)))
        _ENCODERS[kind](save, parts)
    return b"".join(parts)


def decode(payload: bytes) -> list[Save]:
    """The changes, in order.

    Raises:
        SavesDamaged: the payload has another form.
    """
    reader = _Reader(payload)
    saves: list[Save] = []
    while not reader.at_end:
        kind = reader.take(1)[0]
        if kind >= len(_DECODERS):
            raise SavesDamaged(f"change {kind} is unknown")
        saves.append(_DECODERS[kind](reader))
    return saves


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._content)

    def take(self, size: int) -> bytes:
        self.expect(size)
        begin, self._at = self._at, self._at + size
        return self._content[begin : self._at]

    def expect(self, size: int) -> None:
        """Raise unless so many bytes are left."""
        if size > len(self._content) - self._at:
            raise SavesDamaged(f"{size} bytes expected, {len(self._content) - self._at} left")

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise SavesDamaged("a name is not UTF-8 text") from error

    def name(self) -> LogName:
        size, partition = self.numbers(_NAME)
        return self.text(size), partition

    def topic_id(self) -> str:
        (size,) = self.numbers(_SHORT)
        return self.text(size)

    def count(self, row_bytes: int) -> int:
        (count,) = self.numbers(_LENGTH)
        self.expect(count * row_bytes)
        return count


def _put_name(name: LogName, parts: list[bytes]) -> None:
    topic = name[0].encode()
    parts += (_NAME.pack(len(topic), name[1]), topic)


def _put_text(text: str, parts: list[bytes]) -> None:
    content = text.encode()
    parts += (_SHORT.pack(len(content)), content)


def _put_offsets(save: OffsetsSaved, parts: list[bytes]) -> None:
    parts.append(_OFFSETS.pack(save.kind, len(save.rows)))
    for name, offset in save.rows:
        _put_name(name, parts)
        parts.append(_OFFSET.pack(offset))


def _offsets(reader: _Reader) -> OffsetsSaved:
    kind = reader.take(1)[0]
    if kind not in set(Kind):
        raise SavesDamaged(f"offsets of kind {kind} are unknown")
    count = reader.count(_ROW_BYTES)
    return OffsetsSaved(Kind(kind), tuple((reader.name(), _offset(reader)) for _ in range(count)))


def _offset(reader: _Reader) -> Offset:
    (offset,) = reader.numbers(_OFFSET)
    if offset < 0:
        raise SavesDamaged(f"offset {offset} is negative")
    return Offset(offset)


def _put_epochs(save: EpochsSaved, parts: list[bytes]) -> None:
    _put_name(save.name, parts)
    _put_text(save.topic_id, parts)
    parts.append(_LENGTH.pack(len(save.entries)))
    parts += [_EPOCH.pack(*entry) for entry in save.entries]


def _epochs(reader: _Reader) -> EpochsSaved:
    name, topic_id = reader.name(), reader.topic_id()
    rows = [reader.numbers(_EPOCH) for _ in range(reader.count(_EPOCH.size))]
    entries = tuple(EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in rows)
    if any(epoch < 0 or start < 0 for epoch, start in rows):
        raise SavesDamaged("an epoch entry is negative")
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise SavesDamaged(f"entries {earlier} and {later} do not increase")
    return EpochsSaved(name, topic_id, entries)


def _put_owner(save: LogMade | LogForgotten, parts: list[bytes]) -> None:
    _put_name(save.name, parts)
    _put_text(save.topic_id, parts)


def _put_metadata(save: MetadataSaved, parts: list[bytes]) -> None:
    parts += (_LENGTH.pack(len(save.content)), save.content)


# The place of a kind is its number on the disk: new ones go to the end.
_KINDS: tuple[type[Save], ...] = (OffsetsSaved, EpochsSaved, LogMade, LogForgotten, MetadataSaved)
_ENCODERS: tuple[Callable[..., None], ...] = (_put_offsets, _put_epochs, _put_owner, _put_owner, _put_metadata)
_DECODERS: tuple[Callable[[_Reader], Save], ...] = (
    _offsets,
    _epochs,
    lambda reader: LogMade(reader.name(), reader.topic_id()),
    lambda reader: LogForgotten(reader.name(), reader.topic_id()),
    lambda reader: MetadataSaved(reader.take(reader.count(1))),
)


EPOCHS_NAME = "leader-epoch-checkpoint"
METADATA_NAME = "partition.metadata"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME = "log-start-offset-checkpoint"
RECONCILED_NAME = "reconciled-epoch-checkpoint"

_VERSION = "0"


class CheckpointDamaged(Exception):
    """A checkpoint file has a wrong form."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is damaged: {reason}")


def epochs_content(entries: Iterable[EpochEntry]) -> bytes:
    """``leader-epoch-checkpoint`` of these entries."""
    return _content([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def read_epochs(directory: Path) -> list[EpochEntry] | None:
    """The entries of ``leader-epoch-checkpoint``, or ``None`` without a file.

    Raises:
        CheckpointDamaged: the file has another form, or does not strictly increase in both fields.
    """
    path = directory / EPOCHS_NAME
    rows = _read_rows(path)
    if rows is None:
        return None
    numbers = (_numbers(path, row, 2) for row in rows)
    entries = [EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in numbers]
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise CheckpointDamaged(path, f"entries {earlier} and {later} do not increase")
    return entries


def write_topic_id(directory: Path, topic_id: str, *, durable: bool = True) -> None:
    """Write ``partition.metadata``: the log belongs to this topic id (M63). Raises `StorageFailed`."""
    replace_file(directory / METADATA_NAME, topic_id_content(topic_id), durable=durable)


def topic_id_content(topic_id: str) -> bytes:
    """``partition.metadata`` of a topic id."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}\n".encode()


def read_topic_id(directory: Path) -> str | None:
    """The topic id in ``partition.metadata``, or ``None`` without a file.

    Raises:
        CheckpointDamaged: the file has another form.
    """
    path = directory / METADATA_NAME
    text = _read_text(path)
    if text is None:
        return None
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    if fields.get("version") != _VERSION or not fields.get("topic_id"):
        raise CheckpointDamaged(path, "it needs the lines 'version: 0' and 'topic_id: ...'")
    return fields["topic_id"]


@dataclass(slots=True)
class OffsetCheckpoint:
    """One offset per log of a data directory, in one file of the form ``topic partition offset``.

    Values change in memory by `put`; `save` makes the file equal to them.
    """

    path: Path
    offsets: dict[LogName, Offset] = field(default_factory=dict)
    changed: set[LogName] = field(default_factory=set)
    """The logs that `put` has changed since the owner last emptied this set."""
    damaged: bool = False
    """Whether the file could not be read; it then counts as missing (every offset 0)."""

    @classmethod
    def load(cls, path: Path) -> OffsetCheckpoint:
        """Read the file; missing or damaged means no offsets (M36: a missing HW is 0)."""
        try:
            rows = _read_rows(path) or []
            return cls(path, dict(_offset_row(path, row) for row in rows))
        except CheckpointDamaged:
            return cls(path, damaged=True)

    def get(self, name: LogName) -> Offset | None:
        """The offset of a log, or ``None``."""
        return self.offsets.get(name)

    def put(self, name: LogName, offset: Offset) -> bool:
        """Set an offset in memory; return whether it changed."""
        if self.offsets.get(name) == offset:
            return False
        self.offsets[name] = offset
        self.changed.add(name)
        return True

    def drop(self, name: LogName) -> None:
        """Forget a log, in memory."""
        self.offsets.pop(name, None)
        self.changed.discard(name)

    def save(self, *, durable: bool = True) -> None:
        """Replace the file. Raises `StorageFailed`."""
        write_offsets(self.path, self.offsets, durable=durable)


def write_offsets(path: Path, offsets: Mapping[LogName, Offset], *, durable: bool = True) -> None:
    """Replace a file of offsets. Raises `StorageFailed`."""
    rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    _write_rows(path, rows, durable=durable)


def _offset_row(path: Path, row: str) -> tuple[LogName, Offset]:
    topic, _, rest = row.partition(" ")
    partition, offset = _numbers(path, rest, 2)
    return (topic, partition), Offset(offset)


def _numbers(path: Path, row: str, count: int) -> list[int]:
    words = row.split(" ")
    # int() would also take signs, underscores and digits of other scripts.
    if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        raise CheckpointDamaged(path, f"row {row[:80]!r} must be {count} numbers")
    return [int(word) for word in words]


def _write_rows(path: Path, rows: list[str], *, durable: bool) -> None:
    replace_file(path, _content(rows), durable=durable)


def _content(rows: list[str]) -> bytes:
    return ("\n".join([_VERSION, str(len(rows)), *rows]) + "\n").encode()


def _read_rows(path: Path) -> list[str] | None:
    text = _read_text(path)
    if text is None:
        return None
    version, *lines = text.splitlines() or [""]
    if version != _VERSION:
        raise CheckpointDamaged(path, f"version {version[:20]!r} must be {_VERSION}")
    if not lines or lines[0] != str(len(lines) - 1) or not text.endswith("\n"):
        raise CheckpointDamaged(path, "the count of its second line does not match its rows")
    return lines[1:]


def _read_text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointDamaged(path, "it is not UTF-8 text") from error
