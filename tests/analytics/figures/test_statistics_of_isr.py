"""The statistics of the ISR on worked histories: S8 to S10 and S12 to S15."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(("end_ms", "expands"), [(60_000, 1), (70_000, 1), (70_001, 2), (80_000, 2)])
def test_w1_counts_what_lies_in_the_window(histories: Any, end_ms: int, expands: int) -> None:
    """A transition at the start of a window is inside, one at its end is outside."""
    row = histories.row("s08", "w1_clipping", end_ms=end_ms)

    assert (row.shrinks, row.removals) == (2, 2)
    assert (row.expands, row.adds) == (expands, expands)
    assert row.coverage == 1.0


def test_w2_counts_over_a_change_of_leader(histories: Any) -> None:
    """The leader change in between is neither a shrink nor an expand."""
    row = histories.row("s08", "w2_rejoin", end_ms=1_200_000)

    assert (row.shrinks, row.removals, row.expands, row.adds) == (3, 3, 2, 2)


@pytest.mark.parametrize("history", ["controller_failover", "clock_back", "recreated", "lost"])
def test_what_is_no_transition_is_not_counted(histories: Any, history: str) -> None:
    """Snapshots, creations and apparent changes of a clock going back do not count; lost events count as a gap."""
    counts = [(row.shrinks, row.expands, row.n_gap, row.clock_regressions) for row in histories.rows("s08", history)]

    assert (
        counts
        == {
            "controller_failover": [(1, 1, 0, 0)],
            "clock_back": [(3, 1, 0, 2)],
            "recreated": [(1, 0, 0, 0), (0, 1, 0, 0)],
            "lost": [(1, 0, 4, 0)],
        }[history]
    )


def test_where_nothing_was_known_no_count_is_reported(histories: Any) -> None:
    """A shrink that was seen counts though the state is unknown; a window without any knowledge has null, not 0."""
    first, second, third = histories.rows("s08", "unknown_start")

    assert (first.shrinks, first.coverage) == (1, 40 / 60)
    assert (second.shrinks, second.coverage) == (1, 10 / 60)
    assert (third.shrinks, third.coverage) == (None, 0.0)


# S9: removals by cause.


def _counts(rows: list[Any]) -> dict[tuple[int, int | None, str], tuple[int, int]]:
    return {(row.replica_id, row.leader_id, row.removal_cause): (row.removals, row.young_epoch) for row in rows}


def test_a_lag_is_stuck_slow_or_unknown(histories: Any) -> None:
    """The last fetch against that leader's limit decides; a removal without progress is in a bucket of its own."""
    assert _counts(histories.rows("s09", "causes")) == {
        (3, 1, "lag_stuck"): (1, 0),
        (3, 1, "lag_slow"): (1, 0),
        (2, 1, "lag_unknown"): (1, 0),
        (1, 3, "lag_stuck"): (1, 1),
    }


def test_what_the_controller_declared_stands(histories: Any) -> None:
    """Removals that were not for a lag keep their cause, with the leader after the change."""
    assert _counts(histories.rows("s09", "failover")) == {
        (1, 2, "node_fenced"): (1, 0),
        (2, 3, "controlled_shutdown"): (1, 0),
    }


# S10: time in each state of the ISR.


MS = 1_000


def _ms(row: Any) -> tuple[int, ...]:
    """Milliseconds full, at min, under min, leaderless, under-replicated."""
    times = (row.full_us, row.at_min_us, row.under_min_us, row.leaderless_us, row.under_replicated_us)
    assert all(time % MS == 0 for time in times)
    return tuple(time // MS for time in times)


def test_w1_is_clipped_at_the_end_of_the_window(histories: Any) -> None:
    """A state that runs past the window counts up to its end (not 45 s at min), and an earlier one from its start."""
    row = histories.row("s10", "w1_clipping")

    assert _ms(row) == (10_000, 35_000, 15_000, 0, 50_000)
    assert row.coverage == 1.0


@pytest.mark.parametrize(
    ("history", "expected", "coverage"),
    [
        ("unclean", (0, 0, 40_000, 20_000, 60_000), 1.0),
        ("rf_below_min", (20_000, 40_000, 20_000, 0, 40_000), 1.0),
        ("clock_back", (30_000, 0, 30_000, 0, 30_000), 1.0),
        ("lost", (20_000, 0, 0, 0, 0), 20 / 60),
        ("controller_failover", (45_000, 15_000, 0, 0, 15_000), 1.0),
        ("reassignment", (40_000, 20_000, 0, 0, 20_000), 1.0),
        ("failover", (20_010, 19_995, 19_995, 0, 39_990), 1.0),
    ],
)
def test_states_of_a_history(histories: Any, history: str, expected: tuple[int, ...], coverage: float) -> None:
    """The effective minimum, a time without a leader, a clock going back, lost transitions: as computed by hand."""
    row = histories.row("s10", history)

    assert _ms(row) == expected
    assert row.coverage == pytest.approx(coverage, rel=1e-12)


def test_kafkas_gauge_does_not_see_a_partition_without_a_leader(histories: Any) -> None:
    """Under-replicated for 60 s, of which 40 s were reported by a leader."""
    assert histories.row("s10", "unclean").under_replicated_led_us == 40_000 * MS


def test_a_topic_made_again_is_another_key(histories: Any) -> None:
    """The deleted topic is not known after its deletion, its successor not before its creation; both have the name."""
    old, new = histories.rows("s10", "recreated")

    assert (old.topic, new.topic) == ("t", "t")
    assert (_ms(old), old.coverage) == ((10_000, 10_000, 0, 0, 10_000), 20 / 60)
    assert (_ms(new), new.coverage) == ((20_000, 10_000, 0, 0, 10_000), 30 / 60)


def test_an_unknown_start_is_not_a_state(histories: Any) -> None:
    """Before the first snapshot nothing is known, even if a change of the ISR was seen; without any it is null."""
    first, second, third = histories.rows("s10", "unknown_start")

    assert _ms(first) == (10_000, 30_000, 0, 0, 30_000)
    assert _ms(second) == (0, 10_000, 0, 0, 10_000)
    assert third.under_min_us is None


def test_steps_add_up_to_the_whole(histories: Any) -> None:
    """The sum over the steps of a window is the value of the window."""
    whole = histories.row("s10", "w1_clipping")
    steps = histories.rows("s10", "w1_clipping", step_ms=7_000)

    assert len(steps) == 9
    for name in ("full_us", "under_replicated_us", "at_min_us", "under_min_us", "leaderless_us", "above_min_us"):
        assert sum(step[name] for step in steps) == whole[name]


# S12: time to rejoin.


def _by_replica(rows: list[Any]) -> dict[int, Any]:
    return {row.replica_id: row for row in rows}


def test_w1_a_stay_that_the_window_cuts_is_censored(histories: Any) -> None:
    """Replica 2 is back after 15 s; replica 3 is not back at 60 s: at least 50 s, and in no percentile."""
    rows = _by_replica(histories.rows("s12", "w1_clipping"))

    assert (rows[2].rejoins, rows[2].censored, rows[2].p50_us) == (1, 0, 15_000 * MS)
    assert (rows[3].rejoins, rows[3].censored, rows[3].p50_us) == (0, 1, None)
    assert (rows[3].max_censored_us, rows[3].out_us) == (50_000 * MS, 50_000 * MS)


@pytest.mark.parametrize(("end_ms", "rejoins"), [(70_000, 0), (80_000, 1)])
def test_w1_a_return_at_the_end_of_the_window_is_out(histories: Any, end_ms: int, rejoins: int) -> None:
    """The return at 70 s belongs to a window that continues after it."""
    row = _by_replica(histories.rows("s12", "w1_clipping", end_ms=end_ms))[3]

    assert (row.rejoins, row.censored) == (rejoins, 1 - rejoins)
    assert row.max_us == (60_000 * MS if rejoins else None)
    assert row.out_us == 60_000 * MS


def test_w2_a_stay_outlives_a_change_of_leader(histories: Any) -> None:
    """40 s, 120 s, and 200 s censored; not 30 s, which counting a leader change would give for the first."""
    (row,) = histories.rows("s12", "w2_rejoin", end_ms=1_200_000)

    assert (row.replica_id, row.rejoins, row.censored) == (3, 2, 1)
    assert (row.p50_us, row.p95_us, row.max_us) == (40_000 * MS, 120_000 * MS, 120_000 * MS)
    assert (row.out_us, row.max_censored_us) == (360_000 * MS, 200_000 * MS)


def test_a_return_that_was_read_counts_whatever_was_lost_behind_it(histories: Any) -> None:
    """A stay of 10 s ends with its return, and one whose removal was lost is censored; so is one with an unseen end."""
    lost_behind, lost_before = (histories.rows("s12", "return_before_hole", end_ms=120_000)[n] for n in (0, 1))

    assert (lost_behind.rejoins, lost_behind.censored, lost_behind.max_us) == (1, 1, 10_000 * MS)
    assert (lost_behind.out_us, lost_behind.max_censored_us) == (40_000 * MS, 30_000 * MS)
    assert (lost_before.rejoins, lost_before.censored, lost_before.out_us) == (0, 1, 5_000 * MS)


def test_the_phases_of_a_stay_add_up(histories: Any) -> None:
    """Down until the last unfencing, catching up until the proposal after it, waiting until the commit."""
    rows = _by_replica(histories.rows("s12", "rejoin_phases"))

    assert (rows[3].rejoins, rows[3].p50_us, rows[3].max_us) == (2, 5_010 * MS, 22_029 * MS)
    assert (rows[3].down_us, rows[3].catch_up_us, rows[3].admission_us) == (18_999 * MS, 7_000 * MS, 1_040 * MS)
    assert (rows[2].down_us, rows[2].catch_up_us, rows[2].admission_us) == (0, 5_000 * MS, 20 * MS)


def test_a_replica_placed_elsewhere_does_not_rejoin(histories: Any) -> None:
    """Its stay ends as reassigned; the newcomer's first entry is not a rejoin, because it never left."""
    rows = _by_replica(histories.rows("s12", "reassignment"))

    assert (rows[3].rejoins, rows[3].reassigned, rows[3].censored, rows[3].out_us) == (0, 1, 0, 10_000 * MS)
    assert (rows[4].rejoins, rows[4].reassigned, rows[4].censored, rows[4].out_us) == (0, 0, 1, 10_000 * MS)


# S13: detection delay.


def test_delays_are_measured_from_the_last_caught_up_time(histories: Any) -> None:
    """12, 16 and 6 s, one unknown; 16 s is above 1.5 times the 10 s of its leader, 6 s exactly 1.5 times 4 s."""
    (row,) = histories.rows("s13", "causes")

    assert (row.removed_by, row.removals, row.unknown) == ("leader", 4, 1)
    assert (row.min_us, row.p50_us, row.p95_us, row.max_us) == (6_000 * MS, 12_000 * MS, 16_000 * MS, 16_000 * MS)
    assert (row.below_limit, row.above_expected, row.n_negative) == (0, 1, 0)


def test_removals_by_the_controller_are_distinguished(histories: Any) -> None:
    """The progress of the removed replicas was not reported: counted as unknown, without a delay."""
    (row,) = histories.rows("s13", "failover")

    assert (row.removed_by, row.removals, row.unknown, row.p50_us) == ("controller", 2, 2, None)


# S14: proposals for an ISR.


def test_every_proposal_ends_in_one_way(histories: Any) -> None:
    """Committed, rejected, given up, abandoned with the term, or open at the end of the window."""
    row = histories.row("s14", "alter_partition")

    assert row.proposals == 6
    assert (row.committed, row.refused, row.timeout, row.abandoned, row.open) == (2, 1, 1, 1, 1)
    assert row.refused_by_code == {95: 1}


def test_only_answers_have_a_latency(histories: Any) -> None:
    """10, 30 and 100 ms; giving up after 2 s is no answer, and 5 s was the longest wait for one that never came."""
    row = histories.row("s14", "alter_partition")

    assert (row.p50_us, row.p95_us, row.max_us) == (30 * MS, 100 * MS, 100 * MS)
    assert row.max_stuck_us == 5_000 * MS


def test_no_proposals_are_0_proposals(histories: Any) -> None:
    """Where the state was known and there was no proposal, the count is 0."""
    row = histories.row("s14", "w1_clipping")

    assert (row.proposals, row.open, row.p50_us) == (0, 0, None)


# S15: flaps.


def test_w2_flaps_once(histories: Any) -> None:
    """The removal at 80 s is 30 s after the return; the one at 1,000 s is 800 s after it and begins a new session."""
    (row,) = histories.rows("s15", "w2_rejoin", end_ms=1_200_000)

    assert (row.replica_id, row.removals, row.flaps, row.sessions, row.flapping_sessions) == (3, 3, 1, 2, 1)


def test_what_came_before_the_window_is_looked_at_and_not_counted(histories: Any) -> None:
    """Ten minutes are within ten minutes, and a session that began before the window flaps in it."""
    second, third = histories.rows("s15", "flapping", end_ms=1_200_000)

    assert (second.replica_id, second.removals, second.flaps, second.sessions, second.flapping_sessions) == (
        2,
        1,
        0,
        1,
        0,
    )
    assert (third.replica_id, third.removals, third.flaps, third.sessions, third.flapping_sessions) == (3, 2, 2, 2, 1)
