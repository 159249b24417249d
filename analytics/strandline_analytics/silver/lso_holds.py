"""When which transaction held back the LSO of a partition, as its leaders reported it.

A leader reports a transaction once it has held the LSO back for a second, once a minute while it does, and when it is
decided. At most one does so at a time. A hold ends with its decision, with the next hold of the same term, or with the
term; the next leader reports the same transaction as a hold of its own. Where none of these was read it is believed for
three minutes after the last report, as a look is for three times its interval.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from strandline_analytics.scope import PARTITION_KEY
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.tables import Silver

BELIEVED_US = 180_000_000
"""For how long a report is believed: three times the minute after which it is repeated."""

_HOLD = (*PARTITION_KEY, "leader_epoch", "first_offset")


def reported(silver: Silver) -> DataFrame:
    """TRANSACTION_OPEN and TRANSACTION_DECIDED rows, all times in the controller's, with ``term_end`` of their leaders.

    What a leader decided at or after the end of its term is a zombie's, and left out.
    """

    def make() -> DataFrame:
        rows = silver.of_type("TRANSACTION_OPEN", "TRANSACTION_DECIDED").where("partition IS NOT NULL")
        rows = rows.select(
            *_HOLD, "node_id", "event_type", "ts_wall_us", "held_since_us", "first_us", "last_us", "producer_id",
            "producer_epoch", "outcome", "held_ms", "n_coalesced", "hw",
        )  # fmt: skip
        rows = in_controller_time(rows, silver.clocks, "node_id", "ts_wall_us", "held_since_us", "first_us", "last_us")
        ends = silver.terms.select(*PARTITION_KEY, "leader_epoch", "term_end")
        rows = rows.join(F.broadcast(ends), [*PARTITION_KEY, "leader_epoch"], "left")
        return rows.where("event_type = 'TRANSACTION_OPEN' OR term_end IS NULL OR last_us < term_end")

    return silver.keep(("lso reports",), make)


def holds(silver: Silver) -> DataFrame:
    """One row per hold: PARTITION_KEY, topic, [t0, t1), first_offset, producer_id, producer_epoch, outcome (null where
    its decision was not seen), largest_hw."""
    return silver.plan(("lso holds",), lambda: _holds(silver))


def _holds(silver: Silver) -> DataFrame:
    is_open = F.col("event_type") == "TRANSACTION_OPEN"
    started = F.when(is_open, F.col("held_since_us")).otherwise(F.col("first_us") - F.col("held_ms") * 1_000)
    rows = reported(silver).where("first_offset IS NOT NULL")
    rows = rows.groupBy(*_HOLD).agg(
        F.min(started).alias("t0"),
        F.max("producer_id").alias("producer_id"),
        F.max("producer_epoch").alias("producer_epoch"),
        F.min(F.when(~is_open, F.col("first_us"))).alias("_decided_us"),
        F.min(F.when(~is_open, F.col("outcome"))).alias("outcome"),
        F.max("ts_wall_us").alias("_heard_us"),
        F.max("hw").alias("largest_hw"),
        F.max("term_end").alias("term_end"),
    )
    following = F.lead("t0").over(Window.partitionBy(*PARTITION_KEY, "leader_epoch").orderBy("t0", "first_offset"))
    lasted = F.coalesce("_decided_us", F.least(following, F.col("_heard_us") + BELIEVED_US))
    rows = rows.withColumn("t1", F.least(lasted, F.col("term_end"))).where("t1 > t0")
    rows = rows.drop("_decided_us", "_heard_us", "term_end")
    return rows.join(F.broadcast(silver.keys), list(PARTITION_KEY))
