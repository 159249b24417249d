"""S26: how long transactions held back what readers of committed records see, and whose they were.

At a moment one transaction of a partition at most holds its LSO back: the undecided one with the lowest first offset,
if the HW has passed that offset. Leaders report those that do so for a second or longer by themselves, with their
producer, and the sum of all others every ten seconds.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.membership import holds, reported
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per producer: transactions by what became of them, and how long they held the LSO back."""
    dur = F.col("t1") - F.col("t0")
    # What ends at the end of the window ends outside of it.
    outcome = F.when(~F.col("cut_end") & (F.col("t1") < F.col("window_end")), F.col("outcome"))
    long = scope.clip(holds(silver)).select(
        *scope.columns,
        "producer_id",
        outcome.eqNullSafe("commit").cast("bigint").alias("committed"),
        outcome.eqNullSafe("abort").cast("bigint").alias("aborted"),
        outcome.isNull().cast("bigint").alias("undecided"),
        dur.alias("held_us"),
        dur.alias("longest_us"),
    )
    many = reported(silver).where("event_type = 'TRANSACTION_DECIDED' AND first_offset IS NULL")
    many = scope.place(many.join(F.broadcast(silver.keys), list(PARTITION_KEY)), "last_us")
    none = F.lit(None).cast("bigint")
    short = many.select(
        *scope.columns,
        none.alias("producer_id"),
        F.when(F.col("outcome") == "commit", F.col("n_coalesced")).otherwise(0).alias("committed"),
        F.when(F.col("outcome") == "abort", F.col("n_coalesced")).otherwise(0).alias("aborted"),
        F.lit(0).cast("bigint").alias("undecided"),
        (F.col("held_ms") * 1_000).alias("held_us"),
        none.alias("longest_us"),
    )
    sums = (F.sum(name).alias(name) for name in ("committed", "aborted", "undecided", "held_us"))
    rows = long.unionByName(short).groupBy(*scope.columns, "producer_id")
    return rows.agg(*sums, F.max("longest_us").alias("longest_us"))


STATISTIC = Statistic(
    id="s26",
    name="lso_holds",
    title="What held readers of committed records back",
    headline="held_us",
    extra=(
        Value(
            "producer_id", "bigint", "", "whose; null: of all that took less than a second, or none"
        ),
    ),
    values=(
        Value("committed", "bigint", "transactions", "committed in the window, by a marker below the HW", counts=True),
        Value("aborted", "bigint", "transactions", "aborted in the window", counts=True),
        Value(
            "undecided", "bigint", "transactions", "held the LSO back in the window and were not decided in it",
            counts=True,
        ),
        Value("held_us", "bigint", "us", "time of it in the window", counts=True),
        Value("longest_us", "bigint", "us", "longest of them; null where none took a second"),
    ),
    compute=compute,
    needs_coverage=False,
    of_transactions=True,
)  # fmt: skip
