"""The files of a generated day: as the exporter and its compaction leave it.

One file per hour and dataset (``compacted``), or one per emitter too; part of an hour is there twice, like after an
interrupted compaction. Types and order are those of `strandline.export`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from day.decisions import make_history
from day.groups import commits, coordinators, room, transactions
from day.looks import Columns, see
from day.nodes import make_nodes
from day.numbered import ahead, lose, number
from day.shape import CONTROLLER, Shape

from strandline.export import layout
from strandline.export.arrow import SCHEMA, parquet_bytes
from strandline.export.layout import Manifest, SeqRange
from strandline.export.schema import ENVELOPE, EVENT_TYPES, SCHEMA_VERSION, SORT_ORDER, dataset_of

Row = dict[str, Any]
_MOMENTS = (
    "hw_next_append_us", "last_fetch_us", "last_caught_up_us", "first_us", "last_us", "last_heartbeat_us", "commit_us",
)  # fmt: skip
_MOMENTS_REPORTED = (
    "last_fetch_us", "last_caught_up_us", "last_heartbeat_us", "first_us", "last_us", "held_since_us", "txn_start_us",
)  # fmt: skip
_WORDS = {"expected_state": ("member", "catching_up", "down")}
_ENVELOPE = tuple(c.name for c in ENVELOPE if c.name not in ("schema_version", "cluster_id"))
_INSIDE = ("p", "t", "offset")


def write_day(shape: Shape, root: Path, *, compacted: bool = True) -> int:
    """Generate a day and write it below ``root``; returns how many rows were written, duplicates included."""
    rng = np.random.default_rng(shape.seed)
    nodes = make_nodes(shape, rng)
    history = make_history(shape, nodes, rng)
    decided = (*nodes.rows, *history.rows, *_routine(shape, rng), *coordinators(shape, rng))
    rows = [row for row in decided if row["t"] < shape.end]
    samples = see(shape, history, shape.events - len(rows) - room(shape), rng).tables
    samples["GROUP_OFFSETS"] = commits(shape, samples["REPLICA_SAMPLE"], rng)
    rows += transactions(shape, samples["REPLICA_SAMPLE"], rng)
    reported = {"t": np.array([row["t"] for row in rows]), "node_id": np.array([row["node_id"] for row in rows])}
    tables = {"": reported} | {kind: _within(columns, shape) for kind, columns in samples.items()}
    number(tables, nodes, shape)
    kept = lose(rows, tables, history, shape, rng)
    hours = {kind: (c["t"] + c["offset"]) // 3_600_000_000 for kind, c in tables.items()}
    total = 0
    for hour in range(int(min(h.min() for h in hours.values() if len(h))), _last(hours) + 1):
        parts = list(_reported(rows, reported, np.flatnonzero((hours[""] == hour) & kept[""]), shape))
        for kind in samples:
            chosen = (hours[kind] == hour) & kept[kind]
            parts.append(_seen(kind, {name: values[chosen] for name, values in tables[kind].items()}, shape))
        whole = pa.concat_tables(parts, promote_options="default")
        is_doubled = hour == int(hours[""][0]) + shape.hours // 2
        for dataset in ("transitions", "samples"):
            of = [kind for kind in pc.unique(whole["event_type"]).to_pylist() if dataset_of(kind) == dataset]
            rows_of_hour = whole.filter(pc.is_in(whole["event_type"], pa.array(of, pa.string())))
            total += _write(root, shape, dataset, hour, rows_of_hour, compacted=compacted, doubled=is_doubled)
    return total


def _last(hours: dict[str, np.ndarray]) -> int:
    return int(max(h.max() for h in hours.values() if len(h)))


def _routine(shape: Shape, rng: np.random.Generator) -> list[Row]:
    """Heartbeats of the export, and measurements of clocks."""
    beats = [
        {"t": at, "node_id": node, "event_type": "EXPORT_HEARTBEAT"}
        for node in (CONTROLLER, *range(shape.nodes))
        for at in range(shape.heartbeat_us // 2, shape.end, shape.heartbeat_us)
    ]
    at = np.arange(1_000_000, shape.end, 3 * shape.heartbeat_us)
    clocks = [
        {"t": int(t), "node_id": CONTROLLER, "event_type": "CLOCK_SAMPLE", "subject_node_id": node, "err_us": 2_000,
         "offset_us": int(off)}
        for node in range(shape.nodes)
        for t, off in zip(at, _measured(node, at, shape, rng), strict=True)
    ]  # fmt: skip
    return beats + clocks


def _measured(node: int, at: np.ndarray, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    return ahead(np.full(len(at), node), at, shape) + rng.integers(-2_000, 2_001, len(at))


def _within(columns: Columns, shape: Shape) -> Columns:
    keep = columns["t"] < shape.end
    return {name: values[keep] for name, values in columns.items()}


def _reported(rows: list[Row], reported: Columns, chosen: np.ndarray, shape: Shape) -> Iterator[pa.Table]:
    """Transitions: rows by type."""
    finished = []
    for index in chosen.tolist():
        row, offset = dict(rows[index]), int(reported["offset"][index])
        row["incarnation"], row["seq"] = int(reported["incarnation"][index]), int(reported["seq"][index])
        row["ts_wall_us"], row["ts_mono_us"] = row["t"] + offset, row["t"] + 1_000_000 * (row["node_id"] + 2)
        if row["event_type"] == "EXPORT_HEARTBEAT":
            row["last_seq"] = row["seq"] - 1
        elif row["node_id"] == CONTROLLER:
            row["meta_offset"] = row["seq"]
        if row["event_type"] == "ISR_CHANGE":
            row |= {name: [_shifted(member, offset) for member in row[name]] for name in ("removed", "added")}
        if (partition := row.pop("p", None)) is not None:
            row |= {"topic": shape.topic(partition), "topic_id": shape.topic_id(partition), "partition": partition}
        finished.append(_shifted(row, offset))
    for kind, same in groupby(sorted(finished, key=lambda row: row["event_type"]), lambda row: row["event_type"]):
        found = list(same)
        carried = {*_ENVELOPE, *EVENT_TYPES[kind].payload}
        names = [name for name in SCHEMA.names if name in carried]
        fields = pa.schema([SCHEMA.field(name).with_nullable(True) for name in names])
        yield _enveloped(pa.Table.from_pylist(found, fields), shape)


def _shifted(row: Row, offset: int) -> Row:
    return row | {name: row[name] + offset for name in _MOMENTS_REPORTED if row.get(name) is not None}


def _seen(kind: str, columns: Columns, shape: Shape) -> pa.Table:
    """Samples: whole columns; -1 means a time that does not exist."""
    n, offset = len(columns["t"]), columns["offset"]
    arrays: dict[str, pa.Array] = {"event_type": pa.repeat(kind, n)}
    arrays["ts_wall_us"] = pa.array(columns["t"] + offset)
    arrays["ts_mono_us"] = pa.array(columns["t"] + 1_000_000 * (columns["node_id"] + 2))
    for name, values in columns.items():
        if name in _MOMENTS:
            arrays[name] = pa.array(values + offset, pa.int64(), mask=values < 0)
        elif name in _WORDS:
            arrays[name] = pa.DictionaryArray.from_arrays(pa.array(values, pa.int8()), list(_WORDS[name])).cast(
                "string"
            )
        elif name == "n_error":
            arrays[name] = pa.array(values.tolist(), SCHEMA.field(name).type)
        elif name not in _INSIDE:
            arrays[name] = pa.array(values).cast(SCHEMA.field(name).type)
    arrays["partition"] = pa.array(columns["p"], pa.int32())
    of_topic = pa.array(columns["p"], pa.int32())
    for name, naming in (("topic", shape.topic), ("topic_id", shape.topic_id)):
        names = pa.array([naming(partition) for partition in range(shape.partitions)])
        arrays[name] = pa.DictionaryArray.from_arrays(of_topic, names).cast("string")
    if kind == "HW_ADVANCE":
        arrays["cause"] = pa.repeat("fetch", n)
        arrays["blocking_replicas"] = pa.array([[]] * n, pa.list_(pa.int32()))
    return _enveloped(pa.table(arrays), shape)


def _enveloped(table: pa.Table, shape: Shape) -> pa.Table:
    n = table.num_rows
    table = table.append_column("schema_version", pa.repeat(pa.scalar(SCHEMA_VERSION, pa.int32()), n))
    return table.append_column("cluster_id", pa.repeat(shape.cluster_id, n))


def _write(root: Path, shape: Shape, dataset: str, hour: int, rows: pa.Table, *, compacted: bool, doubled: bool) -> int:
    if not rows.num_rows:
        return 0
    emitters = (
        rows.group_by(["node_id", "incarnation"])
        .aggregate([])
        .sort_by([("node_id", "ascending"), ("incarnation", "ascending")])
    )
    by_emitter = [
        rows.filter(pc.and_(pc.equal(rows["node_id"], e["node_id"]), pc.equal(rows["incarnation"], e["incarnation"])))
        for e in emitters.to_pylist()
    ]
    ranges = [_range(part) for part in by_emitter]
    folder = root / layout.cluster_folder(shape.cluster_id)
    written = 0
    if compacted:
        path = layout.compacted_path(dataset, layout.hour_folder(hour), 1, f"{hour:012x}", layout.PARQUET)
        written += _put(folder, path, rows, tuple(ranges))
    for seqs, part in zip(ranges, by_emitter, strict=True):
        is_double = doubled and seqs == ranges[0]
        if not compacted:
            written += _put(folder, layout.data_path(dataset, hour, seqs, layout.PARQUET), part, (seqs,))
            if is_double:
                half = part.slice(part.num_rows // 2)
                again = _range(half)
                if again != seqs:
                    written += _put(folder, layout.data_path(dataset, hour, again, layout.PARQUET), half, (again,))
        elif is_double:
            written += _put(folder, layout.data_path(dataset, hour, seqs, layout.PARQUET), part, (seqs,))
    return written


def _range(rows: pa.Table) -> SeqRange:
    ends = pc.min_max(rows["seq"]).as_py()
    node, incarnation = rows["node_id"][0].as_py(), rows["incarnation"][0].as_py()
    return SeqRange(node_id=node, incarnation=incarnation, first_seq=ends["min"], last_seq=ends["max"])


def _put(folder: Path, path: str, rows: pa.Table, ranges: tuple[SeqRange, ...]) -> int:
    order = pc.sort_indices(_sortable(rows), sort_keys=[(name, "ascending", "at_start") for name in SORT_ORDER])
    rows = rows.take(order)
    whole = pa.Table.from_arrays(
        [
            rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )
    content = parquet_bytes(whole)
    times = pc.min_max(rows["ts_wall_us"]).as_py()
    manifest = Manifest(
        path=path, rows=len(rows), ranges=ranges, min_ts_wall_us=times["min"], max_ts_wall_us=times["max"],
        size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), schema_version=SCHEMA_VERSION,
    )  # fmt: skip
    for name, put in ((path, content), (layout.manifest_path(path), manifest.to_json().encode())):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(put)
    return len(rows)


def _sortable(rows: pa.Table) -> pa.Table:
    """The columns of the sort order; absent values are null."""
    return pa.table(
        {name: rows[name] if name in rows.column_names else pa.nulls(len(rows), pa.int64()) for name in SORT_ORDER}
    )
