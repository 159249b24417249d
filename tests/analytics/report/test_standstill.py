"""Why nothing moved: of a group, of a partition at a moment, and of decisions that were not made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reported_material import BEGIN_US, event, failover, material

from strandline_analytics.explain.chain import Chain, Moment, candidates, explain, moment
from strandline_analytics.explain.standstill import GroupAt, Span, Term, explain_group
from strandline_analytics.report.page import page
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import sentence
from strandline_analytics.timeline.states import undecided

S = 1_000_000
AT_US = BEGIN_US + 10 * S


def _load(at_ms: float, leader_epoch: int) -> Event:
    return event(
        "COORDINATOR_LOAD", at_ms, plane="data", node=2, leader_epoch=leader_epoch, bytes=1, n_keys=1, load_ms=1
    )


def _member(at_ms: float, member_id: str, phase: str, **more: Any) -> Event:
    said = {"group_id": "g", "member_id": member_id, "phase": phase, "revoking": ["T:1"]}
    return event("MEMBER_CHANGE", at_ms, plane="data", node=2, **said, **more)


def _span(t0_s: float, t1_s: float, **more: Any) -> Span:
    return Span(t0=BEGIN_US + round(t0_s * S), t1=BEGIN_US + round(t1_s * S), **more)


CALM = GroupAt(
    cluster_id="c",
    group_id="g",
    at_us=AT_US,
    coordinator="__group_state-7",
    terms=[Term(t0=BEGIN_US, t1=BEGIN_US + 60 * S, leader=2, leader_epoch=0)],
    events=[_load(100, 0)],
    lags=[_span(0, 20, what="t-0"), _span(0, 20, what="t-1")],
)


def test_a_lag_of_0_is_no_standstill() -> None:
    """The answer says so, and over how many partitions."""
    found = explain_group(CALM)

    assert found.reasons == ("nothing held it up: its lag was 0 in 2 partitions",)
    assert found.missing == ()
    assert [link.name for link in found.links] == ["load"]


def test_a_lag_without_a_reason_is_said_as_it_is() -> None:
    """A group that reads more slowly than others write does not stand still."""
    found = explain_group(replace(CALM, lags=[_span(0, 20, what="t-0", lag=70), _span(0, 20, what="t-1")]))

    assert found.reasons == (
        "none of the known reasons: 70 records behind in 1 of 2 partitions, and no member was stuck",
    )


def test_a_rebalance_names_who_was_asked_and_who_changed_last() -> None:
    """What had been asked back by then, and who ended it, which was known only later; its events are the links."""
    events = [_member(2_000, "early", "joined"), _member(8_000, "m-a", "revoking"), _member(14_000, "m-a", "assigned")]
    found = explain_group(replace(CALM, events=[_load(100, 0), *events], rebalance=_span(7, 15, member_id="m-b")))

    assert found.reasons == (
        "it rebalanced: for 3.0 s by then, 8.0 s in all; m-a had not given up what was asked back; m-b was waited for, "
        "it changed last",
    )
    assert [(link.t_us - BEGIN_US) // S for link in found.links] == [8, 14]


def test_an_end_that_was_not_seen_leaves_open_who_was_waited_for() -> None:
    """Its length so far is shown as a lower bound where its start was not seen either."""
    span = _span(7, 60, member_id="m-b", is_start_seen=False, is_end_seen=False)
    found = explain_group(replace(CALM, rebalance=span))

    assert found.reasons == ("it rebalanced: for at least 3.0 s by then",)
    assert found.missing == ("who was waited for: the end of the rebalance was not seen",)


def test_nobody_leads_the_coordinators_partition() -> None:
    """The first reason, whatever follows from it."""
    led = Term(t0=BEGIN_US, t1=BEGIN_US + 6 * S, leader=2, leader_epoch=0)
    none = Term(t0=BEGIN_US + 6 * S, t1=BEGIN_US + 12 * S, leader=None, leader_epoch=1)
    found = explain_group(replace(CALM, terms=[led, none], unowned=[_span(4, 60, what="t-1")]))

    assert found.reasons == (
        "it had no coordinator: no node led __group_state-7: for 4.0 s by then",
        "no member had t-1: for 6.0 s by then",
    )


def test_a_coordinator_that_still_reads_its_partition_answers_nobody() -> None:
    """From the decision that made it the leader to its load; a load of an epoch before says nothing."""
    terms = [
        Term(t0=BEGIN_US, t1=BEGIN_US + 9 * S, leader=2, leader_epoch=0),
        Term(t0=BEGIN_US + 9 * S, t1=BEGIN_US + 60 * S, leader=3, leader_epoch=1),
    ]
    found = explain_group(replace(CALM, terms=terms, events=[_load(100, 0), _load(11_500, 1)]))
    unknown = explain_group(replace(CALM, terms=terms))

    assert found.reasons == ("its coordinator, node 3, was still reading __group_state-7: for 1.0 s by then",)
    assert unknown.missing == ("when node 3 began to answer as its coordinator in epoch 1",)


def test_a_stuck_member_is_named_with_its_partition() -> None:
    """How long by then, how long in all, and how far the lag grew."""
    found = explain_group(replace(CALM, stuck=[_span(-60, 50, what="t-0", member_id="m-a", lag=50)]))

    assert found.reasons == (
        "member m-a had t-0 and did not move on: for 70.0 s by then, 110.0 s in all; its lag grew to 50 records",
    )


def test_a_stalled_hw_leaves_nothing_to_read() -> None:
    """The chain of the partition is handed on."""
    chain = Chain(topic="t", partition=0, partition_epoch=None, reported="HW stood at 9", links=(), missing=())
    found = explain_group(replace(CALM, stalls=[chain]))

    assert found.reasons == ("nothing to read in t-0: HW stood at 9",)
    assert found.stalls == (chain,)


def test_what_nothing_was_read_of_is_missing() -> None:
    """No events, no offsets: no reason is made up."""
    found = explain_group(GroupAt(cluster_id="c", group_id="g", at_us=AT_US, coordinator=None))

    assert found.reasons == ()
    assert found.missing == (
        "who its coordinator was: no event of the group was read",
        "its lag: no offset that it committed, or no HW, is known at that time",
    )


def test_a_group_that_is_only_repeated_has_a_coordinator_that_answers() -> None:
    """It loaded before anything that was read. A member that was asked for partitions before then is named."""
    repeated = _member(4_000, "m-a", "revoking", cause="repeated", leader_epoch=0)
    known = replace(CALM, events=[repeated], rebalance=_span(4, 20, is_start_seen=False, member_id="m-b"))

    found = explain_group(known)

    assert found.missing == ()
    assert found.reasons == (
        "it rebalanced: for at least 6.0 s by then; m-a had not given up what was asked back; m-b was waited for, "
        "it changed last",
    )


def test_repetitions_are_links_where_there_is_nothing_else() -> None:
    """A change is worth more than what says that it still holds."""
    changed, repeated = _member(1_000, "m-a", "assigned"), _member(4_000, "m-a", "assigned", cause="repeated")

    both, alone = (explain_group(replace(CALM, events=events)) for events in ([changed, repeated], [repeated]))

    assert [link.t_us - BEGIN_US for link in both.links] == [1 * S]
    assert [link.t_us - BEGIN_US for link in alone.links] == [4 * S]


# Why was nothing decided from 12:00 to 12:01: spans without a decision, from reigns and the store, and in a chain.


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
    """No controller decides yet: that is said, and no time is made up."""
    events = [_reign("begin", 0, 5), _reign("end", 2_000, 5, "hand_over")]

    assert _spans(events) == [(2_000, None, "controller c1 handed over")]
    assert "nothing is yet" in undecided(events)[0].sentence


def test_nothing_is_said_of_a_cluster_with_one_controller() -> None:
    """Without events of reigns or of the store there are no spans."""
    assert undecided(failover()) == []


def test_an_election_that_had_to_wait_names_the_span() -> None:
    """The chain of a late election has the link that says why no controller decided it earlier."""
    waited = [_reign("begin", 0, 5), _store("away", 600), _store("back", 1_900, closed_ms=1_300)]
    chain = explain([*failover(), *waited], 1)

    links = [link for link in chain.links if link.name == "no controller decided"]
    assert [link.reported for link in links] == ["nothing was decided for 1.3 s: the controllers' store did not answer"]


def test_a_span_that_was_over_before_is_no_reason() -> None:
    """What ended before the last heartbeat of the old leader has nothing to do with its loss."""
    early = [_reign("begin", 0, 5), _store("away", 100), _store("back", 400, closed_ms=300)]
    chain = explain([*failover(), *early], 1)

    assert [link for link in chain.links if link.name == "no controller decided"] == []


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
    """Proposed at 11 s, granted at 30 s: in between no controller could decide it."""
    reported = [
        event("ALTER_PARTITION", 11_000, plane="data", node=1, partition_epoch=4, phase="proposed",
              expected_partition_epoch=4, proposed_isr=[1, 2]),
        _silent(30_000, 20_000),
        event("ISR_CHANGE", 30_000, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2], cause="lag"),
    ]  # fmt: skip
    chain = explain(reported, 5)

    assert [link.name for link in chain.links] == ["no controller decided", "proposal", "commit"]


def test_a_report_says_when_nobody_decided() -> None:
    """In the first lines of the page, with the moment from which on."""
    shown = page(material(events=[*failover(), _silent(9_000, 4_000)]))

    said = "from 18:08:35.000 nothing was decided for 4.0 s: Kafka's controllers committed no record"
    assert shown["verdict"].details[-1] == said
    calm = page(material(events=[*failover()[:3], _silent(9_000, 4_000)]))["verdict"]
    assert (calm.tone, calm.details) == ("warn", (said,))


# What held of a partition at a moment, and which decisions were around it.


def _at(ms: float) -> Moment:
    return moment(candidates(failover()), BEGIN_US + round(ms * 1_000))


def test_before_the_first_decision_what_it_replaced_held() -> None:
    """The failover of 2 s says who led and who was in sync before it; it is the nearest decision, and both its rows."""
    known = _at(500)

    assert known.held == "node 1 led, its ISR was {1,2,3}"
    assert known.decisions == (
        "1.5 s later: ISR {1,2,3} -> {2,3}, node 1 removed; node 2 leads after node 1, epoch 1, isr election",
    )
    assert known.nearest is not None
    assert known.nearest.partition_epoch == 1


def test_between_two_decisions_both_are_named_and_the_nearer_one_is_explained() -> None:
    """At 4 s node 2 leads without node 1, which is back 1 s later: that is nearer than the failover."""
    known = _at(4_000)

    assert known.held == "node 2 led, its ISR was {2,3}"
    assert [said.partition(":")[0] for said in known.decisions] == ["2.0 s before", "1.0 s later"]
    assert known.nearest is not None
    assert known.nearest.partition_epoch == 2


def test_what_no_decision_says_is_not_known() -> None:
    """Without a change of leader it is not known who led, and without a decision there is none to explain."""
    shrink = event("ISR_CHANGE", 2_000, partition_epoch=1, old_isr=[1, 2], new_isr=[1], cause="lag")
    lost = event("LEADER_CHANGE", 2_000, partition_epoch=1, old_leader=1, new_leader=-1, reason="node_fenced")

    assert moment([shrink], BEGIN_US).held == "who led is not known, its ISR was {1,2}"
    assert moment([lost], BEGIN_US + 3_000_000).held == "no node led, its ISR is not known"
    assert moment([], BEGIN_US).nearest is None
