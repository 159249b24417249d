"""What held of a partition at a moment, and which decisions were around it."""

from __future__ import annotations

from reported_material import BEGIN_US, event, failover

from strandline_analytics.explain.chain import candidates
from strandline_analytics.explain.moment import Moment, moment


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
    """Without a change of leader nobody says who led, and without a decision there is none to explain."""
    shrink = event("ISR_CHANGE", 2_000, partition_epoch=1, old_isr=[1, 2], new_isr=[1], cause="lag")
    lost = event("LEADER_CHANGE", 2_000, partition_epoch=1, old_leader=1, new_leader=-1, reason="node_fenced")

    assert moment([shrink], BEGIN_US).held == "who led is not known, its ISR was {1,2}"
    assert moment([lost], BEGIN_US + 3_000_000).held == "nobody led, its ISR is not known"
    assert moment([], BEGIN_US).nearest is None
