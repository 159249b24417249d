"""Encodes and reads single fields by hand, for messages that carry large records.

Invariant: an encoded message is its fields one after the other, in any order; so bytes of one message may be appended
to those of another of the same type, and an encoded submessage may be placed in its field. What `RecordsApart` reads is
what protobuf reads; whatever it does not recognize is left to protobuf, which accepts or refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from strandline.records.batch import Buffer

_VARINT, _LENGTH_DELIMITED = 0, 2
_SMALL_BYTES = 4 << 10
"""A smaller part is copied in less time than the socket needs to take it on its own."""
_BYTES_PER_FIELD = 2 << 10
"""A message has to bring so many bytes for each field: copying them takes as long as looking at the field."""

_M = TypeVar("_M", bound=Message)


@lru_cache(4_096)
def varint(number: int) -> bytes:
    """The encoding of a number of at least 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(message: Any, field: str) -> bytes:
    """The tag of this field, which holds a submessage, text or bytes; their length comes next."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


def grouped(parts: Iterable[Buffer]) -> list[Buffer]:
    """The same bytes in fewer pieces, none of them empty: small parts are joined, and large ones are not copied."""
    pieces: list[Buffer] = []
    for is_large, run in groupby(filter(len, parts), lambda part: len(part) >= _SMALL_BYTES):
        some = list(run)
        pieces += some if is_large else [b"".join(some)]
    return pieces


class WithRecords(NamedTuple, Generic[_M]):
    """A message, and the records of its rows in their order, which the message itself may lack."""

    message: _M
    records: Sequence[memoryview]
    arrived_bytes: int | None = None
    """Size of the bytes that it was read from, if that is known."""

    @property
    def size_bytes(self) -> int:
        """Size of the message together with its records."""
        return self.message.ByteSize() if self.arrived_bytes is None else self.arrived_bytes


class _Unrecognized(Exception):
    """The bytes have another form than those that are read here."""


class RecordsApart(Generic[_M]):
    """Reads messages of one type whose topics have rows with ``records``, and leaves these where they arrived.

    As protobuf objects they would be copied twice: into the message, and out of it. A message below ``least_bytes`` is
    copied in less time than its fields are looked at.
    """

    def __init__(self, kind: type[_M], topics: str, rows: str, *, least_bytes: int = 32 << 10) -> None:
        self._kind, self._topics, self._rows, self._least_bytes = kind, topics, rows, least_bytes
        within: Any = kind.DESCRIPTOR
        tags = []
        for name in (topics, rows, "records"):
            field = within.fields_by_name[name]
            tags.append(field.number << 3 | _LENGTH_DELIMITED)
            within = field.message_type
        assert max(tags) < 0x80, "tags of one byte"
        self._tags = tuple(tags)

    def read(self, content: bytes) -> WithRecords[_M]:
        """The message in these bytes.

        Raises:
            google.protobuf.message.DecodeError: they are not a message of this type.
        """
        if len(content) >= self._least_bytes:
            try:
                cut = _Cut(content, self._tags)
                rest = cut.rest(0, len(content), 0)
            except (_Unrecognized, IndexError):
                pass
            else:
                return WithRecords(self._kind.FromString(rest), cut.records, len(content))
        return self.of(self._kind.FromString(content), len(content))

    def of(self, message: _M, arrived_bytes: int | None = None) -> WithRecords[_M]:
        """A message that has its records."""
        rows = [row for topic in getattr(message, self._topics) for row in getattr(topic, self._rows)]
        return WithRecords(message, [memoryview(row.records) for row in rows], arrived_bytes)


class _Cut:
    """Finds the records in one message."""

    __slots__ = ("_content", "_fields_left", "_tags", "_view", "records")

    def __init__(self, content: bytes, tags: tuple[int, ...]) -> None:
        self._content, self._view, self._tags = content, memoryview(content), tags
        self._fields_left = len(content) // _BYTES_PER_FIELD + 16
        self.records: list[memoryview] = []

    def rest(self, at: int, end: int, depth: int) -> bytes:
        """The fields in ``content[at:end]`` without records; ``depth`` is 0 in the message, 1 in a topic, 2 in a row.

        Raises:
            _Unrecognized, IndexError: they have another form.
        """
        content, tag_below = self._content, self._tags[depth]
        is_row, has_records = depth == 2, False
        pieces: list[bytes] = []
        kept = at
        while at < end:
            self._fields_left -= 1
            this = content[at]
            if self._fields_left < 0 or not 0x08 <= this < 0x80:
                raise _Unrecognized
            start, at, kind = at, at + 1, this & 7
            if kind == _LENGTH_DELIMITED:
                size, at = self._size(at)
                stop = at + size
                if stop > end:
                    raise _Unrecognized
                if this == tag_below:
                    pieces.append(content[kept:start])
                    if not is_row:
                        inner = self.rest(at, stop, depth + 1)
                        pieces += (content[start : start + 1], varint(len(inner)), inner)
                    elif has_records:
                        raise _Unrecognized
                    else:
                        has_records = True
                        self.records.append(self._view[at:stop])
                    kept = stop
                at = stop
            elif kind == _VARINT:
                last = at + 9
                while content[at] >= 0x80 and at < last:
                    at += 1
                at += 1
            else:
                raise _Unrecognized
        if at > end:
            raise _Unrecognized
        if is_row and not has_records:
            self.records.append(self._view[:0])
        pieces.append(content[kept:end])
        return b"".join(pieces)

    def _size(self, at: int) -> tuple[int, int]:
        """The length at ``at``, and where what it counts begins."""
        size, shift = 0, 0
        while (this := self._content[at]) >= 0x80:
            size |= (this & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if shift > 21:
                raise _Unrecognized
        return size | this << shift, at + 1
