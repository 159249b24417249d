"""Events in order and in words: times, which of them an explanation selects, and how an inferred cause is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline_analytics.explain import ask
from strandline_analytics.explain.ask import AskedPartition, held_back
from strandline_analytics.explain.ask_group import AskedGroup, standstill
from strandline_analytics.explain.chain import Chain, explain
from strandline_analytics.explain.stall import HeldBack
from strandline_analytics.explain.standstill import Standstill
from strandline_analytics.silver.tables import Silver
from strandline_analytics.timeline.event import Event, Selection, events_from
from strandline_analytics.timeline.inferred import inferences, with_inferences
from strandline_analytics.timeline.order import timeline
from strandline_analytics.timeline.sentences import sentence
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


@pytest.mark.timeout(300)
def test_a_timeline_shows_what_callers_changed(silver: Callable[[str], Silver]) -> None:
    """Of a topic the changes of that topic and of no other one; refusals when they are asked for."""
    tables = silver("refusals.jsonl")

    def outcomes(selection: Selection) -> list[str]:
        return [row.outcome for row in timeline(tables, selection).collect() if row.event_type == "AUDIT"]

    assert outcomes(Selection()) == outcomes(Selection(topics=("t",))) == ["ALLOWED"]
    assert outcomes(Selection(topics=("u",))) == []
    assert sorted(outcomes(Selection(types=("AUDIT",)))) == ["ALLOWED", *["REFUSED"] * 4]


# Which events Spark selects for an explanation, on worked histories.


def test_of_two_stalls_the_window_chooses_one_and_its_chain_has_moves_and_looks(histories: Any) -> None:
    """Without a window all are listed, the last as long as its sample is valid; from 50 to 65 s it is the second."""
    every = ask.stall(histories.tables, ask.ExplainedPartition(topic="t", partition=0, cluster_id="slow_disk"))
    assert isinstance(every, list)
    assert [(each.t0, each.t1) for each in every] == [(500_000, 3 * S), (50 * S, 65 * S), (65 * S, 95 * S)]

    later = ask.ExplainedPartition(topic="t", partition=0, cluster_id="slow_disk", start_us=50 * S, end_us=65 * S)
    chain = ask.stall(histories.tables, later)

    assert isinstance(chain, Chain)
    assert chain.reported == "HW stood at 50 for 15,000 ms, held up by node 2; the next move ended it"
    assert [(link.name, link.t_us // S) for link in chain.links] == [
        ("last HW move", 3),
        ("first wait", 50),
        ("last look", 58),
        ("HW move", 65),
    ]
    assert chain.cost == ("up to 20 records waited for their commit",)


def test_one_decision_is_explained_and_several_are_listed(histories: Any) -> None:
    """A partition epoch names one decision; without one all that match are returned, creations left out."""
    every = ask.decision(histories.tables, ask.ExplainedPartition(topic="t", partition=0, cluster_id="failover"))
    assert isinstance(every, list)
    assert "created" not in {event.cause for event in every}
    epochs = {event.partition_epoch for event in every}
    assert len(epochs) > 1

    one = min(epoch for epoch in epochs if epoch is not None)
    chain = ask.decision(
        histories.tables, ask.ExplainedPartition(topic="t", partition=0, cluster_id="failover", partition_epoch=one)
    )
    assert isinstance(chain, Chain)
    assert chain.partition_epoch == one
    assert "commit" in {link.name for link in chain.links}


def test_a_moment_is_answered_with_the_decision_that_is_nearest(histories: Any) -> None:
    """What held, and the chain of the nearest decision; of a partition that is in no cluster nothing is made up."""
    at_us = 21 * S
    asked = ask.ExplainedPartition(topic="t", partition=0, cluster_id="failover")
    found = ask.around(histories.tables, asked, at_us)

    assert isinstance(found, tuple)
    known, chain = found
    assert known.nearest is not None
    assert chain is not None
    assert chain.partition_epoch == known.nearest.partition_epoch
    assert "led" in known.held
    assert ask.around(histories.tables, replace(asked, topic="absent"), at_us) == []


def test_a_group_that_rebalances_is_told_who_was_waited_for_and_what_nobody_had(histories: Any) -> None:
    """At 24 s: since 20 s, until m-b changed at 32 s; m-a was asked for partition 1, which was free from 22 s on."""
    found = standstill(histories.tables, AskedGroup(group_id="orders", at_us=24 * S, cluster_id="rebalances"))

    assert isinstance(found, Standstill)
    assert found.reasons == (
        "it rebalanced: for 4.0 s by then, 12.0 s in all; m-a had not given up what was asked back; "
        "m-b was waited for, it changed last",
        "no member had t-1: for 2.0 s by then",
    )
    assert [link.t_us // S for link in found.links] == [20, 20, 21, 22, 26, 27, 27, 28, 29, 30, 32, 32]
    # It answered by then: events of its epoch are there.
    assert not any("began to answer" in one for one in found.missing)


def test_a_group_whose_coordinator_still_loads_is_told_that_first(histories: Any) -> None:
    """Node 3 leads from 45 s on and answers from 46 s on; the rebalance goes on meanwhile."""
    asked = AskedGroup(group_id="orders", at_us=45_500_000, cluster_id="rebalances")
    found = standstill(histories.tables, asked)

    assert isinstance(found, Standstill)
    assert found.reasons[0] == ("its coordinator, node 3, was still reading __group_state-7: for 0.5 s by then")
    assert found.reasons[1].startswith("it rebalanced: for 5.5 s by then, 25.0 s in all")


def test_a_stuck_member_is_told_with_its_partition(histories: Any) -> None:
    """At 100 s m-a has had partition 0 without a commit since 40 s; partition 1 stands still and blames no member."""
    found = standstill(histories.tables, AskedGroup(group_id="orders", at_us=100 * S, cluster_id="stuck"))

    assert isinstance(found, Standstill)
    assert found.reasons == (
        "member m-a had t-0 and did not move on: for 60.0 s by then, 110.0 s in all; its lag grew to 50 records",
    )


def test_a_group_of_several_clusters_is_listed(histories: Any) -> None:
    """None of them is chosen, and an unknown name gives none."""
    several = standstill(histories.tables, AskedGroup(group_id="orders", at_us=24 * S))

    assert isinstance(several, list)
    assert {"rebalances", "stuck", "group_lag"} <= set(several)
    assert standstill(histories.tables, AskedGroup(group_id="nobody", at_us=24 * S)) == []


def test_readers_of_committed_records_are_told_whose_transaction_they_wait_for(histories: Any) -> None:
    """At 30 s producer 8 has held the LSO for 18 s, of which its leader reported no end; at 30 s of t-2 none."""
    asked = AskedPartition(topic="t", partition=0, at_us=30 * S, cluster_id="lso_held")
    found, calm = held_back(histories.tables, asked), held_back(histories.tables, replace(asked, partition=2))

    assert isinstance(found, HeldBack)
    assert found.reasons == ("producer 8 of epoch 0 held the LSO at 110: for 18.0 s by then; up to 40 records waited",)
    assert [link.name for link in found.links] == ["partition", "partition", "partition", "partition"]
    assert isinstance(calm, HeldBack)
    assert calm.reasons[0].startswith("no transaction held the LSO back")
    assert held_back(histories.tables, replace(asked, cluster_id="nowhere")) == []


# How an inferred cause is shown: labelled, with what would speak against it, a tie as a tie, and never as a cause.


PAUSED = {
    "rule": "node_paused",
    "subject": "node 1",
    "says": "node 1 stood still",
    "contradiction": "node 1 logged anything",
    "evidence": ["meta_offset 303", "node 3 server.log:12"],
    "strength": 5,
}


def change(*found: dict[str, Any], ext: str | None = None) -> Event:
    said = json.dumps(found) if ext is None else ext
    return Event(
        cluster_id="c",
        event_type="ISR_CHANGE",
        node_id=-1,
        incarnation=1,
        seq=1,
        t_us=1_000_000,
        raw_us=1_000_000,
        topic="t",
        topic_id="id",
        partition=0,
        leader_epoch=0,
        partition_epoch=1,
        plane="control",
        fields={"old_isr": [1, 2], "new_isr": [2], "cause": "lag", "initiator": "leader"},
        ext={"inferred": said} if found or ext else {},
    )


def test_what_is_inferred_stands_behind_the_sentence_and_not_in_the_cause() -> None:
    """The sentence of the event is as before, then "Inferred"; the cause stays what was recorded."""
    event = change(PAUSED)
    assert with_inferences(event) == "ISR {1,2} -> {2}, node 1 removed. Inferred: node 1 stood still"
    assert event.cause == "lag"


def test_a_tie_is_shown_as_a_tie() -> None:
    """Two that explain the same are both shown, and said to be a tie."""
    other = PAUSED | {"subject": "node 2", "says": "node 2 stood still"}
    assert with_inferences(change(PAUSED, other)).endswith("Inferred, a tie: node 1 stood still; or node 2 stood still")


def test_an_explanation_has_a_line_with_evidence_and_contradiction() -> None:
    """`explain` gives rule, evidence and what would speak against it, from the import and not from the controller."""
    chain = explain([change(PAUSED)], 1)
    (line,) = (link for link in chain.links if link.name == "inferred")
    assert (line.who, line.cause) == ("import", "")
    assert line.reported == (
        "Inferred: node 1 stood still [node_paused]. Against it would speak: node 1 logged anything. "
        "Evidence: meta_offset 303, node 3 server.log:12"
    )
    assert "Inferred" not in chain.reported


@pytest.mark.parametrize("ext", ["", "[", "{}", "[1]", '[{"rule": "x"}]', "[" * 100_000])
def test_what_cannot_be_read_is_not_shown(ext: str) -> None:
    """A text that is not a list of findings leaves the sentence as it is."""
    event = change(ext=ext)
    assert inferences(event) == ()
    assert "Inferred" not in with_inferences(event)


def test_nothing_inferred_changes_nothing() -> None:
    """An event of our own has its sentence alone."""
    assert with_inferences(change()) == "ISR {1,2} -> {2}, node 1 removed"


@pytest.mark.parametrize(
    ("ext", "said"),
    [
        ({"start_offset": "1869"}, "node 2 leads after node 1, epoch 3 from offset 1,869 on, isr election"),
        ({"start_offset": "²"}, "node 2 leads after node 1, epoch 3, isr election"),
        ({}, "node 2 leads after node 1, epoch 3, isr election"),
    ],
)
def test_an_election_says_where_its_epoch_begins_if_a_file_says_it(ext: dict[str, str], said: str) -> None:
    """The offset of a checkpoint file is in the sentence; what is not a number is left out."""
    fields = {"old_leader": 1, "new_leader": 2, "new_leader_epoch": 3, "election_type": "isr"}
    assert sentence(replace(change(), event_type="LEADER_CHANGE", fields=fields, ext=ext)) == said
