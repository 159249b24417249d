"""The schema of the exported state: every column, every event type, every dataset.

The columns follow from the classes of `core/state_events.py`. From here follow the Arrow schema (`arrow.py`), Spark's
StructType (`spark_ddl`) and the check of `protos/strandline/v1/state_event.proto`.

Invariant: a column that a version has had keeps its name, kind and meaning for ever; versions only add nullable
columns at the end of a block. Enumerations are strings; a reader keeps and counts a type that it does not know.

Reading rules that the columns themselves cannot say:

- The identity of an event, and the only key for removing doubles, is (node_id, incarnation, seq).
- The controller writes as node ``CONTROLLER_NODE_ID`` and its incarnation is its controller epoch.
- Columns that end in ``_us`` and hold a moment are the emitter's time of day in microseconds since 1970, UTC. They are
  converted from its monotonic clock with the offset of the same row, so that differences within a row are monotonic.
- ``ts_mono_us`` compares only within one (node_id, incarnation).
- In a row, a column that does not belong to its event type is null; a list that belongs to it is never null.
- ``new_leader`` and ``old_leader`` are -1 where there is no leader.
- A partition in ``assigned`` and ``revoking`` is its topic id, a colon, and its number.
- A GROUP_CHANGE or MEMBER_CHANGE whose ``cause`` is ``repeated`` is no change: it says again what has been so before.
- An ISR_CHANGE comes twice: from the controller (``meta_offset`` set, authoritative) and as an echo of the leader
  (``meta_offset`` null), which alone knows HW, LEO and the members' progress. ``partition_epoch`` joins them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple, get_type_hints

from strandline.core.state_events import (
    EVENT_TYPES as CLASSES,
    REPEATED as REPEATED,
    SAMPLES as SAMPLES,
    TRANSITIONS as TRANSITIONS,
    Ext,
    Leader,
    Member,
    Moment,
    Number,
)
from strandline.core.types import LeaderEpoch, NodeId, Offset, PartitionEpoch

SCHEMA_VERSION = 1

CONTROLLER_NODE_ID = -1
"""What ``node_id`` says in the controller's rows; data nodes are numbered from 0."""

NO_LEADER = -1
"""What ``old_leader`` and ``new_leader`` say where there is no leader."""

DATASETS = (TRANSITIONS, SAMPLES)


class ColumnType(Enum):
    """The type of a column, as Spark spells it."""

    STRING = "STRING"
    INT = "INT"
    LONG = "BIGINT"
    BOOL = "BOOLEAN"
    INTS = "ARRAY<INT>"
    STRINGS = "ARRAY<STRING>"
    MEMBERS = "ARRAY<STRUCT<replica_id: INT, leo: BIGINT, last_fetch_us: BIGINT, last_caught_up_us: BIGINT>>"
    STRINGS_BY_NAME = "MAP<STRING, STRING>"
    LONGS_BY_NAME = "MAP<STRING, BIGINT>"


class Column(NamedTuple):
    """One column; ``required`` ones are set in every row."""

    name: str
    kind: ColumnType
    required: bool = False


ENVELOPE: tuple[Column, ...] = (
    Column("schema_version", ColumnType.INT, required=True),
    Column("cluster_id", ColumnType.STRING, required=True),
    Column("event_type", ColumnType.STRING, required=True),
    Column("node_id", ColumnType.INT, required=True),
    Column("incarnation", ColumnType.LONG, required=True),
    Column("seq", ColumnType.LONG, required=True),
    Column("ts_wall_us", ColumnType.LONG, required=True),
    Column("ts_mono_us", ColumnType.LONG, required=True),
    Column("topic", ColumnType.STRING),
    Column("topic_id", ColumnType.STRING),
    Column("partition", ColumnType.INT),
    Column("controller_epoch", ColumnType.INT),
    Column("leader_epoch", ColumnType.INT),
    Column("partition_epoch", ColumnType.INT),
    Column("meta_offset", ColumnType.LONG),
    Column("ext", ColumnType.STRINGS_BY_NAME),
)
"""Set in every event, as far as they apply: topic to partition_epoch are null in events of a whole node."""

_KINDS: dict[Any, ColumnType] = {
    int: ColumnType.LONG,
    Offset: ColumnType.LONG,
    Moment: ColumnType.LONG,
    Number: ColumnType.INT,
    NodeId: ColumnType.INT,
    LeaderEpoch: ColumnType.INT,
    PartitionEpoch: ColumnType.INT,
    bool: ColumnType.BOOL,
    str: ColumnType.STRING,
    tuple[NodeId, ...]: ColumnType.INTS,
    tuple[str, ...]: ColumnType.STRINGS,
    tuple[Member, ...]: ColumnType.MEMBERS,
    Mapping[str, int]: ColumnType.LONGS_BY_NAME,
    Mapping[str, str]: ColumnType.STRINGS_BY_NAME,
}
"""The kind of a column by the type of its field, without None."""


class Field(NamedTuple):
    """One field of a class of events; ``column`` is None where it goes into ``ext``."""

    name: str
    column: str | None
    kind: ColumnType
    is_moment: bool = False
    is_leader: bool = False


def fields_of(kind: type[Any]) -> tuple[Field, ...]:
    """The fields of a class of events, or of `Member`, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_field(name, hints[name]) for name in kind._fields)


def _field(name: str, hint: Any) -> Field:
    if hint == Ext:
        return Field(name, None, ColumnType.STRING)
    if hint == Leader:
        return Field(name, name, ColumnType.INT, is_leader=True)
    (plain,) = {hint} if hint in _KINDS else {one for one in hint.__args__ if one is not type(None)}
    if plain is Moment:
        return Field(name, f"{name.removesuffix('_ms')}_us", ColumnType.LONG, is_moment=True)
    return Field(name, name, _KINDS[plain])


MEMBER_FIELDS: tuple[tuple[str, ColumnType], ...] = tuple(
    (str(field.column), field.kind) for field in fields_of(Member)
)
"""The fields of one element of a ``Kind.MEMBERS`` column."""


def _payload() -> Iterator[Column]:
    """Every column beside the envelope, where it is first named."""
    seen = {column.name for column in ENVELOPE}
    for event_type in CLASSES.values():
        for field in fields_of(event_type.kind):
            if field.column is not None and field.column not in seen:
                seen.add(field.column)
                yield Column(field.column, field.kind)


PAYLOAD: tuple[Column, ...] = tuple(_payload())
"""Set in the events that `EVENT_TYPES` names for them, and null in all others."""

COLUMNS: tuple[Column, ...] = ENVELOPE + PAYLOAD


class EventType(NamedTuple):
    """What one type of event carries beside the envelope, and in which dataset it is."""

    dataset: str
    payload: tuple[str, ...]


def _event_types() -> Iterator[tuple[str, EventType]]:
    envelope = {column.name for column in ENVELOPE}
    for name, event_type in CLASSES.items():
        columns = (field.column for field in fields_of(event_type.kind))
        payload = tuple(column for column in columns if column is not None and column not in envelope)
        yield name, EventType(event_type.dataset, payload)


EVENT_TYPES: dict[str, EventType] = dict(_event_types())
"""Every type of event of this version."""

INFERRED = "inferred"
"""Key in ``ext`` of a JSON array of causes that were not recorded but inferred; see docs/KAFKA.md."""
START_OFFSET, START_SOURCE = "start_offset", "start_source"
"""Keys in ``ext`` of a change of leader: where the new epoch begins, and which file says so but not since when."""
OBSERVER = "observer"
"""Key in ``ext`` of a sample that another system took of a leader, by its own clock: which system it is."""
SORT_ORDER = ("topic_id", "partition", "leader_epoch", "seq")
"""How the rows of a file are sorted, nulls first, so that the statistics of row groups prune."""


def dataset_of(event_type: str) -> str:
    """The dataset of an event type; an unknown one is kept with the transitions."""
    known = EVENT_TYPES.get(event_type)
    return known.dataset if known else TRANSITIONS


def spark_ddl() -> str:
    """The schema as Spark reads it: ``spark.read.schema(spark_ddl())``. All columns nullable, as Spark reads files."""
    return ", ".join(f"{column.name} {column.kind.value}" for column in COLUMNS)
