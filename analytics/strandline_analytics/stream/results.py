"""Where live rows lie and which of them count: one folder per micro-batch, and the last word on each window.

    OUT/final=true/batch=17/…parquet       rows of closed windows; written once
    OUT/final=false/batch=17/…parquet      rows of open windows, as they stood at that batch

Invariant: a batch that is run again after a failure replaces what it wrote, so every final row is there once.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.sources.places import literal, uri_of
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.stream.columns import columns_of, ddl
from strandline_analytics.timestamps import with_times

_WINDOW = ("stat", *PARTITION_KEY, "window_start")


def writer(out: str) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls."""

    def write(rows: DataFrame, batch: int) -> None:
        numbered = with_times(rows).withColumn("batch", F.lit(batch).cast("bigint")).coalesce(1)
        mode = numbered.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        mode.partitionBy("final", "batch").parquet(uri_of(out))

    return write


def live_rows(spark: SparkSession, out: str, statistic: Statistic) -> DataFrame:
    """The rows of one statistic: final ones, and of windows that are open what was said of them last.

    Moments are there in microseconds and as TIMESTAMPs (`timestamps`).
    """
    reported = (
        spark.read.schema(f"{ddl()}, batch BIGINT").parquet(literal(uri_of(out))).where(F.col("stat") == statistic.id)
    )
    rank = F.struct("final", "batch")
    newest = reported.withColumn("_newest", F.max(rank).over(Window.partitionBy(*_WINDOW))).where(
        rank == F.col("_newest")
    )
    return with_times(newest.select(*columns_of(statistic)))
