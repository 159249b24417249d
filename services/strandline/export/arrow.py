"""Decides how rows become Arrow and Parquet: types from `schema.py`, sorted, zstd, the same bytes every time.

Imports pyarrow, so it is itself imported only where Parquet is wanted.

Invariant: a file's bytes follow from its rows alone, so writing it again replaces it by itself.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.export.rows import Row
from strandline.export.schema import COLUMNS, ENVELOPE, EVENT_TYPES, MEMBER_FIELDS, SORT_ORDER, Kind

ROWS_PER_GROUP = 50_000

_PLAIN = {Kind.STRING: pa.string(), Kind.INT: pa.int32(), Kind.LONG: pa.int64(), Kind.BOOL: pa.bool_()}
_TYPES = {
    **_PLAIN,
    Kind.INTS: pa.list_(pa.int32()),
    Kind.MEMBERS: pa.list_(pa.struct([(name, _PLAIN[kind]) for name, kind in MEMBER_FIELDS])),
    Kind.STRINGS_BY_NAME: pa.map_(pa.string(), pa.string()),
    Kind.LONGS_BY_NAME: pa.map_(pa.string(), pa.int64()),
}
_ENVELOPE = frozenset(column.name for column in ENVELOPE)

SCHEMA = pa.schema([pa.field(c.name, _TYPES[c.kind], nullable=not c.required) for c in COLUMNS])
"""The schema of every exported file."""


def record_batches(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    """Rows as one batch for each event type, so that only the columns that a type can have are looked into."""
    by_type: dict[str, list[Row]] = {}
    for row in rows:
        by_type.setdefault(row["event_type"], []).append(row)
    return [_batch(event_type, found) for event_type, found in by_type.items()]


def _batch(event_type: str, rows: Sequence[Row]) -> pa.RecordBatch:
    present = _ENVELOPE.union(_payload(event_type))
    arrays = [
        _array([row.get(field.name) for row in rows], field.type)
        if field.name in present
        else pa.nulls(len(rows), field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _payload(event_type: str) -> tuple[str, ...]:
    known = EVENT_TYPES.get(event_type)
    return known.payload if known else ()


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [None if value is None else list(value.items()) for value in values]  # type: ignore[attr-defined]
    return pa.array(values, kind)


def sorted_table(batches: Sequence[pa.RecordBatch] | pa.Table) -> pa.Table:
    """The batches as one table in the order of `SORT_ORDER`, nulls first."""
    table = batches if isinstance(batches, pa.Table) else pa.Table.from_batches(batches, schema=SCHEMA)
    keys = [(name, "ascending", "at_start") for name in SORT_ORDER]
    return table.combine_chunks().take(pc.sort_indices(table, sort_keys=keys))


def parquet_bytes(table: pa.Table) -> bytes:
    """A Parquet file. Arrow's own schema is not stored: it would be larger than most files' rows."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", row_group_size=ROWS_PER_GROUP, store_schema=False)
    return sink.getvalue()


def read_parquet(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """A file's table, or some of its columns."""
    return pq.read_table(io.BytesIO(content), columns=list(columns) if columns else None)


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table, for readers of JSON lines."""
    return pa.Table.from_batches(record_batches(rows), schema=SCHEMA)
