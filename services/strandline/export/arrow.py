"""Rows as Arrow and Parquet: types from `schema.py`, sorted, zstd, the same bytes every time.

Imports pyarrow, so it is itself imported only where Parquet is wanted.

Invariant: a file's bytes follow from its rows alone, so writing it again replaces it by an identical file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.core.state_events import NAME_OF
from strandline.export.rows import EVENT, STEPS, Finished, Row, Run, Step, Taken, TopicName
from strandline.export.schema import COLUMNS, MEMBER_FIELDS, SCHEMA_VERSION, SORT_ORDER, ColumnType

ROWS_PER_GROUP = 50_000

_PLAIN = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.LONG: pa.int64(),
    ColumnType.BOOL: pa.bool_(),
}
TYPES = {
    **_PLAIN,
    ColumnType.INTS: pa.list_(pa.int32()),
    ColumnType.STRINGS: pa.list_(pa.string()),
    ColumnType.MEMBERS: pa.list_(pa.struct([(name, _PLAIN[kind]) for name, kind in MEMBER_FIELDS])),
    ColumnType.STRINGS_BY_NAME: pa.map_(pa.string(), pa.string()),
    ColumnType.LONGS_BY_NAME: pa.map_(pa.string(), pa.int64()),
}

SCHEMA = pa.schema([pa.field(c.name, TYPES[c.kind], nullable=not c.required) for c in COLUMNS])
"""The schema of every exported file."""


_WHOLE_NUMBERS = frozenset(field.name for field in SCHEMA if pa.types.is_integer(field.type))
_WORDS = tuple(field.name for field in SCHEMA if pa.types.is_string(field.type))


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of the columns that any of them has."""
    present = {name for row in rows for name in row}
    fields = [field for field in SCHEMA if field.name in present]
    arrays = [_array([row.get(field.name) for row in rows], field.type) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(field.with_nullable(True) for field in fields))


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [None if value is None else list(value.items()) for value in values]  # type: ignore[attr-defined]
    return pa.array(values, kind)


def whole_table(narrow: pa.Table, constant: Mapping[str, object] = MappingProxyType({})) -> pa.Table:
    """The sorted table of a file with all columns: those of ``narrow``, those of ``constant``; nulls in the rest."""
    if not narrow.num_rows:
        return SCHEMA.empty_table()
    narrow = narrow.unify_dictionaries().combine_chunks()
    narrow = narrow.take(pc.sort_indices(_keys(narrow), sort_keys=[(n, "ascending", "at_start") for n in SORT_ORDER]))
    present = frozenset(narrow.column_names)
    return pa.Table.from_arrays(
        [
            narrow.column(field.name).cast(field.type)
            if field.name in present
            else pa.repeat(pa.scalar(constant[field.name], field.type), narrow.num_rows)
            if field.name in constant
            else pa.nulls(narrow.num_rows, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _keys(narrow: pa.Table) -> pa.Table:
    """The sort keys as integers: a topic's id is replaced by its rank, which compares faster than text."""
    present = frozenset(narrow.column_names)
    keys = {
        name: narrow.column(name) if name in present else pa.nulls(narrow.num_rows, pa.int64()) for name in SORT_ORDER
    }
    if "topic_id" in present:
        (ids,) = keys["topic_id"].dictionary_encode().chunks
        order = {topic_id: rank for rank, topic_id in enumerate(sorted(ids.dictionary.to_pylist()))}
        keys["topic_id"] = pa.array(map(order.__getitem__, ids.dictionary.to_pylist()), pa.int64()).take(ids.indices)
    return pa.table(keys)


def parquet_bytes(table: pa.Table) -> bytes:
    """A Parquet file. Arrow's own schema is not stored: it would be larger than most files' rows.

    Integers are delta encoded: as the rows are sorted, that takes a tenth of the space of dictionaries and half of
    their time.
    """
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=ROWS_PER_GROUP,
        store_schema=False,
        use_dictionary=_WORDS,
        column_encoding=dict.fromkeys(_WHOLE_NUMBERS, "DELTA_BINARY_PACKED"),
    )
    return sink.getvalue()


def read_parquet(content: bytes) -> pa.Table:
    """The table of a Parquet file."""
    return pq.read_table(io.BytesIO(content))


# ---- columns
# Makes columns of events without making rows first: transposed class by class, some hundred events at a time.
#
# Within a class of events a field's values are a column as they are, so names and conversions are decided once for a
# class and not for every value. The result is that of `rows.to_row` for each event.
#
# Imports pyarrow, so it is itself imported only where Parquet is wanted.

EVENTS_AT_A_TIME = 512
"""How many events are converted together: enough that each is cheap, few enough that no thread waits long."""

_WORD = pa.dictionary(pa.int32(), pa.string())


class GrowingParquet:
    """A file of one incarnation that is collected in memory as Arrow batches."""

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._events: list[Taken] = []
        self._batches: dict[type[Any], list[pa.RecordBatch]] = {}
        self._last: Run | None = None
        self.size_bytes = 0

    def add(self, run: Run) -> None:
        """Add events; they are converted once there are enough of them."""
        self._seqs += run.seqs
        self._events += run.events
        self._last = run
        if len(self._events) >= EVENTS_AT_A_TIME:
            self._convert(run.topic_name)

    def _convert(self, topic_name: TopicName) -> None:
        waiting: dict[type[Any], list[tuple[int, Taken]]] = {}
        for numbered in zip(self._seqs, self._events, strict=True):
            waiting.setdefault(type(numbered[1][EVENT]), []).append(numbered)
        for kind, found in waiting.items():
            batch = _batch(kind, found, topic_name)
            self.size_bytes += batch.nbytes
            self._batches.setdefault(kind, []).append(batch)
        self._seqs, self._events = [], []

    def finish(self) -> Finished:
        """Sort and compress the events; returns the finished file."""
        assert self._last is not None, "a file that grows has events"
        emitter = self._last.emitter
        self._convert(self._last.topic_name)
        tables = {NAME_OF[kind]: pa.Table.from_batches(found) for kind, found in self._batches.items()}
        by_type = {event_type: found.num_rows for event_type, found in tables.items()}
        constant = {
            "schema_version": SCHEMA_VERSION,
            "cluster_id": emitter.cluster_id,
            "node_id": emitter.node_id,
            "incarnation": emitter.incarnation,
        }
        typed = [_with_type(event_type, found) for event_type, found in tables.items()]
        table = whole_table(pa.concat_tables(typed, promote_options="default"), constant)
        times = pc.min_max(table.column("ts_wall_us")).as_py()
        return Finished(content=parquet_bytes(table), by_type=by_type, min_us=times["min"], max_us=times["max"])


def _with_type(event_type: str, table: pa.Table) -> pa.Table:
    indices = pa.repeat(pa.scalar(0, pa.int32()), table.num_rows)
    return table.append_column(
        "event_type", pa.DictionaryArray.from_arrays(indices, pa.array([event_type], pa.string()))
    )


def _batch(kind: type[Any], numbered: list[tuple[int, Taken]], topic_name: TopicName) -> pa.RecordBatch:
    seqs, taken = zip(*numbered, strict=True)
    walls, monos, events, tps, controller_epochs = zip(*taken, strict=True)
    arrays = {
        "seq": pa.array(seqs, pa.int64()),
        "ts_wall_us": pa.array(walls, pa.int64()),
        "ts_mono_us": pa.array(monos, pa.int64()),
        "controller_epoch": pa.array(controller_epochs, pa.int32()),
    }
    ids = [None if tp is None else tp.topic_id for tp in tps]
    names = {topic_id: None if topic_id is None else topic_name(topic_id) for topic_id in set(ids)}
    arrays["topic_id"] = pa.array(ids, _WORD)
    arrays["topic"] = pa.array([names[topic_id] for topic_id in ids], _WORD)
    arrays["partition"] = pa.array([None if tp is None else tp.partition for tp in tps], pa.int32())
    offsets_us = [wall - mono for wall, mono in zip(walls, monos, strict=True)]
    steps = STEPS[kind]
    for step, values in zip(steps, zip(*events, strict=True), strict=True):
        if step.column is not None:
            arrays[step.column] = _column(step, values, offsets_us)
    if any(step.column is None for step in steps):
        arrays["ext"] = _texts(steps, events)
    return pa.RecordBatch.from_pydict(arrays)


def _column(step: Step, values: Sequence[Any], offsets_us: list[int]) -> pa.Array:
    kind = TYPES[step.kind]
    if step.kind in (ColumnType.LONGS_BY_NAME, ColumnType.STRINGS_BY_NAME):
        return pa.array([None if value is None else list(value.items()) for value in values], kind)
    if step.convert is None or step.kind in (ColumnType.INTS, ColumnType.STRINGS):
        return pa.array(values, kind)
    return pa.array([step.convert(value, offset) for value, offset in zip(values, offsets_us, strict=True)], kind)


def _texts(steps: Sequence[Step], events: Sequence[Any]) -> pa.Array:
    """The fields without a column of their own, as name and text."""
    places = [(place, step.name) for place, step in enumerate(steps) if step.column is None]
    rows = [[(name, event[place]) for place, name in places if event[place] is not None] for event in events]
    return pa.array([row or None for row in rows], TYPES[ColumnType.STRINGS_BY_NAME])
