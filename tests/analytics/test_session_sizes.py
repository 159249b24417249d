"""How a query is executed by the size of its input, and that no other query's settings change for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.session import (
    HOURS,
    HOURS_BYTES,
    MIDDLE,
    MIDDLE_BYTES,
    MOST_PARTS,
    SMALL,
    SMALL_BYTES,
    carried_out_in,
    session_for,
)
from strandline_analytics.silver.kept import KEPT_AS_ROWS
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result


def settings(spark: SparkSession) -> dict[str, str | None]:
    """The settings that may depend on a size."""
    return {name: spark.conf.get(name) for name in SMALL | MIDDLE}


@pytest.mark.parametrize(
    ("size_bytes", "decided"),
    [
        (SMALL_BYTES, SMALL),
        (SMALL_BYTES + 1, HOURS),
        (HOURS_BYTES, HOURS),
        (HOURS_BYTES + 1, MIDDLE),
        (MIDDLE_BYTES, MIDDLE),
    ],
)
def test_a_size_has_its_settings_and_changes_no_others(
    spark: SparkSession, size_bytes: int, decided: dict[str, str]
) -> None:
    """Each size has the settings listed for it; the given session keeps its own."""
    before = settings(spark)

    fitted = session_for(spark, size_bytes)

    assert {name: fitted.conf.get(name) for name in decided} == decided
    assert settings(spark) == before
    assert session_for(spark, size_bytes) is fitted


def test_what_was_set_holds_for_every_size(spark: SparkSession) -> None:
    """A setting that depends on no size is that of the given session, whenever it was set."""
    name = "spark.sql.session.timeZone"
    session_for(spark, SMALL_BYTES)
    spark.conf.set(name, "+09:00")
    try:
        assert [session_for(spark, size).conf.get(name) for size in (SMALL_BYTES, MIDDLE_BYTES)] == ["+09:00"] * 2
    finally:
        spark.conf.set(name, "UTC")

    assert session_for(spark, SMALL_BYTES).conf.get(name) == "UTC"


def test_a_catalog_that_was_added_is_there_for_every_size(spark: SparkSession) -> None:
    """Tables are written by the session for a size, so it has the catalogs of the given one, whenever they were set."""
    settings_of_it = ("spark.sql.catalog.lake", "spark.sql.catalog.lake.type")
    for setting in settings_of_it:
        spark.conf.set(setting, "hadoop")
    try:
        fitted = session_for(spark, SMALL_BYTES)
        assert [fitted.conf.get(setting) for setting in settings_of_it] == ["hadoop", "hadoop"]
    finally:
        for one in (spark, session_for(spark, SMALL_BYTES)):
            for setting in settings_of_it:
                one.conf.unset(setting)


@pytest.mark.parametrize(
    ("size_bytes", "parts"),
    [(MIDDLE_BYTES + 1, 16), (100 << 30, 1_024), (1 << 40, MOST_PARTS), (1 << 50, MOST_PARTS)],
)
def test_large_input_has_parts_by_its_bytes(spark: SparkSession, size_bytes: int, parts: int) -> None:
    """A shuffle partition has about `PART_BYTES`, up to the maximum number, and an explicit setting is kept."""
    before = settings(spark)

    assert session_for(spark, size_bytes).conf.get("spark.sql.shuffle.partitions") == str(parts)
    assert settings(spark) == before


def test_what_others_had_set_holds_for_every_size(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session that was prepared elsewhere, a size changes only what was not set there."""
    theirs = {"spark.sql.shuffle.partitions": "200", "spark.sql.adaptive.enabled": "false"}
    prepared = spark.newSession()
    monkeypatch.setattr("strandline_analytics.session._GIVEN", {})
    monkeypatch.setattr("strandline_analytics.session._FITTED", {})
    for name, value in theirs.items():
        prepared.conf.set(name, value)

    for size in (SMALL_BYTES, HOURS_BYTES, MIDDLE_BYTES, 1 << 40):
        fitted = session_for(prepared, size)
        assert {name: fitted.conf.get(name) for name in theirs} == theirs
    assert session_for(prepared, SMALL_BYTES).conf.get("spark.sql.codegen.factoryMode") == "NO_CODEGEN"


@pytest.mark.parametrize(
    ("master", "rows"),
    [("local", "true"), ("local[2]", "true"), ("local-cluster[2,1,1024]", "false"), ("spark://h:7077", "false")],
)
def test_tables_are_kept_as_rows_in_one_process_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, master: str, rows: str
) -> None:
    """Where executors are processes of their own, a lost one must not take with it what cannot be made again."""
    prepared = spark.newSession()
    monkeypatch.setattr("strandline_analytics.session._FITTED", {})
    monkeypatch.setattr("strandline_analytics.session._GIVEN", {})
    monkeypatch.setattr("strandline_analytics.session._master", lambda _: master)

    assert session_for(prepared, SMALL_BYTES).conf.get(KEPT_AS_ROWS) == rows


def test_a_query_is_planned_with_the_settings_of_its_session(spark: SparkSession) -> None:
    """A query of one session, executed in another, has that one's number of shuffle partitions, and the same rows."""
    small, other = session_for(spark, SMALL_BYTES), spark.newSession()
    other.conf.set("spark.sql.adaptive.enabled", "false")
    other.conf.set("spark.sql.shuffle.partitions", "3")
    query = other.range(0, 100, 1, 4).groupBy((F.col("id") % 7).alias("rest")).count()

    there = carried_out_in(small, query)

    assert (query.rdd.getNumPartitions(), there.rdd.getNumPartitions()) == (3, 1)
    assert sorted(there.collect()) == sorted(query.collect())
    assert there.sparkSession is small


@pytest.mark.parametrize("name", ["s01", "s08", "s18", "s20"])
def test_a_statistic_is_carried_out_for_the_size_of_what_it_reads(spark: SparkSession, silver: Any, name: str) -> None:
    """A query that reads samples is planned for the size of samples, though its groups come from transitions."""
    alone, both = session_for(spark, SMALL_BYTES), session_for(spark, MIDDLE_BYTES)
    tables = replace(
        silver('{"t": 0, "event_type": "LEADER_CHANGE", "new_leader": 1, "leader_epoch": 0, "partition_epoch": 0}'),
        fit=lambda query, samples: carried_out_in(both if samples else alone, query),
    )

    found = result(ALL[name], tables, Scope(start_us=0, end_us=60_000_000))

    assert found.sparkSession is (both if ALL[name].reads_samples else alone)
