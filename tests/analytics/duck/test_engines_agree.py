"""Spark and DuckDB compute the same statistics, from written files and from the worked histories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from day.shape import HOUR, Shape
from day.written import write_day
from oracle import Oracle, differences
from pyspark.sql import SparkSession
from random_groups import random_groups
from random_moves import random_moves
from random_transactions import random_transactions
from scanned import datasets, noted_rows
from variants import LATER_US, VARIANTS
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.encoding import ExportFormat
from strandline.export.schema import COLUMNS
from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_sim.runs.run import run_world
from strandline_sim.runs.shape import PROFILES, draw_shape
from strandline_sim.runs.trace import ExportingTrace
from strandline_sim.world.world import World

# The first query waits for the JVM to start and to warm up, which takes minutes on a loaded two-core machine.
pytestmark = pytest.mark.timeout(600)


# Times of a simulation begin in 1970, so the generated day does as well: one query runs over both.
SHAPE = Shape(events=12_000, partitions=12, hours=2, nodes=6, start_us=0)
SCOPE = Scope(start_us=0, end_us=SHAPE.end, step_us=HOUR)
SEED = 7
DRAWN = {random_groups: range(4), random_transactions: range(3), random_moves: range(4)}
SCOPE_WORKED = Scope(start_us=LATER_US, end_us=LATER_US + 60_000_000)
REPORTED = (
    "alone avoidable group_lag group_lineage lag lso_held moves newer_types planned rebalances refusals "
    "return_before_hole stuck two_controllers txn_ends unclean unknown_losses zombies"
).split()
"""Histories in which something is not known, and how each engine says so; one of planned and other causes;
and those of consumer groups, of transactions, of moves and of the audit."""
_BLANK = dict.fromkeys(column.name for column in COLUMNS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated day, with its flaws, a simulated run of real cores, clusters with groups, transactions and moves."""
    folder = tmp_path_factory.mktemp("exports")
    write_day(SHAPE, folder, compacted=False)
    trace = ExportingTrace(folder, ExportFormat.PARQUET)
    world = World(draw_shape(SEED, PROFILES["swarm"]), recorder=trace)
    trace.watch(world)
    run_world(world)
    trace.close()
    for make, seeds in DRAWN.items():
        for seed in seeds:
            for rows in make(seed, f"{make.__name__}-{seed}"):
                write_export(folder, [_BLANK | row for row in rows])
    return folder


@contextmanager
def _read(spark: SparkSession, folder: Path, scope: Scope) -> Iterator[tuple[Silver, Oracle]]:
    """A folder in Spark, and in DuckDB."""
    oracle = Oracle(folder, scope)
    oracle.make_tables()
    tables = open_exports(spark, [str(folder)])
    yield tables, oracle
    tables.release()
    oracle.close()


@pytest.fixture(scope="module")
def drawn(spark: SparkSession, root: Path) -> Iterator[tuple[Silver, Oracle]]:
    """What was drawn, in both engines."""
    with _read(spark, root, SCOPE) as both:
        yield both


@pytest.fixture(scope="module")
def worked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Silver, Oracle]]:
    """The histories as exports of clusters of their names, an hour later, because files have no hours before 1970."""
    folder = tmp_path_factory.mktemp("worked")
    for name in REPORTED:
        reported = history_rows((HISTORIES / f"{name}.jsonl").read_text(encoding="utf-8"))
        rows = [_BLANK | row | {"cluster_id": name} for row in VARIANTS["later"](reported)]
        write_export(folder, rows, ExportFormat.PARQUET)
    with _read(spark, folder, SCOPE_WORKED) as both:
        yield both


@pytest.fixture(scope="module")
def oracle(drawn: tuple[Silver, Oracle]) -> Oracle:
    """What was drawn, in DuckDB."""
    return drawn[1]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("histories", "scope"), [("drawn", SCOPE), ("worked", SCOPE_WORKED)], ids=["drawn", "worked"])
def test_both_engines_give_the_same_rows(
    name: str, histories: str, scope: Scope, request: pytest.FixtureRequest
) -> None:
    """Integers exactly, fractions to nine digits, for every group and hour."""
    tables, oracle = request.getfixturevalue(histories)
    rows = [row.asDict(recursive=True) for row in result(ALL[name], tables, scope).collect()]

    assert rows
    assert differences(ALL[name], scope, rows, oracle.rows(ALL[name])) == []


def test_the_simulated_cluster_is_among_them(oracle: Oracle) -> None:
    """The results contain every cluster, so that an input that is not read is detected."""
    clusters = {row["cluster_id"] for row in oracle.rows(ALL["s08"])}

    assert len(clusters) == 2 + sum(map(len, DRAWN.values()))


@pytest.mark.parametrize(
    ("name", "column"),
    [("s21", "ahead_us"), ("s22", "estimated_us"), ("s22", "at_least_us"), ("s23", "rebalances"), ("s23", "unfinished"),
     ("s24", "episodes"), ("s25", "refused"), ("s25", "unowned"),
     ("s26", "committed"), ("s26", "aborted"), ("s26", "undecided"), ("s26", "longest_us"), ("s27", "committed"),
     ("s27", "aborted_by_producer"), ("s27", "timed_out"), ("s27", "fenced"), ("s27", "refused_markers"),
     ("s28", "completed"), ("s28", "cancelled"), ("s28", "unfinished"), ("s28", "queued_us"), ("s28", "running_us"),
     ("s28", "p50_us"), ("s28", "copied_bytes"), ("s28", "throttled_us"), ("s28", "waited_for"), ("s28", "queued_for"),
     ("s29", "principal"), ("s29", "rule"), ("s29", "refusals"), ("s29", "methods")],
)  # fmt: skip
def test_everything_about_groups_transactions_and_moves_occurs(name: str, column: str, oracle: Oracle) -> None:
    """What the random histories are for is in them, or two engines would agree about nothing."""
    assert any(row[column] for row in oracle.rows(ALL[name]))


@contextmanager
def kept_as_plans() -> Iterator[None]:
    """Tables are kept as those of larger folders are: what is kept as rows has no plan that could be looked at."""
    with pytest.MonkeyPatch.context() as changed:
        for name in ("silver.kept.is_kept_as_rows", "sources.exports.tables_are_rows"):
            changed.setattr(f"strandline_analytics.{name}", lambda _: False)
        changed.setattr("strandline_analytics.silver.kept.of_its_rows", noted_rows)
        yield


@pytest.fixture(scope="module")
def planned(spark: SparkSession, root: Path) -> Iterator[Silver]:
    """The folder in Spark, with no table made yet."""
    with kept_as_plans():
        found = open_exports(spark, [str(root)])
    yield found
    found.release()


@pytest.mark.parametrize("name", ALL)
def test_only_statistics_of_samples_read_samples(name: str, planned: Silver) -> None:
    """The files that a plan would scan, without caches."""
    # For this test alone: other sessions' tables, made meanwhile, would be of rows that were not noted.
    with kept_as_plans():
        read = datasets(result(ALL[name], planned, SCOPE))

    assert read == ({"transitions", "samples"} if ALL[name].reads_samples else {"transitions"})
