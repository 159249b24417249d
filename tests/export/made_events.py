"""Events with the fields that a test cares about; the others are absent."""

from __future__ import annotations

from typing import Any

from strandline.core.state_events import EVENT_TYPES, StateEvent
from strandline.export.schema import ColumnType, fields_of

_EMPTY: dict[ColumnType, Any] = {
    ColumnType.INTS: (),
    ColumnType.STRINGS: (),
    ColumnType.MEMBERS: (),
    ColumnType.LONGS_BY_NAME: {},
    ColumnType.STRINGS_BY_NAME: {},
}


def made(name: str, **fields: Any) -> StateEvent:
    """An event of a type: the given fields, lists without elements, and None."""
    kind = EVENT_TYPES[name].kind
    values = {field.name: _EMPTY.get(field.kind) for field in fields_of(kind)}
    event: StateEvent = kind(**(values | fields))
    return event
