"""Events made into columns without ever being rows: transposed shape by shape, some hundred at a time.

Events of one type whose fields have the same names in the same order are of one *shape*. Within a shape a field's
values are a column as they are, so what is decided (names, conversions, nulls) is decided once for a shape and not for
every value. It has to come to what `rows.to_row` says of each event.

Imports pyarrow, so it is itself imported only where Parquet is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.export.arrow import SCHEMA, parquet_bytes, whole_table
from strandline.export.encoding import Finished
from strandline.export.rows import LEADERS, Step, Taken, lists_of, plan_of
from strandline.export.runs import Run, TopicName
from strandline.export.schema import NO_LEADER, SCHEMA_VERSION

EVENTS_AT_A_TIME = 512
"""As many as are converted together: enough that each costs little, few enough that nobody waits long for the GIL."""

Shape = tuple[str, ...]
"""An event type and the names of the fields."""

_Values = Sequence[Any]
_SHAPES_KEPT = 1_024
_KIND: Final = 2
_FIELDS: Final = 4
"""The places of `Taken.event_type` and `Taken.fields`; a number is read in a third of the time of a name."""
_WORD = pa.dictionary(pa.int32(), pa.string())
_UNEXPECTED = (pa.ArrowException, TypeError, ValueError, OverflowError)


class GrowingParquet:
    """A file of one incarnation that is collected in memory as Arrow batches."""

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._events: list[Taken] = []
        self._batches: dict[Shape, list[pa.RecordBatch]] = {}
        self._last: Run | None = None
        self.size_bytes = 0

    def add(self, run: Run) -> None:
        """Take events; convert once there are enough of them."""
        self._seqs += run.seqs
        self._events += run.events
        self._last = run
        if len(self._events) >= EVENTS_AT_A_TIME:
            self._convert(run.topic_name)

    def _convert(self, topic_name: TopicName) -> None:
        waiting: dict[Shape, list[tuple[int, Taken]]] = {}
        for numbered in zip(self._seqs, self._events, strict=True):
            event = numbered[1]
            shape = (event[_KIND], *event[_FIELDS])
            if shape in waiting:
                waiting[shape].append(numbered)
            else:
                waiting[shape] = [numbered]
        for shape, found in waiting.items():
            batch = _batch(shape, found, topic_name)
            self.size_bytes += batch.nbytes
            self._batches.setdefault(shape, []).append(batch)
        self._seqs, self._events = [], []

    def finish(self) -> Finished:
        """Sort and compress."""
        assert self._last is not None, "a file that grows has events"
        emitter = self._last.emitter
        self._convert(self._last.topic_name)
        tables = {shape: pa.Table.from_batches(found) for shape, found in self._batches.items()}
        by_type: dict[str, int] = {}
        for (event_type, *_), found in tables.items():
            by_type[event_type] = by_type.get(event_type, 0) + found.num_rows
        constant = {
            "schema_version": SCHEMA_VERSION,
            "cluster_id": emitter.cluster_id,
            "node_id": emitter.node_id,
            "incarnation": emitter.incarnation,
        }
        typed = [_with_type(shape, found) for shape, found in tables.items()]
        table = whole_table(pa.concat_tables(typed, promote_options="default"), constant)
        times = pc.min_max(table.column("ts_wall_us")).as_py()
        return Finished(content=parquet_bytes(table), by_type=by_type, min_us=times["min"], max_us=times["max"])


def _with_type(shape: Shape, table: pa.Table) -> pa.Table:
    indices = pa.repeat(pa.scalar(0, pa.int32()), table.num_rows)
    return table.append_column("event_type", pa.DictionaryArray.from_arrays(indices, pa.array([shape[0]], pa.string())))


def _batch(shape: Shape, numbered: list[tuple[int, Taken]], topic_name: TopicName) -> pa.RecordBatch:
    seqs, events = zip(*numbered, strict=True)
    walls, monos, _, tps, fields, controller_epochs = zip(*events, strict=True)
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
    values = list(zip(*(each.values() for each in fields), strict=True))
    offsets_us = [wall - mono for wall, mono in zip(walls, monos, strict=True)]
    for column, of in _columns(shape):
        arrays[column] = of(values, offsets_us)
    return pa.RecordBatch.from_pydict(arrays)


_Of = Callable[[Sequence[_Values], list[int]], pa.Array]
"""Makes a column of a shape's values (one sequence for each field) and the offsets between the two clocks."""


@lru_cache(_SHAPES_KEPT)
def _columns(shape: Shape) -> tuple[tuple[str, _Of], ...]:
    """The columns beside the envelope's, and how each is made."""
    event_type, *names = shape
    plan = plan_of(event_type)
    columns: dict[str, _Of] = {name: _empty_lists(SCHEMA.field(name).type) for name in lists_of(event_type)}
    for place, name in enumerate(names):
        if name in plan:
            columns[plan[name].column] = _field(place, plan[name])
    unknown = {name: place for place, name in enumerate(names) if name not in plan}
    if unknown:
        columns["ext"] = _texts(unknown)
    return tuple(columns.items())


def _field(place: int, step: Step) -> _Of:
    kind = SCHEMA.field(step.column).type

    def of(values: Sequence[_Values], offsets_us: list[int]) -> pa.Array:
        found = values[place]
        if step.kind is None:
            found = [None if v is None else int(v) * 1000 + o for v, o in zip(found, offsets_us, strict=True)]
        elif step.column in LEADERS:
            found = [NO_LEADER if v is None else v for v in found]
        elif pa.types.is_nested(kind):
            found = _nested(kind, step, found, offsets_us)
        try:
            return pa.array(found, kind)
        except _UNEXPECTED:
            converted = (step.convert(v, o) if v is not None else None for v, o in zip(found, offsets_us, strict=True))
            return pa.array(list(converted), kind)

    return of


def _nested(kind: pa.DataType, step: Step, found: _Values, offsets_us: list[int]) -> list[Any]:
    if pa.types.is_map(kind):
        return [None if v is None else list(step.convert(v, 0).items()) for v in found]  # type: ignore[attr-defined]
    return [[] if v is None else step.convert(v, o) for v, o in zip(found, offsets_us, strict=True)]


def _empty_lists(kind: pa.DataType) -> _Of:
    return lambda _, offsets_us: pa.array([()] * len(offsets_us), kind)


def _texts(places: dict[str, int]) -> _Of:
    """What has no column of its own, as text."""

    def of(values: Sequence[_Values], offsets_us: list[int]) -> pa.Array:
        rows = [
            [(name, str(values[place][row])) for name, place in places.items() if values[place][row] is not None]
            for row in range(len(offsets_us))
        ]
        return pa.array([row or None for row in rows], SCHEMA.field("ext").type)

    return of
