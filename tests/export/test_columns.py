"""Columns that are built from events without rows say what the rows would have said."""

from __future__ import annotations

import itertools
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from exported_rows import CLUSTER

from strandline.core.types import TopicPartition
from strandline.export.encoding import ExportFormat, growing
from strandline.export.reading import read_rows
from strandline.export.rows import Emitter, Taken
from strandline.export.runs import Run
from strandline.export.schema import COLUMNS, EVENT_TYPES, Kind

EMITTER = Emitter(cluster_id=CLUSTER, node_id=2, incarnation=7)
TP = TopicPartition("a-topic", 1)


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    FOUR = 4


ODD: dict[Kind, tuple[Any, ...]] = {
    Kind.STRING: ("plain", Colour.RED, 5, None, ""),
    Kind.INT: (1, True, Number.FOUR, None, -1),
    Kind.LONG: (1 << 40, True, Number.FOUR, None, 0),
    Kind.BOOL: (True, False, 1, None, 0),
    Kind.INTS: ((1, 2), [3], frozenset({4}), None, ()),
    Kind.MEMBERS: ([{"replica_id": 1, "leo": 4, "last_fetch_ms": 9}], (5,), [], None, [{"replica_id": 1, "leo": None}]),
    Kind.STRINGS_BY_NAME: ({"a": "b"}, {"a": 1}, {}, None, {"c": "d"}),
    Kind.LONGS_BY_NAME: ({"a": 1}, {Colour.RED: True}, {}, None, {"b": 2}),
}
"""Values of each kind that events may carry, as many for one kind as for another."""
CHOICES = 5


def _file(kind: ExportFormat, runs: list[Run]) -> list[dict[str, Any]]:
    file = growing(kind)
    for run in runs:
        file.add(run)
    finished = file.finish()
    rows = read_rows(f"x.{kind.value}", finished.content)
    assert finished.rows == len(rows)
    assert (finished.min_us, finished.max_us) == (
        min(r["ts_wall_us"] for r in rows),
        max(r["ts_wall_us"] for r in rows),
    )
    return rows


def _both(events: list[Taken], *, per_run: int = 3) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    runs = [
        Run(EMITTER, range(begin + 1, begin + 1 + len(part)), part, {"a-topic": "tides"}.get)
        for begin in range(0, len(events), per_run)
        if (part := events[begin : begin + per_run])
    ]
    parquet, lines = _file(ExportFormat.PARQUET, runs), _file(ExportFormat.JSONL, runs)
    return parquet, lines


def _event(event_type: str, fields: dict[str, Any], number: int = 0, tp: TopicPartition | None = TP) -> Taken:
    return Taken(1_000_000_500 + number, 500 + 2 * number, event_type, tp, fields, number or None)


@pytest.mark.parametrize("name", [*EVENT_TYPES, "WEATHER"])
def test_columns_say_what_rows_say(name: str) -> None:
    """Whatever a field holds: enumerations, nothing, a number for a text, moments, names that have no column."""
    kinds = {column.name: column.kind for column in COLUMNS}
    payload = EVENT_TYPES[name].payload if name in EVENT_TYPES else ()
    events = []
    for choice, present in itertools.product(range(CHOICES), (len(payload), len(payload) // 2)):
        fields = {column: ODD[kinds[column]][choice] for column in payload[:present]}
        fields |= {"leader_epoch": choice, "last_fetch_ms": 7 + choice, "storm": None if choice == 1 else choice}
        events.append(_event(name, fields, choice, None if choice == 2 else TP))
    parquet, lines = _both(events)

    assert parquet == lines
    assert len(parquet) == len(events)


def test_moments_are_converted_with_the_offset_of_their_own_event() -> None:
    """Two events whose clocks differ, in one shape."""
    (one, two), lines = _both([_event("NODE_SESSION", {"last_heartbeat_ms": 250}, n) for n in (0, 1)])

    assert (one["last_heartbeat_us"], two["last_heartbeat_us"]) == (1_000_250_000, 1_000_249_999)
    assert [one, two] == lines


def test_many_events_of_mixed_shapes_are_one_sorted_file() -> None:
    """More than are converted at a time, of several topics whose first appearance is not their order."""
    topics = [TopicPartition(f"t{n}", n % 3) for n in (7, 3, 9, 1)]
    events = [
        _event("HW_ADVANCE" if n % 3 else "LOCAL_SAMPLE", {"leader_epoch": n % 2, "new_hw": n}, n, topics[n % 4])
        for n in range(2_000)
    ]
    parquet, lines = _both(events, per_run=500)

    assert parquet == lines
