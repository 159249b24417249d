"""Goes on with tables that a killed run began, in one session of a pair's PySpark, and prints what it finds as JSON.

The statistics are also written as Parquet, with the same session, for `table_pairs.py` to compare.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from strandline_analytics.jobs import run as job
from strandline_analytics.jobs.ask import Question
from strandline_analytics.jobs.parquet_results import ParquetResults
from strandline_analytics.jobs.results import result_columns
from strandline_analytics.scope import Grouping
from strandline_analytics.session import open_session
from strandline_analytics.stats import ALL
from strandline_analytics.tables import ResultFormat, statements
from strandline_analytics.tables.hours import HoursInTables, commits_of
from strandline_analytics.tables.runtimes import runtime_for, settings
from strandline_analytics.tables.writing import write_tables

LATER_US = 10**15


class Tables:
    """The tables of one namespace, and what is asked of them."""

    def __init__(self, spark: SparkSession, kind: ResultFormat, out: str, namespace: str) -> None:
        own = {"warehouse": statements.warehouse_of(out)} if kind is ResultFormat.DELTA else {"catalog": "strandline"}
        self.spark, self.kind = spark, kind
        self.names = statements.TableNames(namespace=namespace, **own)

    def table(self, stat: str) -> str:
        """The table of a statistic, in SQL."""
        return self.names.table(statements.table_of(ALL[stat], Grouping.PARTITION))

    def run(self, question: Question) -> dict[str, Any]:
        """Write the hours of a question; what was written, and how many commits each table has."""
        results = HoursInTables(self.spark, self.kind, self.names, question.grouping)
        written = job.run(self.spark, question, job.hours_for(self.spark, question, now_us=LATER_US), results)
        return {
            "rows": written.rows,
            "hours": len(written.hours) - len(written.left_out),
            "unchanged": len(written.unchanged),
            "commits": {one.id: len(commits_of(self.spark, self.table(one.id), self.kind)) for one in
                        question.statistics},
        }  # fmt: skip

    def hours_with_rows(self, stat: str) -> int:
        """Of how many hours of a cluster a table has rows."""
        return self.spark.table(self.table(stat)).select("cluster_id", "window_start").distinct().count()

    def begin_with_fewer_columns(self, stat: str) -> None:
        """Make a table as an earlier version of strandline would have, without the last value of the statistic."""
        last = ALL[stat].values[-1].name
        columns = [one for one in result_columns(ALL[stat], Grouping.PARTITION) if one.name != last]
        if self.names.quoted_namespace is not None:
            self.spark.sql(statements.create_namespace(self.names.quoted_namespace))
        self.spark.sql(statements.create_table(self.table(stat), columns, self.kind, "earlier"))


def rows_of(found: DataFrame) -> list[str]:
    """Rows as text, without order."""
    names = sorted(found.columns)
    return sorted(repr([(name, row[name]) for name in names]) for row in found.collect())


def taken(spark: SparkSession, kind: ResultFormat, question: Question, place: str) -> dict[str, Any]:
    """What a run says where Spark's own catalog has a table of Parquet under the name, and what that has afterwards."""
    names = statements.TableNames(catalog="spark_catalog", namespace="taken")
    table = names.table(statements.table_of(ALL["s10"], Grouping.PARTITION))
    spark.sql(statements.create_namespace(str(names.quoted_namespace)) + f" LOCATION '{place}'")
    spark.sql(f"CREATE TABLE {table} (theirs INT) USING parquet")
    refused = ""
    try:
        write_tables(spark, question.inputs, kind, catalog=names.catalog, namespace=names.namespace, names=["s10"])
    except statements.OtherFormat as error:
        refused = str(error)
    return {"refused": refused, "columns": spark.table(table).columns}


def main(kind: str, export: str, out: str, files: str, stats: str) -> None:
    """Write, repeat, delete, write again."""
    chosen = stats.split(",")
    form = ResultFormat(kind)
    needed = settings(runtime_for(form), catalog="strandline", warehouse=statements.warehouse_of(out))
    spark = open_session("strandline-formats", master="local[2]", memory="1g", settings=needed)
    question = job.whole_hours(Question(inputs=(export,), statistics=tuple(ALL[stat] for stat in chosen)))
    hours = job.hours_for(spark, question, now_us=LATER_US)
    job.run(spark, question, hours, ParquetResults(spark, files, question.grouping))

    tables = Tables(spark, form, out, "results")
    found: dict[str, Any] = {"completed": tables.run(question), "repeated": tables.run(question)}
    found["tables"] = {stat: rows_of(spark.table(tables.table(stat))) for stat in chosen}
    found["hours_with_rows"] = {stat: tables.hours_with_rows(stat) for stat in chosen}
    reader = spark.read.option("recursiveFileLookup", "true")
    empty = [stat for stat, count in found["completed"]["rows"].items() if not count]
    found["files"] = {
        stat: [] if stat in empty else rows_of(reader.parquet(f"{files}/results/stat={stat}")) for stat in chosen
    }

    one = job.whole_hours(Question(inputs=(export,), statistics=(ALL["s10"],)))
    spark.sql(f"DELETE FROM {tables.table('s10')}")
    found["deleted"] = tables.run(one)
    older = Tables(spark, form, out, "older")
    older.begin_with_fewer_columns("s10")
    older.run(one)
    found["older"] = rows_of(spark.table(older.table("s10")))
    found["served"] = rows_of(spark.table(Tables(spark, form, out, "served").table("s10")))
    found["taken"] = taken(spark, form, one, f"{out}-taken")
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
