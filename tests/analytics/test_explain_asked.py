"""Which events Spark selects for an explanation, on worked histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline_analytics.explain import ask
from strandline_analytics.explain.ask_group import AskedGroup, standstill
from strandline_analytics.explain.ask_held_back import AskedPartition, held_back
from strandline_analytics.explain.chain import Chain
from strandline_analytics.explain.stall import HeldBack
from strandline_analytics.explain.standstill import Standstill

S = 1_000_000


def test_of_two_stalls_the_window_chooses_one_and_its_chain_has_moves_and_looks(histories: Any) -> None:
    """Without a window all are listed, the last as long as its sample is valid; from 50 to 65 s it is the second."""
    every = ask.stall(histories.tables, ask.Asked(topic="t", partition=0, cluster_id="slow_disk"))
    assert isinstance(every, list)
    assert [(each.t0, each.t1) for each in every] == [(500_000, 3 * S), (50 * S, 65 * S), (65 * S, 95 * S)]

    later = ask.Asked(topic="t", partition=0, cluster_id="slow_disk", start_us=50 * S, end_us=65 * S)
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
    every = ask.decision(histories.tables, ask.Asked(topic="t", partition=0, cluster_id="failover"))
    assert isinstance(every, list)
    assert "created" not in {event.cause for event in every}
    epochs = {event.partition_epoch for event in every}
    assert len(epochs) > 1

    one = min(epoch for epoch in epochs if epoch is not None)
    chain = ask.decision(
        histories.tables, ask.Asked(topic="t", partition=0, cluster_id="failover", partition_epoch=one)
    )
    assert isinstance(chain, Chain)
    assert chain.partition_epoch == one
    assert "commit" in {link.name for link in chain.links}


def test_a_moment_is_answered_with_the_decision_that_is_nearest(histories: Any) -> None:
    """What held, and the chain of the nearest decision; of a partition that is in no cluster nothing is made up."""
    at_us = 21 * S
    asked = ask.Asked(topic="t", partition=0, cluster_id="failover")
    found = ask.around(histories.tables, asked, at_us)

    assert isinstance(found, tuple)
    known, chain = found
    assert known.nearest is not None
    assert chain is not None
    assert chain.partition_epoch == known.nearest.partition_epoch
    assert "led" in known.held
    assert ask.around(histories.tables, replace(asked, topic="absent"), at_us) == []


def test_a_group_that_rebalances_is_told_who_was_waited_for_and_what_nobody_had(histories: Any) -> None:
    """At 24 s: since 20 s, until m-b changed at 32 s; m-a was asked for partition 1, which nobody had from 22 s on."""
    found = standstill(histories.tables, AskedGroup(group_id="orders", at_us=24 * S, cluster_id="rebalances"))

    assert isinstance(found, Standstill)
    assert found.reasons == (
        "it rebalanced: for 4.0 s by then, 12.0 s in all; m-a had not given up what was asked back; "
        "m-b was waited for, it changed last",
        "nobody had t-1: for 2.0 s by then",
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
    """At 100 s m-a has had partition 0 without a commit since 40 s; partition 1 stands still and blames nobody."""
    found = standstill(histories.tables, AskedGroup(group_id="orders", at_us=100 * S, cluster_id="stuck"))

    assert isinstance(found, Standstill)
    assert found.reasons == (
        "member m-a had t-0 and did not move on: for 60.0 s by then, 110.0 s in all; its lag grew to 50 records",
    )


def test_a_group_of_several_clusters_is_listed(histories: Any) -> None:
    """None of them is chosen, and a name that nobody has gives none."""
    several = standstill(histories.tables, AskedGroup(group_id="orders", at_us=24 * S))

    assert isinstance(several, list)
    assert {"rebalances", "stuck", "group_lag"} <= set(several)
    assert standstill(histories.tables, AskedGroup(group_id="nobody", at_us=24 * S)) == []


def test_readers_of_committed_records_are_told_whose_transaction_they_wait_for(histories: Any) -> None:
    """At 30 s producer 8 has held the LSO for 18 s, of which its leader reported no end; at 30 s of t-2 nobody."""
    asked = AskedPartition(topic="t", partition=0, at_us=30 * S, cluster_id="lso_held")
    found, calm = held_back(histories.tables, asked), held_back(histories.tables, replace(asked, partition=2))

    assert isinstance(found, HeldBack)
    assert found.reasons == ("producer 8 of epoch 0 held the LSO at 110: for 18.0 s by then; up to 40 records waited",)
    assert [link.name for link in found.links] == ["partition", "partition", "partition", "partition"]
    assert isinstance(calm, HeldBack)
    assert calm.reasons[0].startswith("no transaction held the LSO back")
    assert held_back(histories.tables, replace(asked, cluster_id="nowhere")) == []
