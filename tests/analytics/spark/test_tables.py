"""Tables of results: the statements that make them fit for rows, names, commits and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType
from written_export import HOUR_US, Emitter, write_export

from strandline import __version__
from strandline_analytics.jobs.results import ResultEntry, result_columns
from strandline_analytics.scope import Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Value
from strandline_analytics.tables import ResultFormat
from strandline_analytics.tables.hours import TableCommit, hours_said, options_of, said_by_rows, see_again, word_of
from strandline_analytics.tables.runtimes import NoRuntime
from strandline_analytics.tables.statements import (
    OtherColumns,
    OtherFiles,
    OtherFormat,
    TableNames,
    add_columns,
    create_table,
    provider_of,
    set_up,
    state_of_hours,
    table_of,
)
from strandline_analytics.tables.writing import write_tables

COLUMNS = [
    Value("cluster_id", "string", "", "the cluster's name"),
    Value("window_start_time", "timestamp", "", "its start"),
    Value("lag", "map<int,bigint>", "records", "of each"),
]


TYPES = {column.name: column.type for column in COLUMNS}


def test_a_table_has_comments_and_the_partitions_of_its_format() -> None:
    """Units and meanings are comments, with quotes escaped; Iceberg is partitioned by what a run replaces."""
    listed = (
        "(`cluster_id` STRING COMMENT 'the cluster\\'s name', `window_start_time` TIMESTAMP COMMENT 'its start', "
        "`lag` MAP<INT,BIGINT> COMMENT 'records: of each')"
    )

    assert create_table("`c`.`n`.`t`", COLUMNS, ResultFormat.ICEBERG, "lags") == (
        f"CREATE TABLE IF NOT EXISTS `c`.`n`.`t` {listed} USING iceberg "
        "PARTITIONED BY (hours(window_start_time), cluster_id) COMMENT 'lags'"
    )
    assert create_table("t", COLUMNS, ResultFormat.DELTA, "lags") == (
        f"CREATE TABLE IF NOT EXISTS t {listed} USING delta COMMENT 'lags'"
    )


def test_a_table_of_an_earlier_version_gets_the_columns_that_are_new() -> None:
    """Columns that are there are left alone, in whatever order; a table that has them all needs no statement."""
    assert add_columns("t", COLUMNS, {"lag": TYPES["lag"], "cluster_id": "string"}) == (
        "ALTER TABLE t ADD COLUMNS (`window_start_time` TIMESTAMP COMMENT 'its start')"
    )
    assert add_columns("t", COLUMNS, TYPES | {"theirs": "int"}) is None


def test_a_column_of_another_type_is_refused() -> None:
    """The sentence names the table, the column and both types."""
    with pytest.raises(OtherColumns, match=r"^t has a column lag of type string, and rows have map<int,bigint>"):
        add_columns("t", COLUMNS, TYPES | {"lag": "string"})


def test_every_statistic_has_a_table_of_its_own_for_each_grouping() -> None:
    """No two share one, but those about the cluster as a whole, which are the same whatever the grouping."""
    names = {table_of(one, grouping) for one in ALL.values() for grouping in Grouping}
    whole = [one for one in ALL.values() if one.only_cluster]

    assert len(names) == 3 * len(ALL) - 2 * len(whole)
    assert table_of(ALL["s10"], Grouping.PARTITION) == "s10_isr_time"
    assert table_of(ALL["s10"], Grouping.TOPIC) == "s10_isr_time_by_topic"


def test_no_column_of_a_statistic_is_named_twice() -> None:
    """A table has one column of a name, and a type for each, for every grouping."""
    for one in ALL.values():
        for grouping in Grouping:
            columns = result_columns(one, grouping)
            assert len({column.name for column in columns}) == len(columns), one.id
            assert all(column.type and column.meaning for column in columns), one.id


@pytest.mark.parametrize(
    ("names", "table", "shown"),
    [
        (TableNames(catalog="lake", namespace="ops.kafka"), "`lake`.`ops`.`kafka`.`s10`", "lake.ops.kafka"),
        (TableNames(catalog="a`b", namespace="x;y"), "`a``b`.`x;y`.`s10`", "a`b.x;y"),
        (TableNames(warehouse="s3a://b/out", namespace="results"), "delta.`s3a://b/out/results/s10`",
         "s3a://b/out/results"),
    ],
)  # fmt: skip
def test_a_name_is_quoted_in_every_part(names: TableNames, table: str, shown: str) -> None:
    """What a user gives as a name is one, whatever it holds; Delta's tables without a catalog are named by place."""
    assert (names.table("s10"), names.shown) == (table, shown)


def test_the_state_of_hours_is_one_query_over_all_tables() -> None:
    """It asks for the windows of the hours alone."""
    query = state_of_hours({"s08": "a", "s10": "b"}, 3_600_000_000, 7_200_000_000)

    assert query.count("UNION ALL") == 1
    assert query.count("WHERE window_start >= 3600000000 AND window_start < 7200000000 GROUP BY") == 2


def test_a_commit_names_the_input_of_its_hour() -> None:
    """The last word on an hour and cluster counts."""
    commits = [
        TableCommit("overwrite", word_of(7, {"north": "old", "south": "s"})),
        TableCommit("overwrite", word_of(7, {"north": "new"})),
        TableCommit("delete", word_of(8, {"north": "n"})),
    ]

    assert hours_said(commits) == {
        ("north", 7): ResultEntry(input_manifest_hash="new", rows=0),
        ("south", 7): ResultEntry(input_manifest_hash="s", rows=0),
        ("north", 8): ResultEntry(input_manifest_hash="n", rows=0),
    }
    assert json.loads(word_of(7, {}))["code_version"] == __version__


def test_a_commit_of_delta_is_a_transaction_of_its_writer() -> None:
    """Without one Delta leaves out commits without rows; its version follows the table's, so it always rises."""
    assert options_of(ResultFormat.DELTA, "word", version=4) == {
        "userMetadata": "word", "txnAppId": "strandline", "txnVersion": "5",
    }  # fmt: skip
    assert options_of(ResultFormat.ICEBERG, "word", version=0) == {"snapshot-property.strandline.hour": "word"}


def test_an_hour_with_rows_of_two_inputs_is_not_known() -> None:
    """Another run wrote some of them, so that the hour is written again."""
    one, other = (ResultEntry(input_manifest_hash=own, rows=3) for own in "ab")
    north, south = ("s10", "north", 7), ("s10", "south", 7)

    assert said_by_rows([(north, one), (south, one), (north, other)]) == {north: None, south: one}


@pytest.mark.parametrize(("operation", "held"), [("replace", 1), ("OPTIMIZE", 1), ("DELETE", 0), ("RESTORE", 0)])
def test_a_commit_of_others_that_may_change_rows_ends_what_was_said(operation: str, held: int) -> None:
    """Merging files changes no row; after a deletion or a restored state the words before it say nothing."""
    said = hours_said([TableCommit("WRITE", word_of(7, {"north": "n"})), TableCommit(operation, None)])

    assert len(said) == held


@pytest.mark.parametrize("word", ["", "{}", "[]", '{"hour": 1, "hashes": 3, "code_version": "1"}', "free text"])
def test_a_word_of_others_is_no_word_of_ours(word: str) -> None:
    """Delta's metadata is free text: whatever others write there is not taken for a word."""
    assert hours_said([TableCommit("WRITE", word_of(7, {"north": "n"})), TableCommit("WRITE", word)]) == {}


# What a session is asked while tables are made fit for rows, and what its refusals mean.


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


def test_a_notebook_writes_only_tables_that_its_session_can_have(spark: SparkSession, tmp_path: Path) -> None:
    """`write_tables` reads the export before it needs a runtime, which this session lacks; files are not tables."""
    emitter = Emitter("c", 1)
    write_export(tmp_path, [emitter.row(HOUR_US, "EXPORT_HEARTBEAT"), emitter.row(3 * HOUR_US, "EXPORT_HEARTBEAT")])
    with pytest.raises(NoRuntime, match=r"it \(\[DATA_SOURCE_NOT_FOUND\].* these pairs work: iceberg"):
        write_tables(spark, [str(tmp_path)], "delta", names=["S10"])
    with pytest.raises(ValueError, match="parquet is not a format of tables; there are: iceberg, delta"):
        write_tables(spark, [str(tmp_path)], "parquet")


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
    with pytest.raises(OtherFiles, match=r"^t has files and is not a table of Delta.* another --out or --namespace$"):
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
