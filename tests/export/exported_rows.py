"""Rows of every event type, and an outlet filled with them, for tests of files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from strandline.core.state_events import EVENT_TYPES as CLASSES, Member, StateEvent
from strandline.core.types import TopicPartition
from strandline.export.destination import Destination, LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits
from strandline.export.reading import find_files, read_rows
from strandline.export.rows import Emitter, Row, Run, Taken
from strandline.export.schema import ENVELOPE, EVENT_TYPES, ColumnType, Field, fields_of

CLUSTER = "c0ffee"
HOUR_US = 3_600_000_000
START_US = 497_000 * HOUR_US

VALUES: dict[ColumnType, Any] = {
    ColumnType.STRING: "x",
    ColumnType.INT: 3,
    ColumnType.LONG: 1 << 40,
    ColumnType.BOOL: True,
    ColumnType.INTS: [1, 2],
    ColumnType.STRINGS: ["a:0", "a:1"],
    ColumnType.MEMBERS: [{"replica_id": 3, "leo": 9, "last_fetch_us": None, "last_caught_up_us": None}],
    ColumnType.LONGS_BY_NAME: {"HW_ADVANCE": 4},
    ColumnType.STRINGS_BY_NAME: {"partitions": "3"},
}

_EMPTY: dict[ColumnType, Any] = {
    ColumnType.INTS: (),
    ColumnType.STRINGS: (),
    ColumnType.MEMBERS: (),
    ColumnType.LONGS_BY_NAME: {},
    ColumnType.STRINGS_BY_NAME: {},
}


def row(event_type: str, seq: int, *, node_id: int = 1, incarnation: int = 2, at_us: int = START_US) -> Row:
    """A row with every column of its type set."""
    fields = {field.column: field for field in fields_of(CLASSES[event_type].kind)}
    envelope = {
        column.name: VALUES[column.kind]
        for column in ENVELOPE
        if column.name in fields or column.name not in _OF_SOME_TYPES
    }
    payload = {
        name: at_us + 7_000 if field.is_moment else VALUES[field.kind]
        for name, field in fields.items()
        if name is not None and name not in envelope
    }
    if "removed" in payload:
        member = VALUES[ColumnType.MEMBERS][0] | {"last_caught_up_us": at_us + 7_000}
        payload |= {"removed": [member], "added": [member]}
    return envelope | {
        "schema_version": 1,
        "cluster_id": CLUSTER,
        "event_type": event_type,
        "node_id": node_id,
        "incarnation": incarnation,
        "seq": seq,
        "ts_wall_us": at_us + seq,
        "ts_mono_us": seq,
        **payload,
    }


def made(name: str, **fields: Any) -> StateEvent:
    """An event of a type: the given fields, lists without elements, and None."""
    kind = CLASSES[name].kind
    event: StateEvent = kind(**({field.name: _EMPTY.get(field.kind) for field in fields_of(kind)} | fields))
    return event


def run_of(rows: list[Row]) -> Run:
    """The events, all of one emitter, from which these rows are made."""
    first = rows[0]
    emitter = Emitter(cluster_id=first["cluster_id"], node_id=first["node_id"], incarnation=first["incarnation"])
    return Run(emitter, [each["seq"] for each in rows], [_taken(each) for each in rows], lambda _: first.get("topic"))


def _taken(row: Row) -> Taken:
    tp = TopicPartition(row["topic_id"], row["partition"]) if "topic_id" in row else None
    kind = CLASSES[row["event_type"]].kind
    offset_us = row["ts_wall_us"] - row["ts_mono_us"]
    event = kind(*(_value(field, row, offset_us) for field in fields_of(kind)))
    return Taken(row["ts_wall_us"], row["ts_mono_us"], event, tp, row.get("controller_epoch"))


def _value(field: Field, row: Row, offset_us: int) -> Any:
    """The value of a field from which a row's column comes."""
    if field.column is None:
        return row.get("ext", {}).get(field.name)
    value = row.get(field.column)
    if field.is_moment:
        return None if value is None else (value - offset_us) // 1000
    if field.kind in (ColumnType.INTS, ColumnType.STRINGS):
        return tuple(value or ())
    if field.kind is ColumnType.MEMBERS:
        return tuple(Member(*(_value(each, member, offset_us) for each in fields_of(Member))) for member in value or ())
    return value


_OF_SOME_TYPES = {"leader_epoch", "partition_epoch", "meta_offset", "ext"}

PLAIN_TYPES = [name for name in EVENT_TYPES if not name.startswith("EXPORT")]


def heartbeat(seq: int, *, final: bool = False, node_id: int = 1, at_us: int = START_US) -> Row:
    """A heartbeat that carries the number before it."""
    beat = row("EXPORT_HEARTBEAT", seq, node_id=node_id, at_us=at_us) | {"last_seq": seq - 1}
    return beat | ({"ext": {"final": "true"}} if final else {})


def gap(seq: int, first: int, last: int, by_type: dict[str, int]) -> Row:
    return row("EXPORT_GAP", seq) | {"dropped_first_seq": first, "dropped_last_seq": last, "dropped_by_type": by_type}


def every_type(count: int, *, node_id: int = 1, at_us: int = START_US) -> list[Row]:
    """``count`` rows, all event types in turn, and a final heartbeat."""
    types = itertools.cycle(PLAIN_TYPES)
    rows = [row(next(types), seq, node_id=node_id, at_us=at_us) for seq in range(1, count)]
    return [*rows, heartbeat(count, final=True, node_id=node_id, at_us=at_us)]


def rows_of(root: Path) -> list[Row]:
    found = find_files(LocalDirectory(root), CLUSTER)
    return [row for file in found for row in read_rows(file.path, (root / CLUSTER / "v1" / file.path).read_bytes())]


def export(
    destination: Destination | Path, rows: list[Row], *, kind: ExportFormat = ExportFormat.PARQUET, per_file: int = 10
) -> FileExport:
    """Write rows like an exporter, this many to a file of each dataset."""
    place = LocalDirectory(destination) if isinstance(destination, Path) else destination
    outlet = FileExport(place, kind, FileLimits(roll_us=1))
    for start in range(0, len(rows), per_file):
        outlet.write(run_of(rows[start : start + per_file]))
        outlet.tend(10 * start + 10)
    outlet.close(0)
    return outlet
