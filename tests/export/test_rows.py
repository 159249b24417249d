"""What the core says becomes columns: moments are converted, names are the schema's, nothing is lost."""

from __future__ import annotations

from typing import Any

from strandline.core.types import NodeId, Offset, TopicPartition
from strandline.export.rows import Emitter, Taken, to_row

EMITTER = Emitter(cluster_id="c", node_id=2, incarnation=7)
TP = TopicPartition("t", 1)


def _row(event_type: str, fields: dict[str, object], *, names: dict[str, str] | None = None) -> dict[str, Any]:
    taken = Taken(wall_us=1_000_000_500, mono_us=500, event_type=event_type, tp=TP, fields=fields, controller_epoch=3)
    return to_row(taken, 11, EMITTER, (names or {}).get)


def test_a_monotonic_moment_becomes_a_time_of_day() -> None:
    """The event's own two readings give the offset, so differences within the row stay monotonic."""
    row = _row("NODE_SESSION", {"subject_node_id": 1, "last_heartbeat_ms": 250})

    assert row["last_heartbeat_us"] == 250_000 + 1_000_000_000


def test_members_carry_their_progress() -> None:
    """Who left is a struct with the same conversion; a bare number is a member without progress."""
    row = _row(
        "ISR_CHANGE", {"removed": [{"replica_id": NodeId(3), "leo": Offset(9), "last_fetch_ms": 1}], "added": (4,)}
    )

    (removed,), (added,) = row["removed"], row["added"]
    assert removed == {"replica_id": 3, "leo": 9, "last_fetch_us": 1_000_001_000, "last_caught_up_us": None}
    assert added == {"replica_id": 4, "leo": None, "last_fetch_us": None, "last_caught_up_us": None}


def test_no_leader_is_minus_one() -> None:
    """Null would also mean "not said"."""
    row = _row("LEADER_CHANGE", {"old_leader": 1, "new_leader": None, "election_type": None})

    assert (row["old_leader"], row["new_leader"], "election_type" in row) == (1, -1, False)


def test_a_field_without_a_column_is_kept_as_text() -> None:
    """Also one that is a column, but not of this event."""
    row = _row("TRUNCATION", {"from_leo": 5, "weather": 1.5, "n_fetch": 2})

    assert row["ext"] == {"weather": "1.5", "n_fetch": "2"}


def test_an_event_names_its_topic_if_anybody_knows() -> None:
    """The id is the key; the name helps people."""
    assert _row("EPOCH_START", {}, names={"t": "tides"})["topic"] == "tides"
    assert "topic" not in _row("EPOCH_START", {})


def test_the_isr_of_an_epoch_start_is_its_new_isr() -> None:
    """The core's short name becomes the column's."""
    assert _row("EPOCH_START", {"isr": (1, 2)})["new_isr"] == [1, 2]


def test_an_unknown_type_is_kept_whole() -> None:
    """A newer core and an older schema lose nothing."""
    row = _row("WEATHER", {"rain": True})

    assert (row["event_type"], row["ext"]) == ("WEATHER", {"rain": "True"})
