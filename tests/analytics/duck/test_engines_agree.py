"""Spark and DuckDB compute the same statistics from the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from day.shape import HOUR, Shape
from day.written import write_day
from oracle import Oracle, differences
from pyspark.sql import SparkSession
from random_groups import random_groups
from random_transactions import random_transactions
from scanned import datasets
from written_export import write_export

from strandline.export.encoding import ExportFormat
from strandline.export.schema import COLUMNS
from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_sim.runs.exporting import ExportingTrace
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.world.world import World

# Times of a simulation begin in 1970, so the generated day does as well: one query runs over both.
SHAPE = Shape(events=12_000, partitions=12, hours=2, nodes=6, start_us=0)
SCOPE = Scope(start_us=0, end_us=SHAPE.end, step_us=HOUR)
SEED = 7
GROUP_SEEDS = range(4)
TRANSACTION_SEEDS = range(3)
_BLANK = dict.fromkeys(column.name for column in COLUMNS)

# The first query waits for the JVM to start and to warm up, which takes minutes on a loaded two-core machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated day, with its flaws, a simulated run of real cores, clusters with groups and with transactions."""
    folder = tmp_path_factory.mktemp("exports")
    write_day(SHAPE, folder, compacted=False)
    trace = ExportingTrace(folder, ExportFormat.PARQUET)
    world = World(draw_shape(SEED, PROFILES["swarm"]), recorder=trace)
    trace.watch(world)
    run_world(world)
    trace.close()
    for seed in GROUP_SEEDS:
        for rows in random_groups(seed, f"groups-{seed}"):
            write_export(folder, [_BLANK | row for row in rows])
    for seed in TRANSACTION_SEEDS:
        for rows in random_transactions(seed, f"transactions-{seed}"):
            write_export(folder, [_BLANK | row for row in rows])
    return folder


@pytest.fixture(scope="module")
def oracle(root: Path) -> Iterator[Oracle]:
    """The folder in DuckDB."""
    found = Oracle(root, SCOPE)
    found.make_tables()
    yield found
    found.close()


@pytest.fixture(scope="module")
def tables(spark: SparkSession, root: Path) -> Iterator[Silver]:
    """The folder in Spark."""
    found = open_exports(spark, [str(root)])
    yield found
    found.release()


@pytest.mark.parametrize("name", ALL)
def test_both_engines_give_the_same_rows(name: str, tables: Silver, oracle: Oracle) -> None:
    """Integers exactly, fractions to nine digits, for every group and hour."""
    rows = [row.asDict(recursive=True) for row in result(ALL[name], tables, SCOPE).collect()]

    assert rows
    assert differences(ALL[name], SCOPE, rows, oracle.rows(ALL[name])) == []


def test_the_simulated_cluster_is_among_them(oracle: Oracle) -> None:
    """The results contain every cluster, so that an input that is not read is detected."""
    clusters = {row["cluster_id"] for row in oracle.rows(ALL["s08"])}

    assert len(clusters) == 2 + len(GROUP_SEEDS) + len(TRANSACTION_SEEDS)


@pytest.mark.parametrize(
    ("name", "column"),
    [("s21", "ahead_us"), ("s22", "estimated_us"), ("s22", "at_least_us"), ("s23", "rebalances"), ("s23", "unfinished"),
     ("s24", "episodes"), ("s25", "refused"), ("s25", "unowned")],
)  # fmt: skip
def test_everything_about_groups_occurs(name: str, column: str, oracle: Oracle) -> None:
    """What the random histories are for is in them, or two engines would agree about nothing."""
    assert any(row[column] for row in oracle.rows(ALL[name]))


@pytest.mark.parametrize(
    ("name", "column"),
    [("s26", "committed"), ("s26", "aborted"), ("s26", "undecided"), ("s26", "longest_us"), ("s27", "committed"),
     ("s27", "aborted_by_producer"), ("s27", "timed_out"), ("s27", "fenced"), ("s27", "refused_markers")],
)  # fmt: skip
def test_everything_about_transactions_occurs(name: str, column: str, oracle: Oracle) -> None:
    """As for groups."""
    assert any(row[column] for row in oracle.rows(ALL[name]))


@pytest.fixture(scope="module")
def planned(spark: SparkSession, root: Path) -> Iterator[Silver]:
    """The folder in Spark as larger ones are: what is kept as rows has no plan that could be looked at."""
    with pytest.MonkeyPatch.context() as changed:
        for name in ("silver.kept.is_kept_as_rows", "sources.exports.tables_are_rows"):
            changed.setattr(f"strandline_analytics.{name}", lambda _: False)
        found = open_exports(spark, [str(root)])
        yield found
        found.release()


@pytest.mark.parametrize("name", ALL)
def test_only_statistics_of_samples_read_samples(name: str, planned: Silver) -> None:
    """The files that a plan would scan, without caches."""
    read = datasets(result(ALL[name], planned, SCOPE))

    assert read == ({"transitions", "samples"} if ALL[name].reads_samples else {"transitions"})
