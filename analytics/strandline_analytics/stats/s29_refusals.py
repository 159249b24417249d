"""S29: refusals by principal and rule: who was refused what it may not do, how often, and by which rule.

From the audit. A process joins refusals of one principal, method and rule within a second; all of them count at the
end of that second, in the controller's time.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats.definition import Statistic, Value


def compute(silver: Silver, scope: Scope) -> DataFrame:
    """Per principal and rule: refusals, and how many of each method."""
    rows = silver.of_type("AUDIT").where("outcome = 'REFUSED'")
    rows = rows.select("cluster_id", "node_id", "ts_wall_us", "principal", "rule", "method", "n_coalesced")
    rows = scope.place(in_controller_time(rows, silver.clocks, "node_id", "ts_wall_us"), "ts_wall_us")
    by = [*scope.columns, "principal", "rule"]
    counted = rows.groupBy(*by, "method").agg(F.sum("n_coalesced").alias("_n"))
    named = F.sort_array(F.collect_list(F.when(F.col("method").isNotNull(), F.struct("method", "_n"))))
    return counted.groupBy(*by).agg(F.sum("_n").alias("refusals"), F.map_from_entries(named).alias("methods"))


STATISTIC = Statistic(
    id="s29",
    name="refusals",
    title="Refusals by principal and rule",
    headline="refusals",
    extra=(
        Value("principal", "string", "", "who was refused; null: the sum of kinds that were not kept apart"),
        Value("rule", "string", "", "what refused it: a rule that denies, or role; null: no rule allows it"),
    ),
    values=(
        Value("refusals", "bigint", "refusals", "refusals in the window", counts=True),
        Value("methods", "map<string,bigint>", "refusals", "method -> refusals of it"),
    ),
    compute=compute,
    needs_coverage=False,
    only_cluster=True,
)
