"""A measurement that the host disturbed is repeated once, then dropped by name; a slow one is kept."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.plan import SMOKE, Plan
from tests.bench.steady import BELIEVABLE_STEAL_PERCENT, Steady


def measuring(*steal_percents: float) -> Callable[[], dict[str, float]]:
    """Measurements during which the host took so much, one after the other."""
    left = list(steal_percents)
    return lambda: {"steal_percent": left.pop(0)}


def test_a_quiet_measurement_is_taken_as_it_is() -> None:
    """Steal time at the limit is believed, and nothing is measured twice."""
    steady = Steady()

    assert steady.measured("one", measuring(BELIEVABLE_STEAL_PERCENT)) == {"steal_percent": BELIEVABLE_STEAL_PERCENT}
    assert (steady.repeated, steady.dropped) == (0, [])


def test_a_disturbed_measurement_is_repeated_once() -> None:
    """The repetition counts instead."""
    steady = Steady()

    assert steady.measured("one", measuring(3.1, 0.5)) == {"steal_percent": 0.5}
    assert (steady.repeated, steady.dropped) == (1, [])


def test_a_measurement_that_is_disturbed_twice_is_dropped() -> None:
    """There is no third try, and its name is kept."""
    steady = Steady()

    assert steady.measured("round 3, NATS", measuring(4.0, 9.0, 0.0)) is None
    assert (steady.repeated, steady.dropped) == (1, ["round 3, NATS"])


def test_only_a_smoke_run_keeps_what_a_busy_host_disturbed() -> None:
    """Its figures are judged by nothing, so a measure must not disappear because of steal time."""
    assert Steady(SMOKE.believable_steal_percent).measured("one", measuring(90.0)) == {"steal_percent": 90.0}
    assert Steady(Plan().believable_steal_percent).measured("one", measuring(90.0, 90.0)) is None
