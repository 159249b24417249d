"""Rows of every event type, and an outlet filled with them, for tests of files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from strandline.core.types import TopicPartition
from strandline.export.destination import Destination, LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits
from strandline.export.rows import Emitter, Row, Taken
from strandline.export.runs import Run
from strandline.export.schema import COLUMNS, ENVELOPE, EVENT_TYPES, Kind

CLUSTER = "c0ffee"
HOUR_US = 3_600_000_000
START_US = 497_000 * HOUR_US

VALUES: dict[Kind, Any] = {
    Kind.STRING: "x",
    Kind.INT: 3,
    Kind.LONG: 1 << 40,
    Kind.BOOL: True,
    Kind.INTS: [1, 2],
    Kind.MEMBERS: [{"replica_id": 3, "leo": 9, "last_fetch_us": None, "last_caught_up_us": 7}],
    Kind.STRINGS_BY_NAME: {"a": "b"},
    Kind.LONGS_BY_NAME: {"HW_ADVANCE": 4},
}
_KINDS = {column.name: column.kind for column in COLUMNS}


def row(event_type: str, seq: int, *, node_id: int = 1, incarnation: int = 2, at_us: int = START_US) -> Row:
    """A row with every column of its type set."""
    envelope = {column.name: VALUES[column.kind] for column in ENVELOPE}
    payload = {name: VALUES[_KINDS[name]] for name in EVENT_TYPES[event_type].payload}
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


def run_of(rows: list[Row]) -> Run:
    """The events, all of one emitter, that become these rows."""
    first = rows[0]
    emitter = Emitter(cluster_id=first["cluster_id"], node_id=first["node_id"], incarnation=first["incarnation"])
    return Run(emitter, [each["seq"] for each in rows], [_taken(each) for each in rows], lambda _: first.get("topic"))


def _taken(row: Row) -> Taken:
    tp = TopicPartition(row["topic_id"], row["partition"]) if "topic_id" in row else None
    fields = {name: value for name, value in row.items() if name not in _GIVEN}
    return Taken(row["ts_wall_us"], row["ts_mono_us"], row["event_type"], tp, fields, row.get("controller_epoch"))


_GIVEN = {column.name for column in ENVELOPE} - {"leader_epoch", "partition_epoch", "meta_offset", "ext"}

PLAIN_TYPES = [name for name in EVENT_TYPES if not name.startswith("EXPORT")]


def heartbeat(seq: int, *, final: bool = False, node_id: int = 1, at_us: int = START_US) -> Row:
    """A heartbeat that tells the number before it."""
    beat = row("EXPORT_HEARTBEAT", seq, node_id=node_id, at_us=at_us) | {"last_seq": seq - 1}
    return beat | {"ext": {"final": "true"} if final else {}}


def gap(seq: int, first: int, last: int, by_type: dict[str, int]) -> Row:
    """A gap."""
    return row("EXPORT_GAP", seq) | {
        "dropped_first_seq": first,
        "dropped_last_seq": last,
        "dropped_by_type": by_type,
    }


def every_type(count: int, *, node_id: int = 1, at_us: int = START_US) -> list[Row]:
    """``count`` rows, all event types in turn, and a final heartbeat."""
    types = itertools.cycle(PLAIN_TYPES)
    rows = [row(next(types), seq, node_id=node_id, at_us=at_us) for seq in range(1, count)]
    return [*rows, heartbeat(count, final=True, node_id=node_id, at_us=at_us)]


def export(
    destination: Destination | Path, rows: list[Row], *, kind: ExportFormat = ExportFormat.PARQUET, per_file: int = 10
) -> FileExport:
    """Write rows as an exporter does, so many to a file of each dataset."""
    place = LocalDirectory(destination) if isinstance(destination, Path) else destination
    outlet = FileExport(place, kind, FileLimits(roll_us=1))
    for start in range(0, len(rows), per_file):
        outlet.write(run_of(rows[start : start + per_file]))
        outlet.tend(10 * start + 10)
    outlet.close(0)
    return outlet
