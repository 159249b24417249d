"""How a query is carried out by the size of its input, and that nobody else's settings change for it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline_analytics.session import (
    MIDDLE,
    MIDDLE_BYTES,
    SMALL,
    SMALL_BYTES,
    carried_out_in,
    session_for,
)


def settings(spark: SparkSession) -> dict[str, str | None]:
    """The settings that a size may decide about."""
    return {name: spark.conf.get(name) for name in SMALL | MIDDLE}


@pytest.mark.parametrize(("size_bytes", "decided"), [(SMALL_BYTES, SMALL), (SMALL_BYTES + 1, MIDDLE)])
def test_a_size_has_its_settings_and_changes_no_others(
    spark: SparkSession, size_bytes: int, decided: dict[str, str]
) -> None:
    """Little input and a day's have the settings written down for them; the session that was given keeps its own."""
    before = settings(spark)

    fitted = session_for(spark, size_bytes)

    assert {name: fitted.conf.get(name) for name in decided} == decided
    assert settings(spark) == before
    assert session_for(spark, size_bytes) is fitted


def test_large_input_is_read_with_whatever_was_set(spark: SparkSession) -> None:
    """Above the sizes that are known the session is the one that was given."""
    assert session_for(spark, MIDDLE_BYTES + 1) is spark


def test_a_query_is_planned_with_the_settings_of_its_session(spark: SparkSession) -> None:
    """A query of one session, carried out in another, has that one's number of parts, and the same rows."""
    spark = session_for(spark, SMALL_BYTES + 1)
    small = session_for(spark, SMALL_BYTES)
    query = spark.range(0, 100, 1, 4).groupBy((F.col("id") % 7).alias("rest")).count()

    there = carried_out_in(small, query)

    assert (query.rdd.getNumPartitions(), there.rdd.getNumPartitions()) == (8, 1)
    assert sorted(there.collect()) == sorted(query.collect())
    assert there.sparkSession is small
