"""Why readers of committed records stood still, in sentences, and what is said to be not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reported_material import BEGIN_US, event

from strandline_analytics.explain.stall import Held, HeldBack, PartitionAt, explain_held_back
from strandline_analytics.timeline.event import Event

S = 1_000_000
HOLD = Held(
    t0=BEGIN_US + 10 * S,
    t1=BEGIN_US + 40 * S,
    first_offset=1_000,
    producer_id=7,
    producer_epoch=3,
    outcome="abort",
    largest_hw=1_250,
)


def _change(at_s: float, cause: str, epoch: int = 3) -> Event:
    said = {"transactional_id": "pay", "producer_id": 7, "producer_epoch": epoch, "cause": cause}
    return event("TRANSACTION_CHANGE", at_s * 1_000, plane="data", node=2, **said)


def _explained(at_s: float = 30, **known: Any) -> HeldBack:
    return explain_held_back(PartitionAt(cluster_id="c", partition="t-0", at_us=BEGIN_US + round(at_s * S), **known))


def test_the_holder_is_named_with_what_waited_and_what_ended_it() -> None:
    """Its producer, transactional id, since when, how many records, the coordinator's decision and the marker."""
    found = _explained(
        holds=[HOLD], changes=[_change(9, "committed", 2), _change(39, "timeout"), _change(50, "aborted", 4)]
    )

    assert found.reasons == (
        "producer 7 of epoch 3 (pay) held the LSO at 1,000: for 20.0 s by then; up to 250 records waited",
        "its coordinator aborted it: it was open for longer than its time-out, 9.0 s later",
        "the abort marker was committed 10.0 s later",
    )
    assert found.missing == ()


def test_what_no_event_reports_is_named() -> None:
    """Without a coordinator's word the id is not known, without a leader's the end; a producer may be unknown, too."""
    unknown = replace(HOLD, producer_id=None, producer_epoch=None, outcome=None, largest_hw=None)
    found = _explained(holds=[unknown])

    assert found.reasons == ("a transaction of an unknown producer held the LSO at 1,000: for 20.0 s by then",)
    assert found.missing == (
        "its transactional id: no event of a coordinator names the producer",
        "its end in the partition: no leader reported that its marker was committed",
    )


def test_a_decision_that_was_before_the_moment_says_so() -> None:
    """The marker may come late: then the coordinator had decided already."""
    found = _explained(38, holds=[HOLD], changes=[_change(35, "aborted")])

    assert found.reasons[1] == "its producer aborted it, 3.0 s before"
    assert found.reasons[2] == "the abort marker was committed 2.0 s later"


def test_a_begin_alone_is_no_end() -> None:
    """The id is known, and the decision is not."""
    found = _explained(holds=[HOLD], changes=[_change(11, "begun")])

    assert found.missing == ("what ended it at its coordinator",)


def test_without_a_holder_the_answer_points_to_the_hw() -> None:
    """At the end of a hold it holds no more."""
    for at_s in (9.9, 40):
        found = _explained(at_s, holds=[HOLD])

        assert found.reasons == (
            "no transaction held the LSO back for a second or longer then; `explain --stall` is about the HW",
        )
        assert found.links == ()


def test_the_links_are_the_events_of_the_holder() -> None:
    """Of the partition those of its first offset, of the coordinator those of its time; repetitions are left out."""
    own = {"first_offset": 1_000, "producer_id": 7}
    found = _explained(
        holds=[HOLD],
        changes=[_change(1, "init"), _change(11, "begun"), _change(20, "repeated"), _change(39, "timeout")],
        events=[
            event("TRANSACTION_OPEN", 11_000, plane="data", node=1, cause="open", hw=1_200, **own),
            event("TRANSACTION_OPEN", 20_000, plane="data", node=1, cause="repeated", hw=1_250, **own),
            event("TRANSACTION_OPEN", 20_000, plane="data", node=1, cause="open", first_offset=2_000),
            event("TRANSACTION_DECIDED", 40_000, plane="data", node=1, outcome="abort", held_ms=30_000, **own),
        ],
    )

    assert [(link.name, link.cause) for link in found.links] == [
        ("partition", "open"),
        ("coordinator", "begun"),
        ("coordinator", "timeout"),
        ("partition", "abort"),
    ]
