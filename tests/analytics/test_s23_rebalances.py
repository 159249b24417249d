"""S23: rebalances of consumer groups."""

from __future__ import annotations

from typing import Any

from strandline_analytics.scope import Grouping

S = 1_000_000


def test_a_rebalance_lasts_from_stable_to_stable(histories: Any) -> None:
    """A second rise of the epoch in between is part of it, and one that goes on is counted apart."""
    row = histories.rows("s23", "rebalances")[1]

    assert (row.topic, row.partition, row.group_id) == ("__group_state", 7, "orders")
    assert (row.rebalances, row.unfinished, row.total_us) == (2, 1, 34 * S)
    assert (row.p50_us, row.p95_us, row.max_us, row.max_unfinished_us) == (2 * S, 12 * S, 12 * S, 20 * S)
    assert row.coverage == 1.0


def test_the_slowest_member_is_the_one_that_changed_last(histories: Any) -> None:
    """Of the longest rebalance by itself, and of each in a map."""
    row = histories.rows("s23", "rebalances")[1]

    assert row.slowest_member == "m-b"
    assert row.waited_for == {"m-a": 1, "m-b": 1}


def test_a_start_or_an_end_that_was_not_seen_makes_no_length(histories: Any) -> None:
    """What was going on at the first event, and what a lost event ended, are unfinished; nobody was seen to be slow."""
    row = histories.rows("s23", "rebalances")[0]

    assert (row.group_id, row.rebalances, row.unfinished, row.total_us) == ("late", 1, 2, 8 * S)
    assert (row.p50_us, row.max_us, row.max_unfinished_us) == (1 * S, 1 * S, 5 * S)
    assert (row.slowest_member, row.waited_for) == (None, None)


def test_a_zombie_ends_no_rebalance(histories: Any) -> None:
    """What a coordinator reported after its term is left out, so the last one of orders ends at 65 s."""
    row = histories.rows("s23", "rebalances", end_ms=70_000)[1]

    assert (row.group_id, row.rebalances, row.unfinished, row.max_us) == ("orders", 3, 0, 25 * S)
    assert row.slowest_member == "m-c"


def test_a_group_that_is_stable_at_once_did_not_rebalance(histories: Any) -> None:
    """One member that got everything in the step in which it joined waited for nobody."""
    groups = {row.group_id for row in histories.rows("s23", "rebalances", grouping=Grouping.CLUSTER)}

    assert groups == {"late", "orders"}


def test_what_is_repeated_begins_and_ends_no_rebalance(histories: Any) -> None:
    """A group that a repetition shows in the middle of a rebalance is in one of unknown start; who is repeated has not
    changed."""
    calm, slow = histories.rows("s23", "repeated", end_ms=240_000)[:2]

    assert (calm.group_id, calm.rebalances, calm.unfinished, calm.total_us) == ("calm", 1, 0, 20 * S)
    assert (slow.group_id, slow.rebalances, slow.unfinished, slow.total_us) == ("slow", 1, 1, 21 * S)
    assert (slow.max_us, slow.slowest_member, slow.waited_for) == (13 * S, "m-x", {"m-x": 1})
