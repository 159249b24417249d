"""DuckDB's statistics over a generated day: all exist, and their sums are consistent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from day.groups import COORDINATING
from day.shape import HOUR, START_US, Shape
from day.written import write_day
from oracle import Oracle

from strandline_analytics.scope import Scope
from strandline_analytics.stats import ALL

SHAPE = Shape(events=6_000, partitions=8, hours=2, nodes=5)
SCOPE = Scope(start_us=START_US, end_us=START_US + SHAPE.end, step_us=HOUR)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """A small day in DuckDB."""
    folder = tmp_path_factory.mktemp("day")
    write_day(SHAPE, folder)
    found = Oracle(folder, SCOPE)
    found.make_tables()
    yield found
    found.close()


@pytest.mark.parametrize("name", ALL)
def test_every_statistic_has_a_row_for_every_group_and_window(name: str, oracle: Oracle) -> None:
    """Whether anything happened or not, and with every column that the statistic declares."""
    rows = oracle.rows(ALL[name])

    # Beside its own topics the day has those of both kinds of coordinators.
    groups = 1 if ALL[name].only_cluster else SHAPE.partitions + 2 * COORDINATING
    assert len({tuple(list(row.values())[:6]) for row in rows if not ALL[name].only_cluster}) in (0, 2 * groups)
    assert len({row["window_start"] for row in rows}) == 2
    assert {value.name for value in ALL[name].values} <= rows[0].keys()


def test_the_states_of_the_isr_fill_what_is_known(oracle: Oracle) -> None:
    """Above, at, under and leaderless exclude each other and leave nothing out."""
    for row in oracle.rows(ALL["s10"]):
        known = row["above_min_us"] + row["at_min_us"] + row["under_min_us"] + row["leaderless_us"]
        assert row["coverage"] == pytest.approx(known / HOUR, rel=1e-12)
