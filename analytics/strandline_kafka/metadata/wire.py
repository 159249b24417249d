"""Reads Kafka's flexible messages (KIP-482) by a table of fields: compact lengths, tagged fields.

Invariant: nothing is allocated for a length or a count that exceeds the bytes. Arbitrary bytes become a message or
an `Unreadable`, and nothing else.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

MOST_TAGGED_FIELDS = 64
"""No message of Kafka has even a sixth of this."""
_VARINT_BYTES = 5
_KEPT_UUIDS = 1 << 14

Message = dict[str, Any]


class Unreadable(Exception):
    """Bytes, files or a history that cannot be read; the text is one sentence for the reader."""


class Cursor:
    """A position in bytes, which moves as they are read, up to ``end``."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    @property
    def left(self) -> int:
        """The number of bytes that were not read yet."""
        return self.end - self.at

    def take(self, size: int) -> bytes:
        """The next bytes.

        Raises:
            Unreadable: there are not so many.
        """
        begin = self.at
        end = begin + size
        if end > self.end:
            raise self._short(size)
        self.at = end
        return self.data[begin:end]

    def unpack(self, packed: struct.Struct) -> tuple[Any, ...]:
        """The next bytes as values of a fixed size.

        Raises:
            Unreadable: there are not so many.
        """
        begin = self.at
        end = begin + packed.size
        if end > self.end:
            raise self._short(packed.size)
        self.at = end
        return packed.unpack_from(self.data, begin)

    def uvarint(self) -> int:
        """An unsigned number with seven bits per byte, at most 32 bits.

        Raises:
            Unreadable: the bytes end within it, or it is too long.
        """
        at = self.at
        if at < self.end and (first := self.data[at]) < 0x80:
            # Nearly every number of a metadata log is one byte.
            self.at = at + 1
            return first
        return self._long_uvarint()

    def _long_uvarint(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES, 7):
            if self.at >= self.end:
                raise Unreadable("the bytes end within a number")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Unreadable(f"a number is longer than {_VARINT_BYTES} bytes")

    def _short(self, size: int) -> Unreadable:
        return Unreadable(f"a field of {size} bytes is declared where {self.left} bytes are left")


class Type(NamedTuple):
    """Reads a value, given the message's version; also has the smallest size of a value in bytes."""

    read: Callable[[Cursor, int], Any]
    least: int


class Field(NamedTuple):
    """One field of a message; a field with a ``tag`` is absent from the bytes if it has its ``default``."""

    name: str
    type: Type
    since: int = 0
    tag: int | None = None
    default: Any = None


class Layout(NamedTuple):
    """The fields that one version of a message has."""

    plain: tuple[tuple[str, Callable[[Cursor, int], Any]], ...]
    """Plain fields in their order: name and reader."""
    tagged: dict[int, Field]
    """Tagged fields by tag."""
    defaults: Message
    """Values of tagged fields that are absent."""


def layout_of(fields: tuple[Field, ...], version: int) -> Layout:
    """The layout of a version of a message."""
    there = [field for field in fields if field.since <= version]
    tagged = {field.tag: field for field in there if field.tag is not None}
    return Layout(
        tuple((field.name, field.type.read) for field in there if field.tag is None),
        tagged,
        {field.name: field.default for field in tagged.values()},
    )


def _number(form: str) -> Type:
    packed = struct.Struct(form)

    def read(cursor: Cursor, version: int) -> int:
        value: int = cursor.unpack(packed)[0]
        return value

    return Type(read, packed.size)


def _bool(cursor: Cursor, version: int) -> bool:
    return cursor.take(1)[0] != 0


@lru_cache(maxsize=_KEPT_UUIDS)
def _uuid_text(content: bytes) -> str:
    return str(UUID(bytes=content))


def uuid_text(printed: str) -> str:
    """A UUID in hex with dashes, from Kafka's 22 characters of base64.

    Raises:
        ValueError: it is none.
    """
    return str(UUID(bytes=urlsafe_b64decode(f"{printed}==")))


def _uuid(cursor: Cursor, version: int) -> str:
    # The ids of topics come again and again.
    return _uuid_text(cursor.take(16))


def _string(cursor: Cursor, version: int) -> str:
    found = _nullable_string(cursor, version)
    if found is None:
        raise Unreadable("a text is null that must not be")
    return found


def _nullable_string(cursor: Cursor, version: int) -> str | None:
    size = cursor.uvarint() - 1
    if size < 0:
        return None
    try:
        return str(cursor.take(size), "utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"a text is not UTF-8: {error.reason}") from error


INT8, INT16, INT32, INT64, UINT16 = (_number(form) for form in (">b", ">h", ">i", ">q", ">H"))
BOOL = Type(_bool, 1)
UUID_TEXT = Type(_uuid, 16)
"""A UUID as hex with dashes."""
STRING = Type(_string, 1)
NULLABLE_STRING = Type(_nullable_string, 1)


def array(element: Type, *, nullable: bool = False) -> Type:
    """Any number of elements, as a tuple."""
    read_one, least = element

    def read(cursor: Cursor, version: int) -> tuple[Any, ...] | None:
        count = cursor.uvarint() - 1
        if count < 0:
            if nullable:
                return None
            raise Unreadable("an array is null that must not be")
        if count * least > cursor.left:
            raise Unreadable(f"an array of {count} elements is declared where {cursor.left} bytes are left")
        return tuple([read_one(cursor, version) for _ in range(count)])

    return Type(read, 1)


def ids(*, nullable: bool = False) -> Type:
    """Any number of ids of brokers, as a tuple: as `array` of `INT32`, in one step."""
    size = INT32.least

    def read(cursor: Cursor, version: int) -> tuple[int, ...] | None:
        count = cursor.uvarint() - 1
        if count < 0:
            if nullable:
                return None
            raise Unreadable("an array is null that must not be")
        begin = cursor.at
        end = begin + count * size
        if end > cursor.end:
            raise Unreadable(f"an array of {count} elements is declared where {cursor.left} bytes are left")
        cursor.at = end
        return struct.unpack_from(f">{count}i", cursor.data, begin)

    return Type(read, 1)


def record(*fields: Field) -> Type:
    """A structure within a message."""
    least = 1 + sum(field.type.least for field in fields if field.tag is None and field.since == 0)
    known: dict[int, Layout] = {}

    def read(cursor: Cursor, version: int) -> Message:
        layout = known.get(version)
        if layout is None:
            layout = known[version] = layout_of(fields, version)
        return read_message(layout, cursor, version)

    return Type(read, least)


def read_message(layout: Layout, cursor: Cursor, version: int) -> Message:
    """The fields of a message; those that its version lacks are absent.

    Raises:
        Unreadable: the bytes are no such message.
    """
    message = layout.defaults.copy()
    for name, read in layout.plain:
        message[name] = read(cursor, version)
    count = cursor.uvarint()
    if count:
        _read_tagged(layout.tagged, message, cursor, version, count)
    return message


def _read_tagged(tagged: dict[int, Field], message: Message, cursor: Cursor, version: int, count: int) -> None:
    if count > MOST_TAGGED_FIELDS:
        raise Unreadable(f"{count} tagged fields are declared, at most {MOST_TAGGED_FIELDS} are read")
    whole = cursor.end
    for _ in range(count):
        field = tagged.get(cursor.uvarint())
        size = cursor.uvarint()
        if field is None:
            cursor.take(size)
        else:
            _read_within(field, message, cursor, version, cursor.at + size)
            cursor.end = whole


def _read_within(field: Field, message: Message, cursor: Cursor, version: int, end: int) -> None:
    """One tagged field, which ends where its own length says."""
    if end > cursor.end:
        raise Unreadable(f"a field of {end - cursor.at} bytes is declared where {cursor.left} bytes are left")
    cursor.end = end
    message[field.name] = field.type.read(cursor, version)
    if cursor.at != end:
        raise Unreadable(f"tagged field {field.name} has {cursor.left} bytes more than its value")
