"""The statistics of failovers on worked histories: S6, S7, S11, S16, S17 and S19."""

from __future__ import annotations

from typing import Any

import pytest

MS = 1_000


def test_best_and_worst_member(histories: Any) -> None:
    """The worst case is the member that is furthest behind, the best the one that is nearest."""
    row = histories.row("s06", "lag")

    assert row.clean_worst_mean_records == pytest.approx(700 / 45, rel=1e-12)
    assert (row.clean_worst_max_records, row.clean_best_max_records) == (40, 30)
    assert row.unclean_committed_max_records is None
    assert (row.no_clean_successor_us, row.n_below_hw) == (0, 0)


def test_a_leader_alone_has_no_clean_successor(histories: Any) -> None:
    """Alone and unknown are not 0: the mean is over the 30 s in which a successor's position was known."""
    row = histories.row("s06", "alone")

    assert (row.clean_worst_mean_records, row.clean_worst_max_records, row.clean_best_max_records) == (35.0, 35, 35)
    assert row.no_clean_successor_us == 10_000 * MS
    assert row.unclean_committed_max_records == 10
    assert row.n_below_hw == 1


# S7: what was truncated.


def test_zombies_widen_the_tail(histories: Any) -> None:
    """Records that a deposed leader appended are distinguished from those that existed when the epoch ended."""
    row = histories.row("s07", "zombies")

    assert (row.epochs, row.tail_cut_records, row.tail_cut_with_zombies_records) == (1, 3, 28)
    assert row.committed_lost_records == 0
    assert (row.truncations, row.truncated_records, row.truncated_max_records, row.committed_cut_records) == (
        1,
        28,
        28,
        0,
    )


def test_what_is_lost_is_lost_once(histories: Any) -> None:
    """An unclean election loses 20 committed records; the next epoch starts above what was left and loses none."""
    row = histories.row("s07", "unclean")

    assert (row.epochs, row.tail_cut_records, row.tail_cut_with_zombies_records) == (2, 40, 40)
    assert row.committed_lost_records == 20
    assert (row.truncated_records, row.committed_cut_records) == (40, 20)


def test_an_epoch_before_which_nothing_was_seen_has_no_tail(histories: Any) -> None:
    """Epochs are counted where no sample shows what was before them; their tails are null, not 0."""
    row = histories.row("s07", "failover")

    assert (row.epochs, row.truncations) == (3, 0)
    assert row.committed_lost_records is None


def test_a_loss_that_is_not_known_is_not_made_zero_by_one_that_is(histories: Any) -> None:
    """An unknown loss and a loss of none are an unknown loss, for new leaders and for truncations alike."""
    row = histories.rows("s07", "unknown_losses")[0]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records, row.tail_cut_records) == (2, 1, None, None)
    assert (row.truncations, row.truncated_records, row.own_hw_unknown, row.committed_cut_records) == (1, 40, 1, None)


def test_a_known_loss_beside_an_unknown_one_is_a_lower_bound(histories: Any) -> None:
    """The known part is shown, with how many epochs and truncations it leaves out."""
    row = histories.rows("s07", "unknown_losses")[1]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records, row.tail_cut_records) == (2, 1, 20, 30)
    assert (row.truncations, row.own_hw_unknown, row.committed_cut_records) == (2, 1, 20)


def test_the_first_epoch_of_a_new_topic_loses_nothing(histories: Any) -> None:
    """There was nothing before it: 0, and not unknown."""
    row = histories.rows("s07", "unknown_losses")[2]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records, row.tail_cut_records) == (1, 0, 0, 0)


def test_where_nothing_was_cut_no_committed_record_was(histories: Any) -> None:
    """Without a truncation the records cut below an HW are 0, and no HW is unknown."""
    row = histories.rows("s07", "unknown_losses")[3]

    assert (row.epochs, row.truncations, row.own_hw_unknown, row.committed_cut_records) == (0, 0, 0, 0)


def test_a_replica_that_cut_below_its_own_hw_proves_a_part_of_a_loss(histories: Any) -> None:
    """Epoch 2 lost at least 20 by the cuts to its start; they prove nothing of epoch 3, in which one of them was."""
    row = histories.rows("s07", "unknown_losses")[4]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records) == (2, 2, 20)
    assert _losses(row)[1:] == (None, None, None)


def _losses(row: Any) -> tuple[int | None, int | None, int | None, int | None]:
    return (
        row.committed_lost_records,
        row.committed_lost_min_bytes,
        row.committed_lost_max_bytes,
        row.avoidable_lost_records,
    )


@pytest.mark.parametrize(
    ("partition", "losses"),
    [
        # The replica that was not elected had 15 of the 20. The bytes lie between nearest positions.
        pytest.param(0, (20, 1_500, 2_500, 15), id="a longer live replica"),
        # Node 2 had 15 more, but was fenced. Where no look knows bytes, how many were lost is not known.
        pytest.param(1, (20, None, None, 0), id="a fenced replica"),
        # Who was live is in the controller's decision alone; an election that was not reported may have been unclean.
        pytest.param(2, (20, 1_500, 2_500, None), id="without the decision"),
        pytest.param(4, (20, 1_500, 2_500, None), id="without the election"),
        # Two unclean elections lose 10 each. Node 4 was seen at 95, of which the first left 90: 10 of the second's
        # were avoidable. What the second lost is not known in bytes, so there is no upper bound.
        pytest.param(3, (20, None, None, 10), id="two epochs"),
    ],
)
def test_what_a_live_replica_had_was_avoidable(histories: Any, partition: int, losses: tuple[int | None, ...]) -> None:
    """Of what an epoch lost, the part that a live replica had; null, and not 0, where that is not known."""
    assert _losses(histories.rows("s07", "avoidable")[partition]) == losses


def test_a_clean_election_loses_nothing_that_could_be_avoided(histories: Any) -> None:
    """Where nothing was lost, it was 0 bytes and 0 records."""
    assert _losses(histories.row("s07", "zombies")) == (0, 0, 0, 0)


# S11: unavailability.


def test_no_leader_stops_reads_and_too_few_members_stop_writes(histories: Any) -> None:
    """60 s without writes, 20 s of them without reads; two activations took 100 and 50 ms."""
    row = histories.row("s11", "unclean")

    assert row.write_unavailable_us == 60_000 * MS
    assert row.read_unavailable_us == 20_000 * MS
    assert row.activation_gap_us == 150 * MS


def test_the_gap_of_an_activation_is_in_the_controllers_time(histories: Any) -> None:
    """The new leader's clock is 300 ms ahead, and that is not waiting time: 50 + 15 + 4 ms."""
    row = histories.row("s11", "failover")

    assert row.write_unavailable_us == 19_995 * MS
    assert row.read_unavailable_us == 0
    assert row.activation_gap_us == 69 * MS


def test_w1_refuses_writes_below_the_minimum(histories: Any) -> None:
    """15 s under the minimum, and never without a leader."""
    row = histories.row("s11", "w1_clipping")

    assert (row.write_unavailable_us, row.read_unavailable_us, row.activation_gap_us) == (15_000 * MS, 0, 0)


# S16: shrinks and leader changes.


def test_one_decision_is_simultaneous(histories: Any) -> None:
    """Two changes with a shrink in their own partition epoch; the third has one 9,995 ms before it."""
    row = histories.row("s16", "failover")

    assert (row.leader_changes, row.simultaneous, row.shrink_precedes, row.shrink_follows, row.unrelated) == (
        3,
        2,
        1,
        0,
        0,
    )


def test_ten_seconds_are_the_border(histories: Any) -> None:
    """A shrink exactly 10 s before the change precedes it; one 20 s away is unrelated."""
    near = histories.row("s16", "w2_rejoin", end_ms=60_000)
    far = histories.row("s16", "unclean")

    assert (near.leader_changes, near.shrink_precedes) == (1, 1)
    assert (far.leader_changes, far.simultaneous, far.unrelated) == (3, 1, 2)


def test_the_nearest_shrink_counts_and_of_two_the_earlier(histories: Any) -> None:
    """A shrink 0.5 s after the change follows it; of two that are both 5 s away the earlier epoch counts."""
    row = histories.row("s16", "follows")

    assert (row.leader_changes, row.shrink_precedes, row.shrink_follows) == (2, 1, 1)


def test_creating_a_topic_changes_no_leader(histories: Any) -> None:
    """The first leader of a new topic has no predecessor."""
    assert [row.leader_changes for row in histories.rows("s16", "recreated")] == [0, 0]


def _of_shrinks(row: Any) -> tuple[int, int, int, int, int]:
    return row.shrinks, row.shrinks_simultaneous, row.shrinks_before, row.shrinks_after, row.shrinks_unrelated


def test_each_shrink_has_its_nearest_change_of_leader(histories: Any) -> None:
    """Three shrinks around two changes: one after the first, one before the second, one after it."""
    assert _of_shrinks(histories.row("s16", "follows")) == (3, 0, 1, 2, 0)


def test_a_shrink_in_the_decision_that_changed_the_leader_is_simultaneous(histories: Any) -> None:
    """Both shrinks of the failovers, and the one that left a partition without a leader."""
    assert _of_shrinks(histories.row("s16", "failover")) == (2, 2, 0, 0, 0)
    assert _of_shrinks(histories.row("s16", "unclean")) == (1, 1, 0, 0, 0)


def test_a_shrink_is_unrelated_beyond_ten_seconds(histories: Any) -> None:
    """The shrink at 10 s comes exactly 10 s before the change; those at 80 s and 1,000 s have none near them."""
    assert _of_shrinks(histories.row("s16", "w2_rejoin", end_ms=1_200_000)) == (3, 0, 1, 0, 2)
    assert [_of_shrinks(row)[0] for row in histories.rows("s16", "recreated")] == [1, 0]


# S17: incidents.


def _reported(row: Any) -> tuple[Any, ...]:
    return (row.began_us // MS, row.ended_us // MS, row.shrinks, row.partitions, row.removals, row.nodes, row.label)


def test_shrinks_chain_and_are_labelled(histories: Any) -> None:
    """One node, then one leader; two shrinks exactly 5 s apart are one chain, and too few for a label."""
    rows = histories.rows("s17", "incidents")

    assert [_reported(row) for row in rows] == [
        (10_000, 16_000, 3, 3, 3, 1, "single_node"),
        (30_000, 31_500, 3, 2, 3, 2, "leader_side"),
        (50_000, 55_000, 2, 2, 2, 2, None),
    ]
    assert (rows[0].top_node, rows[0].node_share) == (3, 1.0)
    assert rows[0].node_lift == pytest.approx(3.0, rel=1e-12)
    assert (rows[1].top_leader, rows[1].leader_share) == (1, 1.0)


def test_a_rack_is_seen_where_no_node_and_no_leader_is(histories: Any) -> None:
    """Four removals on two nodes of one rack under two leaders; then three of different kinds."""
    rows = histories.rows("s17", "racks")

    assert [_reported(row) for row in rows] == [
        (10_000, 13_000, 4, 4, 4, 2, "rack"),
        (40_000, 42_000, 3, 3, 3, 3, "mixed"),
    ]
    assert (rows[0].top_rack, rows[0].rack_share, rows[0].node_share) == ("b", 1.0, 0.5)
    assert (rows[1].top_rack, rows[1].rack_share) == ("a", 2 / 3)


def test_what_somebody_asked_for_is_no_part_of_a_failure(histories: Any) -> None:
    """A planned stop in the middle of a failure is a separate incident, and neither extends the other."""
    rows = histories.rows("s17", "planned")

    assert [(row.kind, *_reported(row)) for row in rows] == [
        ("unplanned", 10_000, 16_000, 4, 3, 4, 2, "leader_side"),
        ("planned", 12_000, 13_000, 2, 2, 2, 1, None),
    ]
    assert (rows[0].top_node, rows[0].node_share, rows[1].top_node) == (3, 0.75, 2)


def test_a_calm_cluster_has_a_row_without_an_incident(histories: Any) -> None:
    """The window has a row, and nothing began in it."""
    (row,) = histories.rows("s17", "lag")

    assert (row.began_us, row.shrinks, row.label) == (None, None, None)


# S19: failover time.


def test_the_phases_of_failovers(histories: Any) -> None:
    """A death has three phases, a clean stop has nothing to detect, a restart is not a failover."""
    row = histories.row("s19", "failover")

    assert (row.leader_changes, row.failovers) == (3, 2)
    assert (row.detect_p50_us, row.detect_max_us) == (6_000 * MS, 6_000 * MS)
    assert (row.elect_p50_us, row.elect_max_us) == (5 * MS, 10 * MS)
    assert (row.activate_p50_us, row.activate_max_us) == (15 * MS, 50 * MS)
    assert (row.total_max_us, row.n_negative, row.clock_err_us) == (6_060 * MS, 0, 2 * MS)


def test_a_time_without_a_leader_is_part_of_the_election(histories: Any) -> None:
    """The election lasts from the fence of the last leader to the commit of the next: 20,002 ms."""
    row = histories.row("s19", "unclean")

    assert (row.leader_changes, row.failovers) == (2, 1)
    assert (row.detect_max_us, row.elect_max_us, row.activate_max_us) == (5_998 * MS, 20_002 * MS, 100 * MS)
    assert row.total_max_us == 26_100 * MS


def test_a_preferred_election_is_no_failover(histories: Any) -> None:
    """A leader change without a fence has neither a detection nor an election to wait for."""
    row = histories.row("s19", "zombies")

    assert (row.leader_changes, row.failovers, row.detect_max_us, row.elect_max_us) == (1, 0, None, None)
    assert row.activate_max_us == 500 * MS
