"""The changes of the small files as a frame of the journal holds them.

Invariant: what is decoded is exactly what was encoded, or `SavesDamaged`; a declared count is compared with the bytes
that are left before anything is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from strandline.core.types import EpochEntry, LeaderEpoch, Offset

LogName = tuple[str, int]
"""Topic name and partition: how one log is named in the files of a data directory."""


class Kind(IntEnum):
    """Which file of offsets a change belongs to."""

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
    """A log was made, and belongs to this topic id (M63)."""

    name: LogName
    topic_id: str


class LogForgotten(NamedTuple):
    """A log is gone: nothing that was saved under its name is true any more."""

    name: LogName
    topic_id: str
    """Of a log that was deleted; empty for one that was set aside, whose folder stays."""


class MetadataSaved(NamedTuple):
    """The newest metadata, as `metadata.snapshot` holds it."""

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
    """A frame's payload is not what this release writes."""


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
        SavesDamaged: not the form.
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


_KINDS: tuple[type[Save], ...] = (OffsetsSaved, EpochsSaved, LogMade, LogForgotten, MetadataSaved)
_ENCODERS: tuple[Callable[..., None], ...] = (_put_offsets, _put_epochs, _put_owner, _put_owner, _put_metadata)
_DECODERS: tuple[Callable[[_Reader], Save], ...] = (
    _offsets,
    _epochs,
    lambda reader: LogMade(reader.name(), reader.topic_id()),
    lambda reader: LogForgotten(reader.name(), reader.topic_id()),
    lambda reader: MetadataSaved(reader.take(reader.count(1))),
)
