"""How a reader is warned: what was wrong with the input of each group and window, as counts.

- ``n_zombie``: samples of a leader whose term was over; excluded.
- ``n_duplicate``: further copies of events; removed.
- ``n_gap``: transitions that are missing, known from holes in the partition epochs, at the time of what came after.
- ``clock_regressions``: events whose time was before that of their predecessor; corrected.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline.export.schema import CONTROLLER_NODE_ID
from strandline_analytics.scope import PARTITION_KEY, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.kept import PLACE
from strandline_analytics.silver.tables import Silver

QUALITY = ("n_zombie", "n_duplicate", "n_gap", "clock_regressions")


def quality(silver: Silver, scope: Scope, *, samples: bool) -> DataFrame:
    """The counts per group and window of the scope; groups where nothing was wrong are absent.

    Args:
        samples: whether the statistic reads them; one that does not must not pay for them.
    """
    wrong = silver.plan(("flaws",), lambda: _wrong(_flaws_of_control(silver).unionByName(_other_doubles(silver))))
    if samples:
        wrong = wrong.unionByName(silver.plan(("flaws of looks",), lambda: _named_flaws_of_looks(silver)))
    return scope.place(wrong).groupBy(*scope.columns).agg(*(F.sum(name).alias(name) for name in QUALITY))


def _wrong(flaws: DataFrame) -> DataFrame:
    return flaws.where(" OR ".join(f"{name} > 0" for name in QUALITY))


def _flaws_of_control(silver: Silver) -> DataFrame:
    return silver.control_rows.select(
        *PARTITION_KEY,
        "topic",
        "t",
        F.lit(0).alias("n_zombie"),
        (F.col("n_copies") - 1).alias("n_duplicate"),
        F.col("lost_before").alias("n_gap"),
        F.col("went_back").cast("int").alias("clock_regressions"),
    )


def _other_doubles(silver: Silver) -> DataFrame:
    """Copies of what data nodes reported of partitions; those of the controller are among its own flaws."""
    rows = silver.transitions.where(
        (F.col("n_copies") > 1) & (F.col("node_id") != CONTROLLER_NODE_ID) & F.col("partition").isNotNull()
    )
    rows = rows.select(*PARTITION_KEY, "topic", "node_id", "n_copies", F.col("ts_wall_us").alias("t"))
    rows = in_controller_time(rows, silver.clocks, "node_id", "t")
    return rows.select(
        *PARTITION_KEY,
        "topic",
        "t",
        F.lit(0).alias("n_zombie"),
        (F.col("n_copies") - 1).alias("n_duplicate"),
        F.lit(0).alias("n_gap"),
        F.lit(0).alias("clock_regressions"),
    )


def _named_flaws_of_looks(silver: Silver) -> DataFrame:
    return _wrong(_flaws_of_looks(silver)).join(F.broadcast(silver.places), PLACE).drop(PLACE)


def _flaws_of_looks(silver: Silver) -> DataFrame:
    return silver.looks.select(
        PLACE,
        F.col("t0").alias("t"),
        (F.col("is_zombie") & F.col("is_leader")).cast("int").alias("n_zombie"),
        F.col("is_double").cast("int").alias("n_duplicate"),
        F.lit(0).alias("n_gap"),
        (F.col("went_back") & F.col("is_leader")).cast("int").alias("clock_regressions"),
    )
