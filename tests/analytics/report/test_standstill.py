"""Why a group stood still at a moment: which reasons are named, in which order, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reported_material import BEGIN_US, event

from strandline_analytics.explain.chain import Chain
from strandline_analytics.explain.standstill import GroupAt, Span, Term, explain_group
from strandline_analytics.timeline.event import Event

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
        "none of the known reasons: it was 70 records behind in 1 of 2 partitions, and nobody was stuck",
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
        "it had no coordinator: nobody led __group_state-7: for 4.0 s by then",
        "nobody had t-1: for 6.0 s by then",
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
