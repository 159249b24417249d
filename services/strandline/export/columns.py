"""Events made into columns without ever being rows: transposed class by class, some hundred at a time.

Within a class of events a field's values are a column as they are, so names and conversions are decided once for a
class and not for every value. The result is that of `rows.to_row` for each event.

Imports pyarrow, so it is itself imported only where Parquet is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.core.state_events import NAME_OF
from strandline.export.arrow import TYPES, parquet_bytes, whole_table
from strandline.export.rows import STEPS, Finished, Run, Step, Taken, TopicName
from strandline.export.schema import SCHEMA_VERSION, Kind

EVENTS_AT_A_TIME = 512
"""As many as are converted together: enough that each costs little, few enough that nobody waits long for the GIL."""

_EVENT: Final = 2
"""The place of `Taken.event`; a number is read in a third of the time of a name."""
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
        """Take events; convert once there are enough of them."""
        self._seqs += run.seqs
        self._events += run.events
        self._last = run
        if len(self._events) >= EVENTS_AT_A_TIME:
            self._convert(run.topic_name)

    def _convert(self, topic_name: TopicName) -> None:
        waiting: dict[type[Any], list[tuple[int, Taken]]] = {}
        for numbered in zip(self._seqs, self._events, strict=True):
            waiting.setdefault(type(numbered[1][_EVENT]), []).append(numbered)
        for kind, found in waiting.items():
            batch = _batch(kind, found, topic_name)
            self.size_bytes += batch.nbytes
            self._batches.setdefault(kind, []).append(batch)
        self._seqs, self._events = [], []

    def finish(self) -> Finished:
        """Sort and compress."""
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
    if step.kind is Kind.LONGS_BY_NAME:
        return pa.array([None if value is None else list(value.items()) for value in values], kind)
    if step.convert is None or step.kind in (Kind.INTS, Kind.STRINGS):
        return pa.array(values, kind)
    return pa.array([step.convert(value, offset) for value, offset in zip(values, offsets_us, strict=True)], kind)


def _texts(steps: Sequence[Step], events: Sequence[Any]) -> pa.Array:
    """What has no column of its own, as text."""
    places = [(place, step.name) for place, step in enumerate(steps) if step.column is None]
    rows = [[(name, event[place]) for place, name in places if event[place] is not None] for event in events]
    return pa.array([row or None for row in rows], TYPES[Kind.STRINGS_BY_NAME])
