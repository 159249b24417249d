"""How an inferred cause is shown: labelled, with what would speak against it, a tie as a tie, and never as a cause."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from strandline_analytics.explain.chain import explain
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.inferred import inferences, with_inferences
from strandline_analytics.timeline.sentences import sentence

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
    """A text that is no list of findings leaves the sentence as it is."""
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
    """The offset of a checkpoint file is in the sentence; what is no number is left out."""
    fields = {"old_leader": 1, "new_leader": 2, "new_leader_epoch": 3, "election_type": "isr"}
    assert sentence(replace(change(), event_type="LEADER_CHANGE", fields=fields, ext=ext)) == said
