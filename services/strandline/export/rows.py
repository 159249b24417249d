"""How an event becomes a row: names, moments, shapes, and what has no column yet.

The core speaks of moments in its monotonic milliseconds (``last_fetch_ms``); a row has them as times of day in
microseconds (``last_fetch_us``), converted with the offset of the event's own two clock readings.

Invariant: no field is lost. One without a column goes into ``ext`` as text, so a reader of an older schema has it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from strandline.core.state_events import DATASET_OF, EVENT_TYPES, NAME_OF, SAMPLES, TRANSITIONS, Member, StateEvent
from strandline.core.types import TopicPartition
from strandline.export.layout import hour_of
from strandline.export.schema import NO_LEADER, SCHEMA_VERSION, ColumnType, Field, fields_of

Row = dict[str, Any]
"""A row as it is exported: set columns only, in plain Python values."""


TopicName = Callable[[str], str | None]
"""Returns the name of a topic id; None if it is not known."""


class Taken(NamedTuple):
    """An event as it was taken from the core, not yet numbered."""

    wall_us: int
    mono_us: int
    event: StateEvent
    tp: TopicPartition | None
    controller_epoch: int | None = None


EVENT: Final = 2
"""The index of `Taken.event`; access by index takes a third of the time of access by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitter:
    """The source of events: one incarnation of one node."""

    cluster_id: str
    node_id: int
    incarnation: int


def to_row(taken: Taken, seq: int, emitter: Emitter, topic_name: TopicName) -> Row:
    """The row of an event."""
    row: Row = {
        "schema_version": SCHEMA_VERSION,
        "cluster_id": emitter.cluster_id,
        "event_type": NAME_OF[type(taken.event)],
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
    offset_us = taken.wall_us - taken.mono_us
    for step, value in zip(STEPS[type(taken.event)], taken.event, strict=True):
        if step.convert is not None:
            value = step.convert(value, offset_us)
        if value is None:
            continue
        if step.column is None:
            row.setdefault("ext", {})[step.name] = value
        else:
            row[step.column] = value


Convert = Callable[[Any, int], Any]
"""Converts a field's value, which may be None, to a column's; takes also the offset of the emitter's clocks in us."""


class Step(NamedTuple):
    """How one field is exported: its column (None: ``ext``), and its conversion (None: the value is not changed)."""

    name: str
    column: str | None
    kind: ColumnType
    convert: Convert | None


def _conversion(field: Field) -> Convert | None:
    if field.is_moment:
        return _moment
    if field.is_leader:
        return lambda value, _: NO_LEADER if value is None else value
    if field.kind is ColumnType.MEMBERS:
        return lambda members, offset_us: [_member(member, offset_us) for member in members]
    if field.kind in (ColumnType.INTS, ColumnType.STRINGS):
        return lambda items, _: list(items)
    return None


def _steps(kind: type[Any]) -> tuple[Step, ...]:
    return tuple(Step(field.name, field.column, field.kind, _conversion(field)) for field in fields_of(kind))


def _moment(value: int | None, offset_us: int) -> int | None:
    return None if value is None else value * 1000 + offset_us


def _member(member: Sequence[Any], offset_us: int) -> dict[str, int | None]:
    return {
        str(step.column): value if step.convert is None else step.convert(value, offset_us)
        for step, value in zip(_OF_A_MEMBER, member, strict=True)
    }


STEPS: dict[type[Any], tuple[Step, ...]] = {known.kind: _steps(known.kind) for known in EVENT_TYPES.values()}
"""The steps of each class of events, in the order of its fields."""

_OF_A_MEMBER = _steps(Member)


# ---- runs
# Numbered events on their way to the outlets: many at a time, as the core gave them.
#
# Making a row of an event costs more than all the other steps together, so an outlet makes rows only if it writes
# rows; Parquet is built by column instead (`arrow.py`).
#
# Invariant: all events of a run have the same emitter, and their numbers increase.


@dataclass(frozen=True, slots=True)
class Run:
    """Events with their numbers."""

    emitter: Emitter
    seqs: Sequence[int]
    events: Sequence[Taken]
    topic_name: TopicName

    def rows(self) -> list[Row]:
        """The events as rows."""
        numbered = zip(self.events, self.seqs, strict=True)
        return [to_row(event, seq, self.emitter, self.topic_name) for event, seq in numbered]

    def of(self, dataset: str) -> Run:
        """The events that belong to a dataset; possibly none."""
        return self.by_dataset().get(dataset) or self._part(())

    def by_dataset(self) -> dict[str, Run]:
        """The events of each dataset that has any, the transitions first."""
        kinds = [type(event[EVENT]) for event in self.events]
        # There are few kinds and many events, so the dataset is looked up once for each kind.
        known = {kind: DATASET_OF[kind] for kind in set(kinds)}
        present = [dataset for dataset in (TRANSITIONS, SAMPLES) if dataset in known.values()]
        if len(present) == 1:
            return {present[0]: self}
        return {
            dataset: self._part([i for i, kind in enumerate(kinds) if known[kind] == dataset]) for dataset in present
        }

    def by_hour(self) -> Iterator[tuple[int, Run]]:
        """Runs of one hour each, with the hour since 1970; if the clock jumps, an hour may come several times."""
        walls = [event.wall_us for event in self.events]
        if hour_of(min(walls)) == hour_of(max(walls)):
            yield hour_of(walls[0]), self
            return
        begin = 0
        for end in range(1, len(walls) + 1):
            if end == len(walls) or hour_of(walls[end]) != hour_of(walls[begin]):
                yield hour_of(walls[begin]), self._part(range(begin, end))
                begin = end

    def _part(self, places: Sequence[int]) -> Run:
        if len(places) == len(self.events):
            return self
        seqs, events = self.seqs, self.events
        return Run(self.emitter, [seqs[i] for i in places], [events[i] for i in places], self.topic_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The bytes of a finished file, and a summary of its events."""

    content: bytes
    by_type: dict[str, int]
    """How many events there are of each type."""
    min_us: int
    max_us: int
    """The first and the last time of day of its events, in us."""

    @property
    def rows(self) -> int:
        """How many events there are."""
        return sum(self.by_type.values())
