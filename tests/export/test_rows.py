"""The core's events become columns: times are converted, names are the schema's, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from made_events import made

from strandline.core.state_events import EVENT_TYPES, Member, Moment, StateEvent
from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.export.rows import Emitter, Taken, to_row
from strandline.export.schema import Kind, fields_of

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
        if field.kind in (Kind.INTS, Kind.STRINGS, Kind.MEMBERS)
    }

    assert {column: row[column] for column in lists} == {column: [] for column in lists}
