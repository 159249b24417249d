"""The statistics of lag on worked histories: S1 to S5, S18 and S20."""

from __future__ import annotations

from typing import Any

import pytest


def test_each_value_weighs_as_long_as_it_held(histories: Any) -> None:
    """Mean, percentiles and maximum are over time, and time without a sample is unknown, not 0."""
    row = histories.row("s01", "lag")

    assert row.mean_records == pytest.approx(700 / 45, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.p99_records, row.max_records) == (10, 40, 40, 40)
    assert row.coverage == 0.75
    assert row.n_negative == 0


def test_a_deposed_leader_is_not_believed(histories: Any) -> None:
    """A sample ends with its term, a zombie's samples are counted without effect, the gap at the change is unknown."""
    row = histories.row("s01", "zombies")

    assert row.mean_records == pytest.approx(110 / 59, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.max_records) == (2, 5, 5)
    assert row.coverage == pytest.approx(59 / 60, rel=1e-12)
    assert row.n_zombie == 1


def test_without_a_look_nothing_is_said(histories: Any) -> None:
    """Without data the value is null, not a lag of 0."""
    row = histories.row("s01", "w1_clipping")

    assert (row.mean_records, row.max_records, row.n_negative, row.coverage) == (None, None, None, 0.0)


def test_one_leader_is_believed_at_a_time(histories: Any) -> None:
    """The first event of a later leader ends the samples of an earlier one, also if the change was not exported."""
    lost, restarted = histories.rows("s01", "lost_change")

    assert (lost.coverage, restarted.coverage) == (pytest.approx(59 / 60, rel=1e-12), 1.0)
    assert (lost.mean_records, restarted.mean_records) == (pytest.approx(235 / 59, rel=1e-12), 4.0)
    assert (lost.max_records, lost.n_zombie) == (5, 1)


# S2: lag of each replica.


def _by_replica(rows: list[Any]) -> dict[tuple[int, str], Any]:
    return {(row.replica_id, row.expected_state): row for row in rows}


def test_each_replica_has_its_own_lag(histories: Any) -> None:
    """The lag is the leader's log end minus the replica's, and the leader is not a replica of its own."""
    rows = _by_replica(histories.rows("s02", "lag"))

    assert set(rows) == {(2, "member"), (3, "member")}
    assert rows[2, "member"].mean_records == pytest.approx(700 / 45, rel=1e-12)
    assert rows[3, "member"].mean_records == pytest.approx(500 / 45, rel=1e-12)
    assert (rows[3, "member"].p50_records, rows[3, "member"].max_records) == (5, 30)


def test_who_is_down_is_a_row_of_its_own(histories: Any) -> None:
    """A replica is distinguished by its expected role, and time in which its position was unknown is not counted."""
    rows = _by_replica(histories.rows("s02", "alone"))

    assert {key: (row.max_records, row.coverage) for key, row in rows.items()} == {
        (2, "catching_up"): (40, 10 / 60),
        (2, "member"): (35, 30 / 60),
        (3, "down"): (80, 50 / 60),
    }


# S3: age of the oldest uncommitted record.


MS = 1_000


def test_the_age_rises_until_the_record_is_committed(histories: Any) -> None:
    """The mean is the integral of a slope, idle time counts as 0, and the maximum is reached at the end of a hold."""
    row = histories.row("s03", "lag")

    assert row.mean_us == pytest.approx(172.5e6 / 45, rel=1e-12)
    assert row.max_us == 15_000 * MS
    assert row.waiting_us == 25_000 * MS
    assert row.estimated_us == 15_000 * MS
    assert row.n_negative == 0


def test_an_idle_partition_has_no_lag(histories: Any) -> None:
    """Without uncommitted records the age is 0, not undefined: 31 of 35 s were idle."""
    row = histories.row("s03", "coalesced")

    # Samples from 1,000 to 4,080 and from there to 5,000 have uncommitted records, both without an append time.
    assert row.waiting_us == row.estimated_us == (3_080 + 920) * MS
    assert row.max_us == 3_080 * MS
    assert row.coverage == pytest.approx(35 / 60, rel=1e-12)


# S4: bytes above the HW.


def test_exposure_is_bytes_times_time(histories: Any) -> None:
    """1,000 bytes for 10 s and 4,000 for 15 s are 70,000 byte-seconds."""
    row = histories.row("s04", "lag")

    assert row.byte_seconds == 70_000.0
    assert row.mean_bytes == pytest.approx(70_000 / 45, rel=1e-12)
    assert row.max_bytes == 4_000


def test_looks_without_byte_counters_cover_nothing(histories: Any) -> None:
    """Where the bytes are not known the exposure is null, not 0."""
    row = histories.row("s04", "zombies")

    assert (row.byte_seconds, row.mean_bytes, row.max_bytes, row.coverage) == (None, None, None, 0.0)


# S5: acknowledged, not committed.


def test_only_what_was_promised_above_the_hw_counts(histories: Any) -> None:
    """4 records for 10 s; an acknowledged offset below the HW is not a negative risk."""
    row = histories.row("s05", "lag")

    assert row.mean_records == pytest.approx(40 / 45, rel=1e-12)
    assert (row.p50_records, row.p95_records, row.max_records) == (0, 4, 4)
    assert row.at_risk_us == 10_000 * MS


def test_a_look_that_does_not_say_is_unknown(histories: Any) -> None:
    """Without an acknowledged offset the risk is unknown."""
    row = histories.row("s05", "zombies")

    assert (row.max_records, row.at_risk_us, row.coverage) == (None, None, 0.0)


# S18: stalls of the HW.


def test_a_slow_follower_blocks(histories: Any) -> None:
    """3 s up to the first of the joined advances, blocked by the replica that was at the HW until the end."""
    row = histories.row("s18", "coalesced")

    assert (row.episodes, row.total_us, row.longest_us) == (1, 3_000 * MS, 3_000 * MS)
    assert row.blockers == {3: 1}
    assert (row.under_min_episodes, row.ended_by_epoch, row.censored) == (0, 0, 0)


def test_the_leaders_own_disk_blocks_and_the_window_cuts(histories: Any) -> None:
    """2,500 ms by the leader itself; 10 s of a stall that continues after the window."""
    row = histories.row("s18", "slow_disk")

    assert (row.episodes, row.total_us, row.longest_us, row.censored) == (2, 12_500 * MS, 10_000 * MS, 1)
    assert row.blockers == {1: 1, 2: 1}


def test_below_the_minimum_nobody_blocks(histories: Any) -> None:
    """The HW may not move: the stall has another cause than a slow member, and ends with the epoch."""
    row = histories.row("s18", "under_min_stall")

    assert (row.episodes, row.total_us, row.under_min_episodes, row.ended_by_epoch) == (1, 14_500 * MS, 1, 1)
    assert row.blockers is None


def test_known_and_calm_is_0(histories: Any) -> None:
    """Samples without a stall count as 0 stalls; without samples the value is null."""
    assert histories.row("s18", "w1_clipping").episodes is None
    assert histories.row("s18", "w1_clipping").coverage == 0.0


# S20: HW propagation.


def _reported(rows: list[Any]) -> dict[int, tuple[Any, ...]]:
    return {row.replica_id: (row.observations, row.p50_us, row.max_us, row.behind_max_records) for row in rows}


def test_each_new_hw_is_measured_once(histories: Any) -> None:
    """A new HW is measured from the leader's first HW of at least this value to the follower's first sample of it."""
    rows = histories.rows("s20", "coalesced")

    assert _reported(rows) == {2: (2, 120 * MS, 200 * MS, 0), 3: (2, 220 * MS, 700 * MS, 15)}
    assert rows[1].behind_mean_records == 7.5


def test_nobody_is_less_than_nothing_behind(histories: Any) -> None:
    """A follower above every reported HW of its leader is counted, and its delay is not known."""
    rows = histories.rows("s20", "skewed")

    assert {row.replica_id: (row.behind_max_records, row.behind_mean_records, row.n_ahead) for row in rows} == {
        2: (0, 0.0, 0),
        3: (None, None, 1),
        4: (10, 10.0, 0),
    }


def test_two_clocks_are_brought_together_and_never_clamped(histories: Any) -> None:
    """A measured clock is corrected, an unmeasured one may give less than 0, which is flagged."""
    rows = histories.rows("s20", "skewed")

    assert {row.replica_id: (row.p50_us, row.n_negative, row.clock_err_us) for row in rows} == {
        2: (100 * MS, 0, 1_500),
        3: (-10 * MS, 1, None),
        4: (2_000 * MS, 0, None),
    }
