"""Spark and DuckDB compute the same statistics from the hand-written histories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oracle import Oracle, differences
from pyspark.sql import SparkSession
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

REPORTED = (
    "alone",
    "avoidable",
    "group_lag",
    "group_lineage",
    "lag",
    "lso_held",
    "newer_types",
    "planned",
    "rebalances",
    "return_before_hole",
    "stuck",
    "two_controllers",
    "txn_ends",
    "unclean",
    "unknown_losses",
    "zombies",
)
"""Histories in which something is not known, and how each engine says so; one of planned and other causes;
and those of consumer groups and of transactions."""
SCOPE = Scope(start_us=LATER_US, end_us=LATER_US + 60_000_000)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The histories as exports of clusters of their names, an hour later, because files have no hours before 1970."""
    folder = tmp_path_factory.mktemp("worked")
    blank = dict.fromkeys(column.name for column in COLUMNS)
    for name in REPORTED:
        reported = history_rows((HISTORIES / f"{name}.jsonl").read_text(encoding="utf-8"))
        write_export(
            folder, [blank | row | {"cluster_id": name} for row in VARIANTS["later"](reported)], ExportFormat.PARQUET
        )
    return folder


@pytest.fixture(scope="module")
def oracle(root: Path) -> Iterator[Oracle]:
    """The histories in DuckDB."""
    found = Oracle(root, SCOPE)
    found.make_tables()
    yield found
    found.close()


@pytest.fixture(scope="module")
def tables(spark: SparkSession, root: Path) -> Iterator[Silver]:
    """The histories in Spark."""
    found = open_exports(spark, [str(root)])
    yield found
    found.release()


def test_a_type_that_is_not_known_ends_what_is_known(oracle: Oracle) -> None:
    """Known up to the newer version's change at 30 s and again from 50 s on; a remark changes nothing."""
    (row,) = [row for row in oracle.rows(ALL["s10"]) if row["cluster_id"] == "newer_types"]

    assert row["under_replicated_us"] == 40_000_000
    assert row["coverage"] == pytest.approx(40 / 60, rel=1e-12)


def test_an_unknown_loss_is_not_zero(oracle: Oracle) -> None:
    """Partitions 0 to 4: unknown, at least 20, none for nothing came before, no epoch at all, at least 20 by a cut."""
    rows = sorted(
        (row for row in oracle.rows(ALL["s07"]) if row["cluster_id"] == "unknown_losses"),
        key=lambda row: row["partition"],
    )

    assert [row["committed_lost_records"] for row in rows] == [None, 20, 0, None, 20]
    assert [row["epochs_unknown"] for row in rows] == [1, 1, 0, 0, 2]
    assert [row["committed_cut_records"] for row in rows] == [None, 20, 0, 0, 38]
    assert [row["own_hw_unknown"] for row in rows] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("name", ALL)
def test_both_engines_give_the_same_rows(name: str, tables: Silver, oracle: Oracle) -> None:
    """Integers exactly, fractions to nine digits, for every partition of every history."""
    rows = [row.asDict(recursive=True) for row in result(ALL[name], tables, SCOPE).collect()]

    assert rows
    assert differences(ALL[name], SCOPE, rows, oracle.rows(ALL[name])) == []
