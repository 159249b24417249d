"""Reading Kafka's flexible messages (KIP-482) by a table of fields: compact lengths, tagged fields.

Invariant: nothing is allocated by a length or a count that the bytes do not hold. Arbitrary bytes become a message or
an `Unreadable`, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

MOST_TAGGED_FIELDS = 64
"""No message of Kafka has a sixth of this."""
_VARINT_BYTES = 5

Message = dict[str, Any]


class Unreadable(Exception):
    """Bytes, files or a history that cannot be read; the text is one sentence for the reader."""


class Cursor:
    """A place in bytes, which moves as they are read."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.end = len(data)

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return self.end - self.at

    def take(self, size: int) -> memoryview:
        """The next bytes.

        Raises:
            Unreadable: there are not so many.
        """
        if size > self.end - self.at:
            raise Unreadable(f"a field of {size} bytes is declared where {self.left} bytes are left")
        begin = self.at
        self.at = begin + size
        return self.data[begin : self.at]

    def uvarint(self) -> int:
        """An unsigned number of seven bits a byte, at most 32 bits.

        Raises:
            Unreadable: the bytes end within it, or it is too long.
        """
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES, 7):
            if self.at == self.end:
                raise Unreadable("the bytes end within a number")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Unreadable(f"a number is longer than {_VARINT_BYTES} bytes")


class Type(NamedTuple):
    """How a value is read, given the message's version, and the fewest bytes that one takes."""

    read: Callable[[Cursor, int], Any]
    least: int


class Field(NamedTuple):
    """One field of a message; one with a ``tag`` is absent from the bytes where it has its ``default``."""

    name: str
    type: Type
    since: int = 0
    tag: int | None = None
    default: Any = None


def _number(form: str) -> Type:
    packed = struct.Struct(form)

    def read(cursor: Cursor, version: int) -> int:
        (value,) = packed.unpack(cursor.take(packed.size))
        return int(value)

    return Type(read, packed.size)


def _bool(cursor: Cursor, version: int) -> bool:
    return cursor.take(1)[0] != 0


def _uuid(cursor: Cursor, version: int) -> str:
    return str(UUID(bytes=bytes(cursor.take(16))))


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

    def read(cursor: Cursor, version: int) -> tuple[Any, ...] | None:
        count = cursor.uvarint() - 1
        if count < 0:
            if nullable:
                return None
            raise Unreadable("an array is null that must not be")
        if count * element.least > cursor.left:
            raise Unreadable(f"an array of {count} elements is declared where {cursor.left} bytes are left")
        return tuple(element.read(cursor, version) for _ in range(count))

    return Type(read, 1)


def record(*fields: Field) -> Type:
    """A structure within a message."""
    least = 1 + sum(field.type.least for field in fields if field.tag is None and field.since == 0)
    return Type(lambda cursor, version: read_message(fields, cursor, version), least)


def read_message(fields: tuple[Field, ...], cursor: Cursor, version: int) -> Message:
    """The fields that a version has; those that it lacks are absent.

    Raises:
        Unreadable: the bytes are no such message.
    """
    message: Message = {}
    tagged: dict[int, Field] = {}
    for field in fields:
        if field.since > version:
            continue
        if field.tag is None:
            message[field.name] = field.type.read(cursor, version)
        else:
            tagged[field.tag] = field
            message[field.name] = field.default
    _read_tagged(tagged, message, cursor, version)
    return message


def _read_tagged(tagged: dict[int, Field], message: Message, cursor: Cursor, version: int) -> None:
    count = cursor.uvarint()
    if count > MOST_TAGGED_FIELDS:
        raise Unreadable(f"{count} tagged fields are declared, at most {MOST_TAGGED_FIELDS} are read")
    for _ in range(count):
        tag = cursor.uvarint()
        content = cursor.take(cursor.uvarint())
        if (field := tagged.get(tag)) is None:
            continue
        own = Cursor(content)
        message[field.name] = field.type.read(own, version)
        if own.left:
            raise Unreadable(f"tagged field {field.name} has {own.left} bytes more than its value")
