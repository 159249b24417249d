"""The order and the times of events written with several clocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline_analytics.silver.tables import Silver
from strandline_analytics.timeline.event import Event, Selection, events_from
from strandline_analytics.timeline.order import timeline
from strandline_analytics.timeline.states import states

S = 1_000_000


@pytest.fixture
def events(silver: Callable[[str], Silver]) -> Callable[[Selection], list[Event]]:
    """Queries the history of three clocks."""
    tables = silver("timeline_clocks.jsonl")

    def ask(selection: Selection) -> list[Event]:
        return events_from([row.asDict(recursive=True) for row in timeline(tables, selection).collect()])

    return ask


# One session start and few queries, but each is planned from scratch on a machine that may be loaded.
@pytest.mark.timeout(300)
def test_order_is_that_of_decisions_and_not_of_clocks(events: Callable[[Selection], list[Event]]) -> None:
    """Wrong clocks, absent epochs and a controller whose time went back: epochs and seqs determine the order."""
    found = events(Selection())
    of_partition = [event for event in found if event.partition is not None]

    assert [(event.event_type, event.partition_epoch) for event in of_partition] == [
        ("CONFIG_CHANGE", 0),
        ("LEADER_CHANGE", 0),
        ("ISR_CHANGE", 1),
        # Three rows with the same knowledge, at the same corrected time: the writer's number decides, and its seq.
        ("ALTER_PARTITION", 1),
        ("EPOCH_START", 1),
        ("TRUNCATION", 1),
        ("ISR_CHANGE", 2),
    ]
    assert [event.ordinal for event in of_partition] == [1, 2, 3, 4, 5, 6, 7]
    assert "CLOCK_SAMPLE" not in {event.event_type for event in found}
    at_ms = {(e.event_type, e.partition_epoch): e.t_us / 1000 for e in of_partition}
    # Corrected by the measured second, not before the decision it refers to, and never back along its seq.
    assert at_ms["ALTER_PARTITION", 1] == 100
    assert at_ms["EPOCH_START", 1] == 100
    assert at_ms["TRUNCATION", 1] == 100
    # The controller's clock went back from 100 to 90 ms; its second decision did not come before the first.
    assert at_ms["ISR_CHANGE", 2] == 100
    assert {e.event_type: e.err_us for e in of_partition if e.node_id != -1} == {
        "ALTER_PARTITION": 500,
        "EPOCH_START": 500,
        "TRUNCATION": None,
    }
    # What was measured, however far a row moved behind the decision that it refers to.
    assert {e.event_type: e.clock_offset_us for e in of_partition if e.node_id != -1} == {
        "ALTER_PARTITION": S,
        "EPOCH_START": S,
        "TRUNCATION": 0,
    }


@pytest.mark.timeout(300)
def test_a_filter_takes_away_and_never_turns_around(events: Callable[[Selection], list[Event]]) -> None:
    """Events of a node are those that it wrote and those about it, each with its position among all."""
    of_three = events(Selection(nodes=(3,)))

    assert [(e.event_type, e.ordinal) for e in of_three if e.partition is not None] == [
        ("TRUNCATION", 6),
        ("ISR_CHANGE", 7),
    ]
    assert [e.event_type for e in of_three if e.partition is None] == ["NODE_SESSION"]
    assert [e.event_type for e in events(Selection(types=("CLOCK_SAMPLE",), node_events=True))] == ["CLOCK_SAMPLE"]


@pytest.mark.timeout(300)
def test_events_that_are_not_understood_end_a_state_at_their_place(silver: Callable[[str], Silver]) -> None:
    """A lane shows what `silver.control` has: up to the newer version's change, and from the next one on."""
    asked = Selection(types=("STATE_SNAPSHOT", "ISR_CHANGE"), unknown_types=True)
    rows = timeline(silver("newer_types.jsonl"), asked).collect()
    found = events_from([row.asDict(recursive=True) for row in rows])

    assert [event.event_type for event in found] == ["STATE_SNAPSHOT", "TIDE_NOTED", "TIDE_TURNED", "ISR_CHANGE"]
    held = [(state.t0 // S, state.t1 // S, state.known) for state in states(found, 60 * S)]
    assert held == [(0, 30, True), (30, 50, False), (50, 60, True)]


@pytest.mark.timeout(300)
def test_repetitions_are_shown_when_they_are_asked_for(silver: Callable[[str], Silver]) -> None:
    """They report nothing new, and by the name of their type everything is shown."""
    tables = silver("repeated.jsonl")

    def causes(selection: Selection) -> list[str]:
        return [row.cause for row in timeline(tables, selection).collect() if row.event_type == "GROUP_CHANGE"]

    shown, asked = causes(Selection()), causes(Selection(types=("GROUP_CHANGE",)))

    assert "repeated" not in shown
    assert asked.count("repeated") == 4
    assert [cause for cause in asked if cause != "repeated"] == shown


@pytest.mark.timeout(300)
def test_a_timeline_shows_decisions_that_no_other_event_tells(silver: Callable[[str], Silver]) -> None:
    """A silence and a new controller of Kafka's are shown unasked; a fence, which is a session's event too, is not."""
    said = '"event_type": "CONTROLLER_DECISION", "topic": null, "topic_id": null, "partition": null, "outcome": "x"'
    decisions = ("controller_elected", "fence", "silent")
    tables = silver("\n".join(f'{{"t": {n}, {said}, "decision": "{name}"}}' for n, name in enumerate(decisions)))
    rows = timeline(tables, Selection()).collect()

    assert [row["decision"] for row in rows] == ["controller_elected", "silent"]
