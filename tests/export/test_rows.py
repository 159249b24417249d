"""Events become rows and columns: of one schema, complete, and as lines of the log."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from exported_rows import CLUSTER, made

from strandline.core.state_events import EVENT_TYPES, Member, Moment, StateEvent
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.export.encoding import ExportFormat, growing
from strandline.export.log_lines import line_of
from strandline.export.reading import read_rows
from strandline.export.rows import Emitter, Run, Taken, to_row
from strandline.export.schema import SAMPLES, ColumnType, dataset_of, fields_of

EMITTER = Emitter(cluster_id="c", node_id=2, incarnation=7)
TP = TopicPartition("t", 1)


def _row(event: StateEvent, *, names: dict[str, str] | None = None) -> dict[str, Any]:
    taken = Taken(wall_us=1_000_000_500, mono_us=500, event=event, tp=TP, controller_epoch=3)
    return to_row(taken, 11, EMITTER, (names or {}).get)


def test_a_monotonic_moment_becomes_a_time_of_day() -> None:
    """The event's own two clock readings give the offset, so differences within the row stay monotonic."""
    row = _row(made("NODE_SESSION", subject_node_id=1, last_heartbeat_ms=250))

    assert row["last_heartbeat_us"] == 250_000 + 1_000_000_000


def test_members_carry_their_progress() -> None:
    """A member is a struct with the same conversion, null where it has no progress."""
    left = Member(NodeId(3), leo=Offset(9), last_fetch_ms=Moment(1))
    row = _row(made("ISR_CHANGE", removed=(left,), added=(Member(NodeId(4)),)))

    (removed,), (added,) = row["removed"], row["added"]
    assert removed == {"replica_id": 3, "leo": 9, "last_fetch_us": 1_000_001_000, "last_caught_up_us": None}
    assert added == {"replica_id": 4, "leo": None, "last_fetch_us": None, "last_caught_up_us": None}


def test_no_leader_is_minus_one() -> None:
    """A missing leader is -1, because null would also mean "not reported"."""
    row = _row(made("LEADER_CHANGE", old_leader=1))

    assert (row["old_leader"], row["new_leader"], "election_type" in row) == (1, -1, False)


def test_a_field_without_a_column_is_kept_as_text() -> None:
    """A field without a column is in `ext`, under its name, if it is set."""
    assert _row(made("EXPORT_HEARTBEAT", last_seq=5, final="true"))["ext"] == {"final": "true"}
    assert "ext" not in _row(made("EXPORT_HEARTBEAT", last_seq=5))


def test_an_event_names_its_topic_if_anybody_knows() -> None:
    """An event has the topic's name where it is known; the id is the key."""
    assert _row(made("EPOCH_START"), names={"t": "tides"})["topic"] == "tides"
    assert "topic" not in _row(made("EPOCH_START"))


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_lists_are_never_null(name: str) -> None:
    """A reader need not distinguish an empty list from an absent one."""
    row = _row(made(name))
    lists = {
        field.column
        for field in fields_of(EVENT_TYPES[name].kind)
        if field.kind in (ColumnType.INTS, ColumnType.STRINGS, ColumnType.MEMBERS)
    }

    assert {column: row[column] for column in lists} == {column: [] for column in lists}


# Columns built directly from events equal the columns of the rows.


EMITTER_COLUMNS = Emitter(cluster_id=CLUSTER, node_id=2, incarnation=7)
TP_COLUMNS = TopicPartition("a-topic", 1)


VALUES: dict[ColumnType, tuple[Any, ...]] = {
    ColumnType.STRING: ("plain", None, ""),
    ColumnType.INT: (1, None, -1),
    ColumnType.LONG: (1 << 40, None, 0),
    ColumnType.BOOL: (True, None, False),
    ColumnType.INTS: ((1, 2), (), (3,)),
    ColumnType.STRINGS: (("a:0", "a:1"), (), ("b:2",)),
    ColumnType.MEMBERS: ((Member(NodeId(1), Offset(4), Moment(9)),), (), (Member(NodeId(5)), Member(NodeId(6)))),
    ColumnType.LONGS_BY_NAME: ({"a": 1}, {}, {"b": 2, "c": 3}),
    ColumnType.STRINGS_BY_NAME: ({"a": "1"}, {}, {"b": "2", "c": ""}),
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
        Run(EMITTER_COLUMNS, range(begin + 1, begin + 1 + len(part)), part, {"a-topic": "tides"}.get)
        for begin in range(0, len(events), per_run)
        if (part := events[begin : begin + per_run])
    ]
    parquet, lines = _file(ExportFormat.PARQUET, runs), _file(ExportFormat.JSONL, runs)
    return parquet, lines


def _event(event: StateEvent, number: int = 0, tp: TopicPartition | None = TP_COLUMNS) -> Taken:
    return Taken(1_000_000_500 + number, 500 + 2 * number, event, tp, number or None)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_columns_say_what_rows_say(name: str) -> None:
    """Columns equal rows for every field of every type: set, absent, and with another value."""
    kind = EVENT_TYPES[name].kind
    events = []
    for choice, shift in itertools.product(range(CHOICES), repeat=2):
        values = [VALUES[field.kind][(choice + shift * n) % CHOICES] for n, field in enumerate(fields_of(kind))]
        events.append(_event(kind(*values), choice, None if choice == 2 else TP_COLUMNS))
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


# Which events are lines of the log, and that each has its node, its epochs, its offsets and its cause.


TP_LINES = TopicPartition("id", 2)
EPOCHS = {"leader_epoch": 4, "partition_epoch": 9}


def _epochs(kind: str) -> dict[str, int]:
    """Those epochs that events of a type have."""
    has = {field.name for field in fields_of(EVENT_TYPES[kind].kind)}
    return {name: value for name, value in EPOCHS.items() if name in has}


def _line(kind: str, fields: dict[str, Any]) -> Any:
    emitter = Emitter(cluster_id="c", node_id=1, incarnation=7)
    taken = Taken(1_700_000_000_123_000, 1, made(kind, **fields, **_epochs(kind)), TP_LINES, 3)
    return line_of(to_row(taken, 1, emitter, {"id": "tides"}.get))


@pytest.mark.parametrize(
    ("kind", "fields", "sentence", "is_warning"),
    [
        ("EPOCH_START", {"start_offset": 5, "hw": 4, "new_isr": (1, 2)}, "leads", False),
        ("LEADER_CHANGE", {"old_leader": 1, "new_leader": None}, "partition without a leader", True),
        ("LEADER_CHANGE", {"old_leader": 1, "new_leader": 2, "election_type": "isr"}, "leader elected", False),
        ("LEADER_CHANGE", {"old_leader": 1, "new_leader": 2, "election_type": "unclean"}, "leader elected", True),
        ("ISR_CHANGE", {"old_isr": (1, 2), "new_isr": (1,), "cause": "lag"}, "ISR shrank", True),
        ("ISR_CHANGE", {"old_isr": (1,), "new_isr": (1, 2), "cause": "catch_up"}, "ISR expanded", False),
        ("ALTER_PARTITION", {"phase": "result", "error_code": 91}, "ISR update refused", True),
        ("ALTER_PARTITION", {"phase": "timeout", "error_code": 0}, "ISR update without an answer", True),
        ("TRUNCATION", {"from_leo": 9, "to_leo": 5, "hw_before": 5, "committed_cut": 0}, "log cut", False),
        ("TRUNCATION", {"from_leo": 9, "to_leo": 5, "hw_before": 7, "committed_cut": 2}, "log cut", True),
        (
            "PARTITION_FAILED",
            {"reason": "damaged", "leo": 9, "hw": 5},
            "partition does not replicate until the next leader epoch",
            True,
        ),
        ("NODE_SESSION", {"phase": "fence", "cause": "timeout", "subject_node_id": 2}, "node session", True),
        ("GROUP_CHANGE", {"group_id": "g", "old_state": "Stable", "new_state": "Empty"}, "group is empty", False),
        ("GROUP_CHANGE", {"group_id": "g", "old_state": "Empty", "new_state": "Empty"}, "group epoch rose", False),
        ("MEMBER_CHANGE", {"group_id": "g", "member_id": "m", "phase": "joined"}, "member joined", False),
        ("MEMBER_CHANGE", {"group_id": "g", "member_id": "m", "phase": "fenced"}, "member fenced", True),
        ("COORDINATOR_LOAD", {"bytes": 9, "n_keys": 1, "load_ms": 3}, "coordinator answers", False),
        ("TRANSACTION_CHANGE", {"cause": "timeout", "transactional_id": "x"}, "transaction timed out", False),
        ("TRANSACTION_CHANGE", {"cause": "marker_refused"},
         "partition refuses the marker of a transaction that its coordinator waits for", True),
        ("TRANSACTION_OPEN", {"cause": "hanging", "producer_id": 7, "hw": 9}, "transaction hangs", True),
        ("REASSIGNMENT", {"phase": "completed", "replicas": [3, 4]}, "reassignment completed", False),
    ],
)  # fmt: skip
def test_what_is_reported(kind: str, fields: dict[str, Any], sentence: str, is_warning: bool) -> None:
    """The sentence, whether it is a warning, and the location with its epochs."""
    line = _line(kind, fields)

    assert (line.sentence, line.is_warning) == (sentence, is_warning)
    place = {"node_id": 1, "topic": "tides", "partition": 2, "controller_epoch": 3, **_epochs(kind)}
    assert place.items() <= line.fields.items()
    assert line.fields["at"] == "2023-11-14T22:13:20.123+00:00"


def test_a_cut_names_its_offsets() -> None:
    """A truncation's line has its offsets, the HW before it, and how much of it had been committed."""
    fields = {"from_leo": 9, "to_leo": 5, "hw_before": 7, "committed_cut": 2, "reason": "diverging_epoch"}

    assert fields.items() <= _line("TRUNCATION", fields).fields.items()


@pytest.mark.parametrize("kind", [name for name in EVENT_TYPES if dataset_of(name) == SAMPLES])
def test_a_sample_is_no_line(kind: str) -> None:
    """Events that occur many times a second are not logged."""
    assert _line(kind, {}) is None


@pytest.mark.parametrize("phase", ["proposed", "result"])
def test_an_isr_update_that_goes_well_is_reported_by_its_change_alone(phase: str) -> None:
    """Neither the proposal nor its confirmation is a second line."""
    assert _line("ALTER_PARTITION", {"phase": phase, "error_code": 0}) is None


@pytest.mark.parametrize("kind", ["GROUP_CHANGE", "MEMBER_CHANGE"])
def test_what_is_repeated_is_no_line(kind: str) -> None:
    """Ten thousand calm groups are not logged once an hour."""
    assert _line(kind, {"group_id": "g", "cause": "repeated"}) is None
