"""Turns plain bytes into choices and messages, so that one input is the same for hypothesis, Atheris and as a file.

Invariant: the same bytes always give the same choices; after the last byte zeros are read, the simplest choice. A drawn
message is valid protobuf of its type, with every field present or not; its content is anything, with some meaningful
values, because a request with only unknown names tests only the rejection of names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_T = TypeVar("_T")


class Draws:
    """Choices read from ``data``, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether every byte has been read."""
        return self._at >= len(self._data)

    def taken(self, count: int) -> bytes:
        """The next ``count`` bytes, fewer at the end."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def rest(self) -> bytes:
        """All remaining bytes."""
        return self.taken(len(self._data))

    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        span = high - low + 1
        width = ((span - 1).bit_length() + 7) // 8
        return low + int.from_bytes(self.taken(width), "big") % span

    def choice(self, options: Sequence[_T]) -> _T:
        """One of ``options``; the first when the bytes have run out."""
        return options[self.integer(0, len(options) - 1)]

    def one_in(self, chances: int) -> bool:
        """True in one of this many cases; False when the bytes have run out."""
        return self.integer(0, chances - 1) == chances - 1


_LIMITS = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
}
_NUMBERS = (0, 1, 2, -1, 3, 4, 5, 100, 101, 1 << 15, 1 << 20, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), -2)
_STRINGS = ("", "a", "..", "../x", "a/b", ".", "é\x00", "x" * 250, "\ufffd", "-1", "1.5", "true", " ")
_DEEPEST = 5

Words = Mapping[str, Sequence[Any]]
"""Values that mean something, by the name of the field that may carry them."""


def drawn(draws: Draws, kind: Descriptor, words: Words, depth: int = 0) -> Message:
    """A message of a type."""
    message: Message = GetMessageClass(kind)()
    for field in kind.fields:
        if field.containing_oneof is not None and field.containing_oneof.name[:1] != "_" and draws.one_in(2):
            continue
        _fill(draws, message, field, words, depth)
    return message


def _fill(draws: Draws, message: Message, field: FieldDescriptor, words: Words, depth: int) -> None:
    if field.is_repeated:
        count = draws.choice((1, 0, 1, 2, 3, 1))
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(count):
                _fill_map(draws, message, field, words)
        elif field.message_type is not None:
            rows = [drawn(draws, field.message_type, words, depth + 1) for _ in range(count if depth < _DEEPEST else 0)]
            getattr(message, field.name).extend(rows)
        else:
            getattr(message, field.name).extend(_scalar(draws, field, words) for _ in range(count))
    elif draws.one_in(5):
        return
    elif field.message_type is not None:
        if depth < _DEEPEST:
            getattr(message, field.name).CopyFrom(drawn(draws, field.message_type, words, depth + 1))
    else:
        setattr(message, field.name, _scalar(draws, field, words))


def _fill_map(draws: Draws, message: Message, field: FieldDescriptor, words: Words) -> None:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    names = {**words, "key": words.get(field.name, _STRINGS)}
    getattr(message, field.name)[_scalar(draws, key, names)] = _scalar(draws, value, words)


def _scalar(draws: Draws, field: FieldDescriptor, words: Words) -> Any:
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        # Not of the words: a setting and a rate are both a `value`.
        return draws.choice((0.0, 1.5, -1.0, 1e300, float("inf"), float("nan")))
    known = words.get(field.name)
    if known and not draws.one_in(4):
        return draws.choice(known)
    if field.enum_type is not None:
        return draws.choice((*(value.number for value in field.enum_type.values), 99, -7))
    if field.type == FieldDescriptor.TYPE_STRING:
        return draws.choice(_STRINGS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draws.taken(draws.integer(0, 30))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return draws.one_in(2)
    low, high = _LIMITS[field.type]
    if draws.one_in(8):
        return draws.integer(low, high)
    return draws.choice([number for number in _NUMBERS if low <= number <= high])
