"""Decides how a decision of the core becomes a row: names, moments, shapes, and what has no column yet.

The core speaks of moments in its monotonic milliseconds (``last_fetch_ms``); a row has them as times of day in
microseconds (``last_fetch_us``), converted with the offset of the event's own two clock readings.

Invariant: no field is lost. One without a column goes into ``ext`` as text, so a reader of an older schema has it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from strandline.core.types import TopicPartition
from strandline.export.schema import (
    COLUMNS,
    ENVELOPE,
    EVENT_TYPES,
    MEMBER_FIELDS,
    NO_LEADER,
    SCHEMA_VERSION,
    Kind,
)

Row = dict[str, Any]
"""A row as it is exported: set columns only, in plain Python values."""


class Taken(NamedTuple):
    """An event as it was taken from the core, not yet numbered."""

    wall_us: int
    mono_us: int
    event_type: str
    tp: TopicPartition | None
    fields: Mapping[str, object]
    controller_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitter:
    """Who reports: one incarnation of one node."""

    cluster_id: str
    node_id: int
    incarnation: int


_KINDS = {column.name: column.kind for column in COLUMNS}
_ENVELOPE_NAMES = frozenset(column.name for column in ENVELOPE)
_ALLOWED = {name: _ENVELOPE_NAMES.union(known.payload) for name, known in EVENT_TYPES.items()}
_LISTS = {
    name: tuple(c for c in known.payload if _KINDS[c] in (Kind.INTS, Kind.MEMBERS))
    for name, known in EVENT_TYPES.items()
}
_MEMBER_NAMES = tuple(name for name, _ in MEMBER_FIELDS)
LEADERS = ("old_leader", "new_leader")
"""Columns where "nobody" is written as a number."""
_MOMENTS = {
    "last_fetch_ms": "last_fetch_us",
    "last_caught_up_ms": "last_caught_up_us",
    "last_heartbeat_ms": "last_heartbeat_us",
    "hw_next_append_ms": "hw_next_append_us",
    "first_ms": "first_us",
    "last_ms": "last_us",
}
"""Moments of the core's clock, and their columns."""
_OTHER_NAMES = {"isr": "new_isr"}
"""Short names of the core, and their columns."""


def to_row(taken: Taken, seq: int, emitter: Emitter, topic_name: Callable[[str], str | None]) -> Row:
    """The row of an event. ``topic_name`` gives the name of a topic id, if it is known."""
    row: Row = {
        "schema_version": SCHEMA_VERSION,
        "cluster_id": emitter.cluster_id,
        "event_type": taken.event_type,
        "node_id": emitter.node_id,
        "incarnation": emitter.incarnation,
        "seq": seq,
        "ts_wall_us": taken.wall_us,
        "ts_mono_us": taken.mono_us,
    }
    if taken.tp is not None:
        row["topic_id"], row["partition"] = taken.tp.topic_id, taken.tp.partition
        if (topic := topic_name(taken.tp.topic_id)) is not None:
            row["topic"] = topic
    if taken.controller_epoch is not None:
        row["controller_epoch"] = taken.controller_epoch
    _add_fields(row, taken)
    return row


def _add_fields(row: Row, taken: Taken) -> None:
    plan = plan_of(taken.event_type)
    offset_us = taken.wall_us - taken.mono_us
    for name in lists_of(taken.event_type):
        row[name] = []
    for name, value in taken.fields.items():
        if value is None:
            if name in LEADERS:
                row[name] = NO_LEADER
            continue
        step = plan.get(name)
        if step is None:
            row.setdefault("ext", {})[name] = str(value)
        elif step.kind is None:
            row[step.column] = int(value) * 1000 + offset_us  # type: ignore[call-overload]
        elif type(value) is step.kind:
            row[step.column] = value
        else:
            row[step.column] = step.convert(value, offset_us)


class Step(NamedTuple):
    """What becomes of one field: its column, the type that is taken as it is (None: a moment), or else how."""

    column: str
    kind: type | None
    convert: Callable[[Any, int], object]


_CONVERSIONS: dict[Kind, tuple[type, Callable[[Any, int], object]]] = {
    # A type that never occurs marks a field whose every value has to be converted.
    Kind.STRING: (str, lambda value, _: str(value)),
    Kind.INT: (int, lambda value, _: int(value)),
    Kind.LONG: (int, lambda value, _: int(value)),
    Kind.BOOL: (bool, lambda value, _: bool(value)),
    Kind.INTS: (NotImplementedError, lambda value, _: [int(item) for item in value]),
    Kind.MEMBERS: (NotImplementedError, lambda value, offset_us: [_member(item, offset_us) for item in value]),
    Kind.LONGS_BY_NAME: (NotImplementedError, lambda value, _: {str(n): int(v) for n, v in value.items()}),
    Kind.STRINGS_BY_NAME: (NotImplementedError, lambda value, _: {str(n): str(v) for n, v in value.items()}),
}


def _plan(allowed: frozenset[str]) -> dict[str, Step]:
    plan = {name: Step(name, *_CONVERSIONS[_KINDS[name]]) for name in allowed}
    plan |= {name: Step(column, None, lambda value, _: value) for name, column in _MOMENTS.items() if column in allowed}
    plan |= {name: plan[column]._replace(column=column) for name, column in _OTHER_NAMES.items() if column in allowed}
    return plan


_PLANS: dict[str, dict[str, Step]] = {name: _plan(allowed) for name, allowed in _ALLOWED.items()}
_ENVELOPE_PLAN = _plan(_ENVELOPE_NAMES)


def plan_of(event_type: str) -> Mapping[str, Step]:
    """What becomes of each field of a type's events; a field that is not in it goes into ``ext``."""
    plan: Mapping[str, Step] = _PLANS.get(event_type, _ENVELOPE_PLAN)
    return plan


def lists_of(event_type: str) -> tuple[str, ...]:
    """The columns of a type's events that are never null."""
    return _LISTS.get(event_type, ())


def _member(item: Any, offset_us: int) -> dict[str, int | None]:
    """A replica that left or joined: its number alone, or a mapping with its progress."""
    if not isinstance(item, Mapping):
        return {"replica_id": int(item), "leo": None, "last_fetch_us": None, "last_caught_up_us": None}
    member: dict[str, int | None] = dict.fromkeys(_MEMBER_NAMES)
    for name, value in item.items():
        if value is not None:
            column = _MOMENTS.get(name)
            member[column or name] = int(value) if column is None else int(value) * 1000 + offset_us
    return member
