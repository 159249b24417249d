"""Converts between values and messages whose fields have the same names, in both directions.

Invariants: a field that the value has and the message lacks must be named, or the pair cannot be made. Absence stays
absence: a field that may be None is None if the message does not have it; any other gets the message's default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from strandline.rpc.convert.errors import read_error, write_error

V = TypeVar("V")
M = TypeVar("M")
_Convert = Callable[[Any], Any]


class As(NamedTuple):
    """A field that has another name or another form in the message."""

    name: str
    write: _Convert | None = None
    read: _Convert | None = None


class ByName(Generic[V, M]):
    """A class of values (a dataclass or a NamedTuple) and its message.

    ``other`` lists the fields that differ, by their names in the value: an `As`; the name in the message; another pair,
    for a field of the same name; None: the caller converts it. ``refusal`` becomes the two error fields.
    """

    def __init__(
        self, value: Callable[..., V], message: Callable[..., M], **other: As | str | ByName[Any, Any] | None
    ) -> None:
        self._value, self._message = value, message
        self._has_refusal = False
        self._fields: list[tuple[str, str, _Convert | None, _Convert | None, bool]] = []
        known: Any = message.DESCRIPTOR.fields_by_name  # type: ignore[attr-defined]
        for name, annotation in value.__annotations__.items():
            if name == "refusal":
                self._has_refusal = True
            elif (given := other.get(name, name)) is not None:
                there, write, read = _as(name, given)
                field, may_be_none = known[there], "None" in str(annotation)
                assert read or field.has_presence or not may_be_none, f"{field.full_name} cannot be absent"
                if read is None and "tuple" in str(annotation):
                    read = tuple
                self._fields.append((name, there, write, read, may_be_none and field.has_presence))

    def write(self, value: V, **given: Any) -> M:
        """The message; ``given`` are message fields that do not follow from the value's fields."""
        for name, there, write, _, _ in self._fields:
            found = getattr(value, name)
            given.setdefault(there, found if write is None or found is None else write(found))
        message = self._message(**given)
        if self._has_refusal:
            write_error(message, value.refusal)  # type: ignore[arg-type, attr-defined]
        return message

    def write_all(self, values: Any) -> list[M]:
        """A message for each value."""
        return [self.write(value) for value in values]

    def read(self, message: M, **given: Any) -> V:
        """The value; ``given`` are value fields that do not follow from the message's fields."""
        has: Any = message.HasField  # type: ignore[attr-defined]
        for name, there, _, read, may_be_absent in self._fields:
            if name not in given:
                found = None if may_be_absent and not has(there) else getattr(message, there)
                given[name] = found if read is None or found is None else read(found)
        if self._has_refusal:
            given["refusal"] = read_error(message)  # type: ignore[arg-type]
        return self._value(**given)

    def read_all(self, messages: Any) -> tuple[V, ...]:
        """A value for each message."""
        return tuple(self.read(message) for message in messages)


def _as(name: str, given: As | str | ByName[Any, Any]) -> As:
    if isinstance(given, ByName):
        return As(name, given.write, given.read)
    return given if isinstance(given, As) else As(given)
