"""Columns built directly from events equal the columns of the rows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from exported_rows import CLUSTER
from made_events import made

from strandline.core.state_events import EVENT_TYPES, Member, Moment, StateEvent
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.export.encoding import ExportFormat, growing
from strandline.export.reading import read_rows
from strandline.export.rows import Emitter, Run, Taken
from strandline.export.schema import Kind, fields_of

EMITTER = Emitter(cluster_id=CLUSTER, node_id=2, incarnation=7)
TP = TopicPartition("a-topic", 1)


VALUES: dict[Kind, tuple[Any, ...]] = {
    Kind.STRING: ("plain", None, ""),
    Kind.INT: (1, None, -1),
    Kind.LONG: (1 << 40, None, 0),
    Kind.BOOL: (True, None, False),
    Kind.INTS: ((1, 2), (), (3,)),
    Kind.STRINGS: (("a:0", "a:1"), (), ("b:2",)),
    Kind.MEMBERS: ((Member(NodeId(1), Offset(4), Moment(9)),), (), (Member(NodeId(5)), Member(NodeId(6)))),
    Kind.LONGS_BY_NAME: ({"a": 1}, {}, {"b": 2, "c": 3}),
}
"""Values of each kind that events may carry, as many for one kind as for another."""
CHOICES = 3


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


def _event(event: StateEvent, number: int = 0, tp: TopicPartition | None = TP) -> Taken:
    return Taken(1_000_000_500 + number, 500 + 2 * number, event, tp, number or None)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_columns_say_what_rows_say(name: str) -> None:
    """Columns equal rows for every field of every type: set, absent, and with another value."""
    kind = EVENT_TYPES[name].kind
    events = []
    for choice, shift in itertools.product(range(CHOICES), repeat=2):
        values = [VALUES[field.kind][(choice + shift * n) % CHOICES] for n, field in enumerate(fields_of(kind))]
        events.append(_event(kind(*values), choice, None if choice == 2 else TP))
    parquet, lines = _both(events)

    assert parquet == lines
    assert len(parquet) == len(events)


def test_moments_are_converted_with_the_offset_of_their_own_event() -> None:
    """Times of two events with different clocks in one shape are converted with each event's own offset."""
    (one, two), lines = _both([_event(made("NODE_SESSION", last_heartbeat_ms=250), n) for n in (0, 1)])

    assert (one["last_heartbeat_us"], two["last_heartbeat_us"]) == (1_000_250_000, 1_000_249_999)
    assert [one, two] == lines


def test_many_events_of_mixed_shapes_are_one_sorted_file() -> None:
    """More than one conversion batch, of several topics whose first appearance is not their order."""
    topics = [TopicPartition(f"t{n}", n % 3) for n in (7, 3, 9, 1)]
    events = [
        _event(
            made("HW_ADVANCE", leader_epoch=n % 2, new_hw=n)
            if n % 3
            else made("LOCAL_SAMPLE", leader_epoch=n % 2, hw=n),
            n,
            topics[n % 4],
        )
        for n in range(2_000)
    ]
    parquet, lines = _both(events, per_run=500)

    assert parquet == lines
