"""Why was nothing decided from 12:00 to 12:01: spans without a decision, from reigns and the store, and in a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reported_material import BEGIN_US, event, failover, material

from strandline_analytics.explain.chain import explain
from strandline_analytics.report.page import page
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import sentence
from strandline_analytics.timeline.states import undecided


def _reign(phase: str, at_ms: float, token: int, cause: str = "key_free", incarnation: int = 1) -> Event:
    made = event("CONTROLLER_REIGN", at_ms, plane="node", phase=phase, cause=cause, controller_id="c1", token=token)
    return replace(made, incarnation=incarnation)


def _store(phase: str, at_ms: float, token: int = 5, **said: Any) -> Event:
    return event("STORE", at_ms, plane="node", phase=phase, cause="x", controller_id="c1", token=token, **said)


def _spans(events: list[Event]) -> list[tuple[float, float | None, str]]:
    return [
        ((s.t0 - BEGIN_US) / 1000, None if s.t1 is None else (s.t1 - BEGIN_US) / 1000, s.why) for s in undecided(events)
    ]


def test_a_store_that_was_away_is_a_span_with_its_length() -> None:
    """From the closing of the doors to their opening nothing was decided."""
    events = [_reign("begin", 0, 5), _store("away", 1_000), _store("back", 61_000, closed_ms=60_000)]

    assert _spans(events) == [(1_000, 61_000, "the controllers' store did not answer")]
    assert undecided(events)[0].sentence == "nothing was decided for 60.0 s: the controllers' store did not answer"


def test_a_reign_without_an_end_ended_with_its_last_word() -> None:
    """kill -9 writes nothing; the next reign's begin closes the span that began at the last event of the process."""
    last = event("NODE_SESSION", 3_000, plane="node", phase="register", subject_node_id=1)
    events = [_reign("begin", 0, 5), last, _reign("begin", 3_400, 9, "key_taken", incarnation=2)]

    assert _spans(events) == [(3_000, 3_400, "the controller that decided was gone without a word")]


def test_a_controller_that_woke_up_replaced_opens_no_span() -> None:
    """Its end carries an older token than the reign that goes on."""
    events = [
        _reign("begin", 0, 5),
        _reign("begin", 4_000, 9, incarnation=2),
        _reign("end", 15_000, 5, "deposed"),
    ]

    assert [span[:2] for span in _spans(events)] == [(0, 4_000)]


def test_a_hand_over_is_named_and_an_open_span_has_no_end() -> None:
    """Nobody decides yet: that is said, and no time is made up."""
    events = [_reign("begin", 0, 5), _reign("end", 2_000, 5, "hand_over")]

    assert _spans(events) == [(2_000, None, "controller c1 handed over")]
    assert "nothing is yet" in undecided(events)[0].sentence


def test_nothing_is_said_of_a_cluster_with_one_controller() -> None:
    """Without events of reigns or of the store there are no spans."""
    assert undecided(failover()) == []


def test_an_election_that_had_to_wait_names_the_span() -> None:
    """The chain of a late election has the link that says why nobody decided it earlier."""
    waited = [_reign("begin", 0, 5), _store("away", 600), _store("back", 1_900, closed_ms=1_300)]
    chain = explain([*failover(), *waited], 1)

    links = [link for link in chain.links if link.name == "nobody decided"]
    assert [link.reported for link in links] == ["nothing was decided for 1.3 s: the controllers' store did not answer"]


def test_a_span_that_was_over_before_is_no_reason() -> None:
    """What ended before the last heartbeat of the old leader has nothing to do with its loss."""
    early = [_reign("begin", 0, 5), _store("away", 100), _store("back", 400, closed_ms=300)]
    chain = explain([*failover(), *early], 1)

    assert [link for link in chain.links if link.name == "nobody decided"] == []


def test_reigns_and_the_store_read_as_sentences() -> None:
    """A timeline says them in words."""
    assert sentence(_reign("begin", 0, 5, "key_taken")) == (
        "controller c1 decides from here, token 5: it took the key from a dead one"
    )
    assert sentence(_reign("end", 0, 5, "hand_over")) == "controller c1 decides no more: it handed over"
    assert sentence(_store("away", 0)) == "the store does not answer: nothing is decided"
    assert sentence(_store("back", 0, closed_ms=60_000)) == "the store is back after 60.0 s; decisions go on"


def _silent(at_ms: float, ms: int) -> Event:
    outcome = f"no decision for {ms} ms before offset 26"
    return event("CONTROLLER_DECISION", at_ms, plane="node", decision="silent", outcome=outcome)


def test_a_silence_of_kafkas_controllers_is_a_span() -> None:
    """The import says how long nothing was committed before a record; a timeline says so in words."""
    silent = _silent(30_000, 20_000)

    assert _spans([silent]) == [(10_000, 30_000, "Kafka's controllers committed no record")]
    assert sentence(silent) == "no decision for 20000 ms before offset 26"
    elected = event("CONTROLLER_DECISION", 1, plane="node", decision="controller_elected", outcome="controller 3")
    assert sentence(elected) == "controller 3 decides from here"


def test_a_shrink_that_waited_for_a_decision_names_the_span() -> None:
    """Proposed at 11 s, granted at 30 s: in between nobody could decide it."""
    reported = [
        event("ALTER_PARTITION", 11_000, plane="data", node=1, partition_epoch=4, phase="proposed",
              expected_partition_epoch=4, proposed_isr=[1, 2]),
        _silent(30_000, 20_000),
        event("ISR_CHANGE", 30_000, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2], cause="lag"),
    ]  # fmt: skip
    chain = explain(reported, 5)

    assert [link.name for link in chain.links] == ["nobody decided", "proposal", "commit"]


def test_a_report_says_when_nobody_decided() -> None:
    """In the first lines of the page, with the moment from which on."""
    shown = page(material(events=[*failover(), _silent(9_000, 4_000)]))

    said = "from 18:08:35.000 nothing was decided for 4.0 s: Kafka's controllers committed no record"
    assert shown["verdict"].details[-1] == said
    calm = page(material(events=[*failover()[:3], _silent(9_000, 4_000)]))["verdict"]
    assert (calm.tone, calm.details) == ("warn", (said,))
