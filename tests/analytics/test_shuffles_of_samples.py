"""What a query of much input shuffles: sums of samples, and not again the rows that lie by partition already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from conftest import silver_of
from executed_plan import KEPT, SHUFFLE, paths
from pyspark.sql import SparkSession
from worked_histories import HISTORIES, history_rows

from strandline_analytics.scope import Scope
from strandline_analytics.session import MIDDLE_BYTES, carried_out_in, session_for
from strandline_analytics.silver.kept import PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result
from strandline_analytics.stats.s18_stalls import heights

SCOPE = Scope(start_us=0, end_us=60_000_000)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[Silver]:
    """Silver tables whose queries are planned as for more than a GiB of files.

    They are made in a session of that size: one for little input drops the hints to broadcast.
    """
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("strandline_analytics.session._FITTED", {})
        alone, both = (session_for(spark.newSession(), size) for size in (MIDDLE_BYTES, MIDDLE_BYTES + 1))
    found = silver_of(both, history_rows((HISTORIES / "lag.jsonl").read_text(encoding="utf-8")))
    yield replace(found, fit=lambda query, samples: carried_out_in(both if samples else alone, query))
    assert found.samples is not None
    found.samples.unpersist()
    found.release()


@pytest.mark.parametrize("name", ["s01", "s02", "s03", "s06"])
def test_looks_are_added_up_where_they_lie(name: str, tables: Silver) -> None:
    """Between looks and a result there is one shuffle, of the finished figures, which are joined with their windows."""
    shuffles = [path.count(SHUFFLE) for path in paths(result(ALL[name], tables, SCOPE))]

    assert max(shuffles) == 1


def test_the_age_of_records_reads_looks_once(tables: Silver) -> None:
    """S3 reads three kept tables: looks, the windows of its result, and the names of partitions."""
    leaves = [path[-1] for path in paths(result(ALL["s03"], tables, SCOPE))]

    assert leaves == [KEPT] * 3


def test_looks_and_advances_meet_where_they_lie(tables: Silver) -> None:
    """What S18 groups by height of the HW is looks and advances, and neither is shuffled for it."""
    grouped = heights(tables).groupBy(PLACE, "leader_epoch", "incarnation", "hw").count()

    query = tables.fit(grouped, True)

    assert [path.count(SHUFFLE) for path in paths(query)] == [0, 0]


def test_advances_are_not_shuffled_for_followers(tables: Silver) -> None:
    """S20 shuffles what followers saw, but of advances only the finished figures, to join them with windows."""
    united = [path for path in paths(result(ALL["s20"], tables, SCOPE)) if "Union" in path]

    assert min(path.count(SHUFFLE) for path in united) == 1
