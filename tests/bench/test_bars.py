"""A bar is judged by the median of the ratios of its rounds, and never by figures of different rounds."""

from __future__ import annotations

from typing import Any

from tests.bench.bars import BARS, NATS, OURS, bars_table


def rows(shape: str, ours: list[float], theirs: list[float]) -> list[dict[str, Any]]:
    """Rounds with these speeds."""
    found = []
    for party, speeds in ((OURS, ours), (NATS, theirs)):
        for number, speed in enumerate(speeds):
            figures = {"megabytes_per_s": speed, "p50_ms": 1.0, "cpu_ms_per_mb": {"leader": 1.0}}
            found.append({"round": number, "shape": shape, "party": party, "figures": figures})
    return found


def line_of(table: str, shape: str, wanted: str) -> str:
    """The line of the bar against NATS."""
    return next(line for line in table.splitlines() if shape in line and NATS in line and wanted in line)


def test_the_median_of_the_ratios_decides() -> None:
    """Two of three rounds at or above the bar meet it, whatever the sums of all rounds are."""
    table = bars_table(rows("64 KiB, window 5", [50, 60, 10], [50, 50, 100]))

    assert line_of(table, "64 KiB, window 5", "at least 1 ").endswith("| 1.00 | 0.10-1.20 | met |")


def test_a_missed_bar_says_so() -> None:
    """A ratio below the bar is printed as missed, with what was obtained."""
    table = bars_table(rows("256 KiB, window 5", [110, 110], [100, 100]))

    assert line_of(table, "256 KiB, window 5", "at least 1.2").endswith("| 1.10 | 1.10-1.10 | **missed** |")


def test_a_peer_that_was_not_there_is_no_success() -> None:
    """Bars against a peer without figures are listed as not measured."""
    table = bars_table([])

    assert table.count("| not measured |") == len(BARS)
