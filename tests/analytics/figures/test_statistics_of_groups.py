"""The statistics of consumer groups and transactions on worked histories: S21 to S27."""

from __future__ import annotations

from typing import Any

import pytest

from strandline_analytics.scope import Grouping

S = 1_000_000


def test_each_value_weighs_as_long_as_it_held(histories: Any) -> None:
    """The lag changes with the HW, also between two looks, and with what is committed; silence is unknown."""
    row = histories.rows("s21", "group_lag")[1]

    assert (row.partition, row.group_id) == (0, "orders")
    assert row.mean_records == pytest.approx(1140 / 55, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.p99_records, row.max_records) == (0, 80, 80, 80)
    assert (row.behind_us, row.ahead_us) == (20 * S, 0)
    assert row.coverage == pytest.approx(55 / 60, rel=1e-12)


def test_groups_of_one_partition_are_told_apart(histories: Any) -> None:
    """A second group has figures of its own, from its first report on."""
    row = histories.rows("s21", "group_lag")[0]

    assert (row.group_id, row.mean_records, row.max_records) == ("audit", 140.0, 160)
    assert row.coverage == pytest.approx(50 / 60, rel=1e-12)


def test_an_offset_above_all_reported_hws_is_in_no_figure(histories: Any) -> None:
    """5 s in which the report of the HW was missing are counted; a forgotten offset has no lag, not one of 0."""
    row = histories.rows("s21", "group_lag")[3]

    assert (row.partition, row.group_id) == (1, "orders")
    assert row.mean_records == pytest.approx(100 / 35, rel=1e-12)
    assert (row.max_records, row.behind_us, row.ahead_us) == (5, 20 * S, 5 * S)
    assert row.coverage == pytest.approx(40 / 60, rel=1e-12)


def test_a_group_that_is_silent_is_believed_for_three_minutes(histories: Any) -> None:
    """A coordinator reports every offset once a minute; after three without a report nothing is known."""
    row = histories.rows("s21", "group_lag")[2]

    assert (row.group_id, row.max_records, row.behind_us) == ("batch", 20, 10 * S)
    assert row.mean_records == pytest.approx(200 / 30, rel=1e-12)
    assert row.coverage == 0.5


def test_partitions_of_a_cluster_are_added_up(histories: Any) -> None:
    """By cluster a group has one row, weighted by the time of all its partitions."""
    rows = histories.rows("s21", "group_lag", grouping=Grouping.CLUSTER)

    assert [row.group_id for row in rows] == ["audit", "batch", "orders"]
    assert rows[2].mean_records == pytest.approx(1240 / 90, rel=1e-12)
    assert rows[2].coverage == pytest.approx(95 / 120, rel=1e-12)


@pytest.mark.parametrize(
    ("statistic", "figures"),
    [("s21", ("mean_records", "behind_us")), ("s22", ("mean_us", "max_us")), ("s24", ("episodes", "total_us"))],
)
def test_without_a_group_nothing_is_said(histories: Any, statistic: str, figures: tuple[str, str]) -> None:
    """A partition that no group reads has a row, and in it no group, lag, age or stuck member: null, and not 0."""
    row = histories.row(statistic, "lag")

    assert (row.group_id, *(row[figure] for figure in figures), row.coverage) == (None, None, None, 0.0)


def test_what_a_deposed_coordinator_says_of_an_offset_is_not_believed(histories: Any) -> None:
    """Its row is later than the one of the next coordinator, and in a lower epoch."""
    row = histories.rows("s21", "deposed_commits")[0]

    assert (row.group_id, row.mean_records, row.max_records) == ("orders", 2500 / 60, 100)
    assert row.behind_us == 40 * S


# S22: lag of consumer groups in time.


def test_the_age_counts_from_when_the_hw_passed_the_offset(histories: Any) -> None:
    """It rises while the group does not commit, a commit that is not enough lets it go on, and caught up it is 0."""
    row = histories.rows("s22", "group_lag")[1]

    assert (row.partition, row.group_id) == (0, "orders")
    assert row.mean_us == pytest.approx(200e6 / 55, rel=1e-12)
    assert (row.max_us, row.estimated_us, row.at_least_us) == (20 * S, 0, None)
    assert row.coverage == pytest.approx(55 / 60, rel=1e-12)


def test_what_began_before_anything_was_read_has_a_lower_bound(histories: Any) -> None:
    """The HW was above the offset at the first look, so the age is at least the time since, and in no figure."""
    row = histories.rows("s22", "group_lag")[0]

    assert (row.group_id, row.mean_us, row.max_us, row.estimated_us) == ("audit", None, None, 0)
    assert (row.at_least_us, row.coverage) == (57 * S, 0.0)


def test_a_look_stands_in_for_an_advance_that_was_not_reported(histories: Any) -> None:
    """The age counts from the first look above the offset, and for how long it does is counted."""
    batch, orders = histories.rows("s22", "group_lag")[2:]

    assert (orders.mean_us, orders.max_us, orders.estimated_us) == (5e6, 20 * S, 20 * S)
    assert orders.coverage == pytest.approx(40 / 60, rel=1e-12)
    assert batch.mean_us == pytest.approx(50e6 / 30, rel=1e-12)
    assert (batch.max_us, batch.estimated_us, batch.coverage) == (10 * S, 10 * S, 0.5)


def test_a_record_that_an_unclean_election_removed_is_not_waited_for(histories: Any) -> None:
    """The record that is there could be read since the HW passed the offset again: 20 s, and not since 10 s."""
    row = histories.rows("s22", "group_lineage")[0]

    assert (row.partition, row.max_us, row.at_least_us, row.coverage) == (0, 20 * S, None, 1.0)
    assert row.mean_us == pytest.approx(400e6 / 60, rel=1e-12)


def test_a_record_that_a_new_leader_holds_goes_on_to_age(histories: Any) -> None:
    """A clean leader begins with a lower HW and holds the record: its age counts from the old leader's advance."""
    row = histories.rows("s22", "group_lineage")[1]

    assert (row.partition, row.max_us, row.at_least_us, row.coverage) == (1, 50 * S, None, 1.0)
    assert row.mean_us == pytest.approx((200e6 + 28 * 36e6) / 60, rel=1e-12)


# S23: rebalances of consumer groups.


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
    """What was going on at the first event, and what a lost event ended, are unfinished; no member was seen slow."""
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
    """One member that got everything in the step in which it joined waited for no other."""
    groups = {row.group_id for row in histories.rows("s23", "rebalances", grouping=Grouping.CLUSTER)}

    assert groups == {"late", "orders"}


def test_what_is_repeated_begins_and_ends_no_rebalance(histories: Any) -> None:
    """A group that a repetition shows in the middle of a rebalance is in one of unknown start; who is repeated has not
    changed."""
    calm, slow = histories.rows("s23", "repeated", end_ms=240_000)[:2]

    assert (calm.group_id, calm.rebalances, calm.unfinished, calm.total_us) == ("calm", 1, 0, 20 * S)
    assert (slow.group_id, slow.rebalances, slow.unfinished, slow.total_us) == ("slow", 1, 1, 21 * S)
    assert (slow.max_us, slow.slowest_member, slow.waited_for) == (13 * S, "m-x", {"m-x": 1})


# S24: members that are stuck.


def test_a_member_is_stuck_while_it_has_the_partition(histories: Any) -> None:
    """From its last commit to the end of its assignment; who has the partition next has a minute of its own."""
    row = histories.rows("s24", "stuck", end_ms=240_000)[1]

    assert (row.topic, row.partition, row.group_id, row.member_id) == ("t", 0, "orders", "m-a")
    assert (row.episodes, row.total_us, row.longest_us) == (1, 110 * S, 110 * S)
    assert (row.grew_records, row.lag_records, row.coverage) == (30, 50, 1.0)


def test_a_lag_that_does_not_grow_is_nobodys_fault(histories: Any) -> None:
    """Ten records behind for four minutes, and nothing was written: known, and no member stuck."""
    row = histories.rows("s24", "stuck", end_ms=240_000)[2]

    assert (row.partition, row.group_id, row.member_id) == (1, "orders", None)
    assert (row.episodes, row.total_us, row.longest_us, row.coverage) == (0, 0, None, 1.0)


def test_a_window_has_its_part_of_the_time(histories: Any) -> None:
    """110 s over windows of one minute: 20, 60 and 30 s."""
    rows = histories.rows("s24", "stuck", end_ms=240_000, step_ms=60_000)
    found = [row.total_us for row in rows if row.member_id == "m-a"]

    assert found == [20 * S, 60 * S, 30 * S]


def test_a_member_whose_assignment_is_repeated_is_known_to_have_it(histories: Any) -> None:
    """No change was read. It is stuck from the first repetition on, and the second one does not part the time."""
    row = histories.rows("s24", "repeated", end_ms=240_000)[1]

    assert (row.group_id, row.member_id, row.episodes, row.total_us) == ("calm", "m-a", 1, 178 * S)
    assert (row.grew_records, row.lag_records) == (50, 60)


# S25: commits that were refused, and partitions that no member had.


def test_refusals_are_counted_by_error(histories: Any) -> None:
    """Errors of all reports are added up, beside the commits that were taken."""
    first, second = (histories.rows("s25", "rebalances")[n] for n in (2, 3))

    assert [(row.partition, row.group_id) for row in (first, second)] == [(0, "orders"), (1, "orders")]
    assert (first.commits, first.refused, first.refused_by_error) == (3, 0, None)
    assert (second.commits, second.refused) == (1, 7)
    assert second.refused_by_error == {"STALE_MEMBER_EPOCH": 3, "UNKNOWN_MEMBER_ID": 4}


def test_a_partition_that_is_asked_back_has_no_owner(histories: Any) -> None:
    """7 s between two owners, and 20 s after the second was fenced; not before the first one had it."""
    first, second = (histories.rows("s25", "rebalances")[n] for n in (2, 3))

    assert (second.unowned, second.unowned_us, second.unowned_longest_us) == (2, 27 * S, 20 * S)
    assert (first.unowned, first.unowned_us, first.unowned_longest_us) == (0, 0, None)


def test_a_group_without_members_misses_no_owner(histories: Any) -> None:
    """No member reads, because none is left: an ordinary end of a group, which committed nothing either."""
    row = histories.rows("s25", "rebalances")[1]

    assert (row.partition, row.group_id) == (0, "batch")
    assert (row.unowned, row.unowned_us, row.commits, row.refused) == (0, 0, None, None)


def test_who_had_what_is_null_where_no_member_was_seen(histories: Any) -> None:
    """Commits alone say nothing of owners."""
    row = histories.rows("s25", "group_lag")[1]

    assert (row.group_id, row.commits, row.unowned, row.unowned_us) == ("orders", 3, None, None)


def test_an_owner_who_was_only_repeated_is_missed_when_it_is_gone(histories: Any) -> None:
    """Who had the partition is known by a repetition alone: without an owner between that one and the next."""
    rows = histories.rows("s25", "repeated", end_ms=240_000)
    found = {(row.partition, row.group_id): (row.unowned, row.unowned_us) for row in rows if row.topic == "t"}

    assert found[1, "calm"] == (1, 20 * S)
    assert found[0, "calm"] == (0, 0)


# S26: transactions that held back what readers of committed records see.


def test_each_producer_has_what_its_transactions_held_back(histories: Any) -> None:
    """Not from when the transaction began, but from when no earlier one was undecided; a reign at a time."""
    seven, eight = histories.rows("s26", "lso_held")[1:3]

    assert (seven.producer_id, seven.committed, seven.aborted, seven.undecided) == (7, 0, 1, 0)
    assert (seven.held_us, seven.longest_us) == (7 * S, 7 * S)
    assert (eight.producer_id, eight.committed, eight.aborted, eight.undecided) == (8, 0, 0, 2)
    assert (eight.held_us, eight.longest_us) == (48 * S, 28 * S)


def test_short_ones_have_no_producer(histories: Any) -> None:
    """Their leader reports how many there were, what became of them, and the sum of their times."""
    row = histories.rows("s26", "lso_held")[0]

    assert (row.producer_id, row.committed, row.aborted, row.undecided) == (None, 30, 2, 0)
    assert (row.held_us, row.longest_us) == (3_200_000, None)


def test_where_no_transaction_was_the_counts_are_zero(histories: Any) -> None:
    """The state of the partition was known."""
    row = histories.rows("s26", "lso_held")[4]

    assert (row.partition, row.producer_id, row.committed, row.held_us, row.longest_us) == (2, None, 0, 0, None)


def test_what_was_decided_at_the_end_of_a_term_is_not_believed(histories: Any) -> None:
    """Neither of a transaction that was reported by itself nor of short ones: both are a zombie's."""
    row = histories.rows("s26", "lso_held")[3]

    assert (row.partition, row.producer_id, row.committed, row.undecided, row.held_us) == (1, 9, 0, 1, 10 * S)


def test_the_decision_counts_where_it_is_seen(histories: Any) -> None:
    """In a longer window producer 8 commits once, in the reign of node 2; what node 1 said of it counts nowhere."""
    rows = histories.rows("s26", "lso_held", end_ms=240_000, grouping=Grouping.CLUSTER)
    (eight,) = [row for row in rows if row.producer_id == 8]

    assert (eight.committed, eight.undecided, eight.held_us) == (1, 1, 53 * S)


# S27: how transactions ended.


def test_aborts_are_counted_by_their_cause(histories: Any) -> None:
    """The producer asked, its time was over; a deposed coordinator's word counts nowhere."""
    pay, ship = histories.rows("s27", "txn_ends")[2:4]

    assert (pay.topic, pay.partition, pay.transactional_id) == ("__transaction_state", 4, "pay")
    assert (pay.committed, pay.aborted_by_producer, pay.timed_out, pay.fenced) == (1, 1, 1, 0)
    assert (ship.transactional_id, ship.committed, ship.timed_out, ship.fenced) == ("ship", 0, 0, 1)


def test_the_longest_is_from_its_beginning_to_its_decision(histories: Any) -> None:
    """The last marker is not waited for."""
    pay, ship = histories.rows("s27", "txn_ends")[2:4]

    assert (pay.longest_us, ship.longest_us) == (10 * S, 1_500_000)


def test_short_commits_are_sums_without_an_id(histories: Any) -> None:
    """Of two reports; nothing is known of how long they took."""
    row = histories.rows("s27", "txn_ends")[1]

    assert (row.transactional_id, row.committed, row.timed_out, row.longest_us) == (None, 500, 0, None)


def test_a_refused_marker_counts_in_the_partition_that_refused_it(histories: Any) -> None:
    """In the cluster it is one of the id's."""
    refused = histories.rows("s27", "txn_ends")[0]
    (whole,) = [
        row for row in histories.rows("s27", "txn_ends", grouping=Grouping.CLUSTER) if row.transactional_id == "pay"
    ]

    assert (refused.topic, refused.transactional_id, refused.refused_markers) == ("t", "pay", 1)
    assert (whole.refused_markers, whole.committed) == (1, 1)
