"""S10: time in each state of the ISR."""

from __future__ import annotations

from typing import Any

import pytest

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
