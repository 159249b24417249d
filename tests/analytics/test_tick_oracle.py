"""Spark and a simulator that counts ticks agree on generated histories, to the last microsecond."""

from __future__ import annotations

from typing import Any

import pytest
from generated_histories import FIRST_TICK, GENERATED, WINDOW_TICKS, generated
from tick_oracle import TICK_US, Buckets, Oracle, nearest_rank


@pytest.fixture
def histories(histories_with_variants: Any) -> Any:
    """The worked histories, their variants and the generated ones."""
    return histories_with_variants


@pytest.fixture(scope="module")
def oracles() -> list[Buckets]:
    """The oracle's counts of each generated history."""
    return [Oracle(h.control, h.looks, h.starts, WINDOW_TICKS).run(FIRST_TICK) for h in generated(GENERATED)]


def _compare(histories: Any, oracles: list[Buckets], stat: str, expected: Any, reported: Any) -> None:
    """Both sides of every history at once, so that a failure shows which ones differ."""
    ours = {n: expected(buckets) for n, buckets in enumerate(oracles)}
    theirs = {n: reported(histories.rows(stat, f"generated:{n}")) for n in ours}
    assert theirs == ours


def _shares(values: list[int]) -> tuple[Any, ...]:
    """Sum, percentiles, maximum and covered ticks of values by tick."""
    return (
        sum(values) if values else None,
        *(nearest_rank(values, p) for p in (50, 95, 99)),
        max(values, default=None),
        len(values),
    )


def _weighted(row: Any) -> tuple[Any, ...]:
    ticks = round(row.coverage * WINDOW_TICKS)
    total = None if row.mean_records is None else round(row.mean_records * ticks, 6)
    return (total, row.p50_records, row.p95_records, row.p99_records, row.max_records, ticks)


def test_the_histories_are_worth_comparing(oracles: list[Buckets]) -> None:
    """The histories contain rejoins, flaps, zombies, times without a leader and unknown times."""
    assert sum(len(lengths) for b in oracles for lengths in b.rejoins.values()) > 10
    assert sum(sum(b.flaps.values()) for b in oracles) > 10
    assert sum(b.zombies for b in oracles) > 3
    assert sum(b.states["leaderless"] > 0 for b in oracles) > 5
    assert sum(b.known < WINDOW_TICKS for b in oracles) > 10
    assert sum(bool(b.lags) for b in oracles) > 20


def test_s01(histories: Any, oracles: list[Buckets]) -> None:
    """The HW lag agrees: integral, percentiles, maximum, coverage, zombies."""
    _compare(histories, oracles, "s01", lambda b: [_shares(b.lags)], lambda rows: [_weighted(row) for row in rows])


def test_s02(histories: Any, oracles: list[Buckets]) -> None:
    """The lag of each replica agrees by its expected role."""
    _compare(
        histories,
        oracles,
        "s02",
        lambda b: {key: _shares(values) for key, values in b.follower_lags.items()},
        lambda rows: {
            (row.replica_id, row.expected_state): _weighted(row) for row in rows if row.replica_id is not None
        },
    )


def test_s05(histories: Any, oracles: list[Buckets]) -> None:
    """The records acknowledged above the HW agree, and for how long there were any."""
    _compare(
        histories,
        oracles,
        "s05",
        lambda b: [(*_shares(b.at_risk), sum(v > 0 for v in b.at_risk) * TICK_US if b.at_risk else None)],
        lambda rows: [(*_weighted(row), row.at_risk_us) for row in rows],
    )


def test_s08(histories: Any, oracles: list[Buckets]) -> None:
    """Shrinks, expands, removals and adds agree; null where nothing at all was known."""

    def expected(b: Buckets) -> list[int | None]:
        reported = [b.changes[name] for name in ("shrinks", "expands", "removals", "adds")]
        return [count if b.known or any(reported) else None for count in reported]

    _compare(
        histories,
        oracles,
        "s08",
        expected,
        lambda rows: [value for row in rows for value in (row.shrinks, row.expands, row.removals, row.adds)],
    )


def test_s10(histories: Any, oracles: list[Buckets]) -> None:
    """The time in each state agrees, and for how long the state was known."""
    names = ("full", "above_min", "at_min", "under_min", "leaderless")
    _compare(
        histories,
        oracles,
        "s10",
        lambda b: [b.known, *((b.states[name] * TICK_US if b.known else None) for name in names)],
        lambda rows: [
            value
            for row in rows
            for value in (round(row.coverage * WINDOW_TICKS), *(row[f"{name}_us"] for name in names))
        ],
    )


def test_s11(histories: Any, oracles: list[Buckets]) -> None:
    """The time without writes and without reads agrees, and the gaps of activations."""
    _compare(
        histories,
        oracles,
        "s11",
        lambda b: (
            (b.states["under_min"] + b.states["leaderless"]) * TICK_US if b.known else None,
            b.states["leaderless"] * TICK_US if b.known else None,
            b.activation * TICK_US if b.known else None,
        ),
        lambda rows: (rows[0].write_unavailable_us, rows[0].read_unavailable_us, rows[0].activation_gap_us),
    )


def test_s12(histories: Any, oracles: list[Buckets]) -> None:
    """Rejoins agree, censored ones, time outside, and their lengths."""

    def expected(b: Buckets) -> dict[int, tuple[Any, ...]]:
        lengths = {replica: [ticks * TICK_US for ticks in b.rejoins.get(replica, [])] for replica in b.out}
        return {
            replica: (
                len(lengths[replica]),
                b.censored[replica],
                ticks * TICK_US,
                nearest_rank(lengths[replica], 50),
                max(lengths[replica], default=None),
            )
            for replica, ticks in b.out.items()
        }

    _compare(
        histories,
        oracles,
        "s12",
        expected,
        lambda rows: {
            row.replica_id: (row.rejoins, row.censored, row.out_us, row.p50_us, row.max_us)
            for row in rows
            if row.replica_id is not None
        },
    )


def test_s15(histories: Any, oracles: list[Buckets]) -> None:
    """Removals and flaps of each replica agree."""
    _compare(
        histories,
        oracles,
        "s15",
        lambda b: {replica: (count, b.flaps[replica]) for replica, count in b.removals.items()},
        lambda rows: {row.replica_id: (row.removals, row.flaps) for row in rows if row.replica_id is not None},
    )
