"""Moves of replicas in timelines, explanations and reports: named as such, and never as trouble."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reported_material import BEGIN_US, event, material

from strandline_analytics.explain.chain import explain
from strandline_analytics.report.material import incidents_of
from strandline_analytics.report.pictures import noted
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import sentence
from strandline_analytics.timeline.states import states

_OLD, _NEW = [1, 2, 3], [4, 5, 6]
_BOTH = [*_NEW, *_OLD]
_PHASES = ["queued", "started", "completed"]


def _step(at_ms: float, epoch: int, phase: str, replicas: list[int], **more: Any) -> Event:
    waits = phase == "queued"
    said: dict[str, Any] = {"adding_replicas": [] if waits else _NEW, "removing_replicas": [] if waits else _OLD}
    said |= {"target_replicas": _NEW, "min_isr": 2} | more
    return event("REASSIGNMENT", at_ms, partition_epoch=epoch, phase=phase, replicas=replicas, **said)


def _isr(at_ms: float, epoch: int, old: list[int], new: list[int], cause: str) -> Event:
    return event("ISR_CHANGE", at_ms, partition_epoch=epoch, old_isr=old, new_isr=new, cause=cause)


def _moved() -> list[Event]:
    return [
        event("STATE_SNAPSHOT", 0, partition_epoch=4, leader_epoch=0, new_leader=1, new_isr=_OLD, replicas=_OLD,
              min_isr=2),
        _step(1_000, 5, "queued", _OLD),
        _step(2_000, 6, "started", _BOTH),
        _isr(3_000, 7, _OLD, [1, 2], "lag"),
        _isr(5_000, 8, [1, 2], [4, 5, 1, 2], "catch_up"),
        _isr(8_000, 9, [4, 5, 1, 2], [4, 5, 6, 1, 2], "catch_up"),
        _step(8_000, 10, "completed", _NEW),
        _isr(8_000, 10, [4, 5, 6, 1, 2], _NEW, "reassign"),
        event("LEADER_CHANGE", 8_000, partition_epoch=10, leader_epoch=1, old_leader=1, new_leader=4,
              new_leader_epoch=1, reason="reassign", election_type="isr"),
        _isr(20_000, 11, _NEW, [4, 5], "lag"),
    ]  # fmt: skip


def test_a_step_of_a_move_says_from_where_to_where() -> None:
    """Each phase names the replicas before and after; one of the same replicas names their order."""
    words = [sentence(e) for e in _moved() if e.event_type == "REASSIGNMENT"]
    reordered = _step(0, 1, "completed", [3, 1, 2], adding_replicas=[], removing_replicas=[], target_replicas=[3, 1, 2])
    waiting = _step(0, 6, "started", _BOTH, waiting_for=["6: is fenced"])
    dropped = _step(0, 1, "cancelled", _OLD, adding_replicas=[], removing_replicas=[], target_replicas=_OLD)

    assert words == [f"the move from {{1,2,3}} to {{4,5,6}} {phase}" for phase in _PHASES]
    assert sentence(waiting) == "the move from {1,2,3} to {4,5,6} runs, and waits: node 6: is fenced"
    assert sentence(dropped) == "the queued move cancelled"
    assert sentence(reordered) == "the move to the order [3, 1, 2] completed"


def test_a_new_leader_and_a_picture_tell_of_the_move() -> None:
    """The change of leader says that a move ended, and each step is marked in the lanes of its partition."""
    (change,) = [e for e in _moved() if e.event_type == "LEADER_CHANGE"]

    assert sentence(change) == "node 4 leads after node 1, epoch 1, isr election: a move of its replicas ended"
    assert [e.get("phase") for e in noted(_moved()) if "target_replicas" in e.fields] == _PHASES


def test_the_end_of_a_move_is_explained_by_the_move() -> None:
    """The ISR lost 1 and 2, and 4 leads, because the move completed; how far 1 and 2 had come need not be known."""
    chain = explain(_moved(), 10)
    moves = [(link.t_us - BEGIN_US, link.reported.rpartition(" ")[2]) for link in chain.links if link.name == "move"]

    assert moves == [(1_000_000, "queued"), (2_000_000, "started"), (8_000_000, "completed")]
    assert not [one for one in chain.missing if "how far" in one]


def test_a_replica_that_a_move_adds_joins_because_of_it() -> None:
    """The join of 4 and 5 is explained by the start of the move; the lag of 3 meanwhile is not, nor that of 6 later."""
    names = {epoch: [link.name for link in explain(_moved(), epoch).links] for epoch in (7, 8, 11)}

    assert [names[epoch].count("move") for epoch in (7, 8, 11)] == [0, 2, 0]


def test_a_move_is_no_incident() -> None:
    """Of the shrinks those by a lag are incidents; the end of the move, with its change of leader, is none."""
    found = incidents_of(replace(material(events=_moved()), end_us=BEGIN_US + 60_000_000))

    assert [(len(one.shrinks), len(one.leader_changes)) for one in found] == [(1, 0), (1, 0)]
    assert not any(one.is_planned for one in found)


def test_the_replicas_of_a_state_are_the_original_ones_until_the_move_ends() -> None:
    """A replica that is being added is not drawn as missing; behind a lost transition the next report counts again."""
    found = states(_moved(), BEGIN_US + 30_000_000)
    lost = [*_moved()[:3], event("STATE_SNAPSHOT", 9_000, partition_epoch=10, new_isr=_NEW, replicas=_NEW)]

    assert [list(state.replicas) for state in found] == [_OLD] * 5 + [_NEW] * 2
    assert list(states(lost, BEGIN_US + 30_000_000)[-1].replicas) == _NEW
