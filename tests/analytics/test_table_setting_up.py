"""What a session is asked while tables are made fit for rows, and what its refusals mean."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from strandline_analytics.stats.definition import Value
from strandline_analytics.tables.formats import ResultFormat
from strandline_analytics.tables.hours import see_again
from strandline_analytics.tables.runtimes import NoRuntime
from strandline_analytics.tables.statements import OtherFiles, OtherFormat, provider_of, set_up

TABLES = {"t": ("lags", [Value("cluster_id", "string", "", "the cluster's name")])}


class Session:
    """A session with one table, or one that refuses statements, or one to look at tables, as Spark would."""

    def __init__(
        self, *, statements: str | None = None, tables: str | None = None, provider: str | None = None
    ) -> None:
        self.asked: list[str] = []
        self._provider = provider
        self.catalog = SimpleNamespace(tableExists=lambda name: provider is not None)
        self._refused, self._without = statements, tables

    def sql(self, statement: str) -> Any:
        """A statement, recorded; descriptions have lines of their own."""
        if self._refused is not None:
            raise AnalysisException(self._refused)
        if statement.startswith("DESCRIBE"):
            said = [("Provider", "string"), ("# Detailed Table Information", ""), ("Provider", self._provider)]
            rows = [{"col_name": name, "data_type": kind} for name, kind in said]
            return type("Frame", (), {"collect": lambda _: rows})()
        self.asked.append(statement.split("(")[0].strip())
        return None

    def table(self, name: str) -> Any:
        """A table with one column."""
        if self._without is not None:
            raise AnalysisException(self._without)
        schema = StructType([StructField("cluster_id", StringType())])
        return type("Frame", (), {"schema": schema, "name": name})


def made(session: Any, namespace: str | None = "`lake`.`ops`") -> list[str]:
    """What a session is asked for one table."""
    set_up(session, ResultFormat.DELTA, namespace, TABLES)
    asked: list[str] = session.asked
    return asked


def test_a_namespace_is_made_before_its_tables_and_none_for_places() -> None:
    """A table that has its columns needs no further statement."""
    assert made(Session()) == ["CREATE NAMESPACE IF NOT EXISTS `lake`.`ops`", "CREATE TABLE IF NOT EXISTS t"]
    assert made(Session(), None) == ["CREATE TABLE IF NOT EXISTS t"]


@pytest.mark.parametrize("said", ["[CATALOG_NOT_FOUND] lake", "[DATA_SOURCE_NOT_FOUND] Failed to find: delta."])
def test_a_session_without_a_runtime_or_catalog_is_refused_by_name(said: str) -> None:
    """The line has Spark's own first line and pairs that work; another refusal of Spark stays as it is."""
    with pytest.raises(NoRuntime) as refused:
        made(Session(statements=f"{said}\nJVM stacktrace"))
    assert said in str(refused.value)
    assert "these pairs work: iceberg" in str(refused.value)
    assert "stacktrace" not in str(refused.value)

    with pytest.raises(AnalysisException, match="PARSE_SYNTAX_ERROR"):
        made(Session(statements="[PARSE_SYNTAX_ERROR]"))


def test_a_table_of_another_format_is_refused_by_name() -> None:
    """The line names the table, its provider, the wanted one and what to do, before anything of it is changed."""
    session = Session(provider="iceberg")
    with pytest.raises(OtherFormat) as refused:
        made(session)

    assert str(refused.value) == (
        "t is a table of provider iceberg, and --format delta was asked for: give another --namespace, or rename or "
        "drop that table"
    )
    assert session.asked == ["CREATE NAMESPACE IF NOT EXISTS `lake`.`ops`"]
    assert made(Session(provider="delta"))[1:] == ["CREATE TABLE IF NOT EXISTS t"]
    # A table that is named by its place has its format in its name.
    assert made(Session(provider="iceberg"), None) == ["CREATE TABLE IF NOT EXISTS t"]


def test_the_provider_of_a_table_is_what_its_catalog_says(spark: SparkSession, tmp_path: Path) -> None:
    """A column of the name Provider is not taken for it; a table that is not there has none."""
    spark.sql(f"CREATE TABLE described (Provider STRING) USING parquet LOCATION '{tmp_path}'")
    try:
        assert provider_of(spark, "`spark_catalog`.`default`.`described`") == "parquet"
    finally:
        spark.sql("DROP TABLE described")
    assert provider_of(spark, "`spark_catalog`.`default`.`described`") is None


def test_files_that_are_no_table_are_refused() -> None:
    """Delta makes no table where files lie, and the line says what to give; other failures stay as they are."""
    with pytest.raises(OtherFiles, match=r"^t has files and is no table of Delta.* give another --out or --namespace$"):
        made(Session(tables="[DELTA_TABLE_NOT_FOUND] Delta table `t` doesn't exist."))
    with pytest.raises(AnalysisException, match="OTHER"):
        made(Session(tables="[OTHER]"))


def test_a_session_is_asked_to_look_again_at_tables_that_it_keeps() -> None:
    """Iceberg's catalogs keep tables as they were; Delta reads the log of a table each time."""
    iceberg: Any = Session()
    delta: Any = Session()
    see_again(iceberg, ["a", "b"], ResultFormat.ICEBERG)
    see_again(delta, ["a", "b"], ResultFormat.DELTA)

    assert iceberg.asked == ["REFRESH TABLE a", "REFRESH TABLE b"]
    assert delta.asked == []
