"""Decodes one batch of a metadata log: records framed by frame version, number and version; secrets stay unread."""

from __future__ import annotations

import struct
from typing import NamedTuple

from strandline.core.errors import Refused
from strandline.core.types import BatchHeader
from strandline.records.batch import CONTROL_BIT
from strandline.records.codec import Record, decode_trusted_batch
from strandline_kafka.metadata.record_table import CONTROL_RECORDS, NEWEST_RELEASE, RECORDS, RecordKind
from strandline_kafka.metadata.wire import Cursor, Layout, Message, Unreadable, layout_of, read_message

_FRAME_VERSION = 1
_FRAME = bytes((_FRAME_VERSION,))
_SHORT_FRAME = 3
_CONTROL_KEY = struct.Struct(">hh")
_NOTHING: Message = {}
_NO_OP = 20
_IDLE = bytes((_FRAME_VERSION, _NO_OP, 0, 0))
"""The controller's idle record, which is nearly all of the log of a quiet cluster."""
_YEAR_10000_MS = 253_402_300_800_000
_LAYOUTS: dict[str, tuple[Layout, ...]] = {
    kind.name: tuple(layout_of(kind.fields, version) for version in range(kind.newest + 1))
    for kind in (*RECORDS.values(), *CONTROL_RECORDS.values())
    if kind.fields is not None
}
"""Layouts by kind and version."""


class MetadataRecord(NamedTuple):
    """One record of a metadata log. ``kind`` is None for an unknown number or version."""

    offset: int
    timestamp_ms: int
    controller_epoch: int
    kind: str | None
    fields: Message
    """Empty if nothing of the kind is exported."""
    number: int
    version: int


def records_of(header: BatchHeader, content: bytes) -> list[MetadataRecord]:
    """The records of one batch whose CRC was checked.

    Raises:
        Unreadable: it holds something else; the sentence names the offset.
    """
    is_control = bool(header.attributes & CONTROL_BIT)
    try:
        found = decode_trusted_batch(header, content)
    except Refused as error:
        raise Unreadable(f"the batch at offset {header.base_offset} cannot be read: {error}") from error
    epoch = header.stamped_epoch
    return [_decoded(one, epoch, is_control) for one in found]


def _decoded(one: Record, epoch: int, is_control: bool) -> MetadataRecord:
    at_ms = -1 if one.timestamp_ms is None else one.timestamp_ms
    try:
        # Checked here as well, to save a call for each record; `check_moment` has the message.
        if not 0 <= at_ms < _YEAR_10000_MS:
            check_moment(at_ms)
        if one.value == _IDLE and not is_control:
            return MetadataRecord(one.offset, at_ms, epoch, "NoOp", _NOTHING, _NO_OP, 0)
        number, version, kind, fields = _control(one) if is_control else decode_value(one.value or b"")
    except Unreadable as error:
        raise Unreadable(f"the record at offset {one.offset} cannot be read: {error}") from error
    return MetadataRecord(one.offset, at_ms, epoch, kind, fields, number, version)


def check_moment(at_ms: int) -> None:
    """Check that a time is a date.

    Raises:
        Unreadable: it is before 1970, or after the year 9999.
    """
    if not 0 <= at_ms < _YEAR_10000_MS:
        raise Unreadable(f"its time, {at_ms} ms since 1970, is not a date")


def decode_value(value: bytes) -> tuple[int, int, str | None, Message]:
    """Number, version, kind and fields of the value of a data record.

    Raises:
        Unreadable: it is not framed as a metadata record, or does not have the fields of its version.
    """
    cursor = Cursor(value)
    if value[:1] == _FRAME and len(value) > _SHORT_FRAME and value[1] < 0x80 and value[2] < 0x80:
        # Nearly every record is framed by three numbers of one byte.
        cursor.at = _SHORT_FRAME
        return value[1], value[2], *_named(RECORDS.get(value[1]), cursor, value[2])
    frame = cursor.uvarint()
    if frame != _FRAME_VERSION:
        raise Unreadable(
            f"frame version {frame} must be {_FRAME_VERSION}; this is not a metadata log of Kafka 3.3 or later"
        )
    number, version = cursor.uvarint(), cursor.uvarint()
    kind = RECORDS.get(number)
    return number, version, *_named(kind, cursor, version)


def is_known(kind: RecordKind, version: int) -> bool:
    """Whether a version of a kind of record can be read, or is never read.

    Raises:
        Unreadable: it is unknown, and without it every later state would be wrong.
    """
    if kind.fields is None or 0 <= version <= kind.newest:
        return True
    if kind.fields:
        raise Unreadable(
            f"{kind.name} version {version} is of a Kafka newer than {NEWEST_RELEASE}, which knows {kind.newest} at "
            "most; what follows would be wrong without it"
        )
    return False


def _control(one: Record) -> tuple[int, int, str | None, Message]:
    key = one.key or b""
    if len(key) != _CONTROL_KEY.size:
        raise Unreadable(f"the key of a control record has {len(key)} bytes, which must be {_CONTROL_KEY.size}")
    _, number = _CONTROL_KEY.unpack(key)
    kind = CONTROL_RECORDS.get(number)
    cursor = Cursor(one.value or b"")
    # The version of the value is its first field.
    version = int.from_bytes(cursor.data[:2], "big", signed=True) if cursor.end >= 2 else 0
    return number, version, *_named(kind, cursor, version)


def _named(kind: RecordKind | None, cursor: Cursor, version: int) -> tuple[str | None, Message]:
    if kind is None or not is_known(kind, version):
        return None, _NOTHING
    if kind.fields is None:
        return kind.name, _NOTHING
    try:
        fields = read_message(_LAYOUTS[kind.name][version], cursor, version)
    except Unreadable as error:
        raise Unreadable(f"{kind.name} version {version}: {error}") from error
    if cursor.left:
        raise Unreadable(f"{kind.name} version {version} has {cursor.left} bytes more than its fields")
    return kind.name, fields
