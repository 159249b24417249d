"""What a statistic is: its name, what its columns mean, and the columns that stand in every result.

Invariant: a result has a row for every group and window of the scope, has the columns it declares and no others, and a
value that nothing was known about is null, never 0 (STATISTICS.md#conventions). Coverage is within 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline import __version__
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.silver.quality import QUALITY, quality
from strandline_analytics.silver.tables import Silver


@dataclass(frozen=True, slots=True)
class Value:
    """One column of a result: its Spark type, its unit, and what it says.

    A value that ``counts`` is 0 where the state was known and nothing happened; others are null there. If it is a sum
    ``over`` what another value counts, it is null, and not 0, where that is above 0 and the sum is not known.
    """

    name: str
    type: str
    unit: str
    meaning: str
    counts: bool = False
    over: str = ""


@dataclass(frozen=True, slots=True)
class Statistic:
    """One of `stats.ALL`."""

    id: str
    name: str
    title: str
    headline: str
    """The value whose course the report draws, and by which rows are sorted where not all fit."""
    values: tuple[Value, ...]
    compute: Callable[[Silver, Scope], DataFrame]
    """From silver to one row per group of `Scope.columns` and ``extra``: the values and ``known_us``."""
    extra: tuple[Value, ...] = ()
    """What distinguishes rows beside the group, for instance a replica."""
    reads_samples: bool = False
    needs_coverage: bool = field(default=True, kw_only=True)
    """Whether ``compute`` yields ``known_us``; counts of transitions take it from the control plane."""

    only_cluster: bool = field(default=False, kw_only=True)
    """Whether it is about the cluster as a whole, whatever the grouping that was asked for."""

    def columns(self, scope: Scope) -> tuple[str, ...]:
        """The columns of a result, in order."""
        names = (v.name for v in (*self.extra, *self.values))
        return ("stat", *scope.columns, *names, "coverage", *QUALITY, "input_manifest_hash", "code_version")


def result(statistic: Statistic, silver: Silver, scope: Scope) -> DataFrame:
    """A statistic with everything that stands in every row: coverage, quality, origin."""
    if statistic.only_cluster:
        scope = replace(scope, grouping=Grouping.CLUSTER)
    rows = frame(silver, scope, samples=statistic.reads_samples)
    rows = rows.join(statistic.compute(silver, scope), list(scope.columns), "left")
    if not statistic.needs_coverage:
        rows = rows.withColumn("known_us", F.col("_control_us"))
    rows = rows.withColumn("coverage", _coverage(statistic))
    nothing_happened = F.when(F.col("known_us") > 0, F.lit(0))
    for value in statistic.values:
        if value.counts:
            is_empty = F.coalesce(value.over, F.lit(0)) == 0 if value.over else F.lit(True)
            rows = rows.withColumn(value.name, F.coalesce(value.name, F.when(is_empty, nothing_happened)))
    rows = rows.withColumns(
        {
            "stat": F.lit(statistic.id),
            "input_manifest_hash": F.lit(silver.input_hash),
            "code_version": F.lit(__version__),
        }
    )
    typed = {v.name: v.type for v in (*statistic.extra, *statistic.values)}
    found = rows.select(
        *(F.col(name).cast(typed[name]) if name in typed else F.col(name) for name in statistic.columns(scope))
    )
    return silver.fit(found, statistic.reads_samples)


def _coverage(statistic: Statistic) -> Column:
    """The part of the window that was known; a query of it fails where more was known than there is."""
    share = F.coalesce("known_us", F.lit(0)) / F.col("_length")
    wrong = F.format_string(
        f"{statistic.id}: coverage is %s in the window that begins at %d us, which is not within 0 and 1: a time was "
        "counted twice. This is a mistake of the program and no figure of the window can be believed; please report it",
        share,
        F.col("window_start"),
    )
    return F.when(share.between(0, 1), share).otherwise(F.raise_error(wrong).cast("double"))


def frame(silver: Silver, scope: Scope, *, samples: bool) -> DataFrame:
    """What stands in results whatever the statistic: every group and window, with ``_length`` (of the window, times the
    partitions of the group), ``_control_us`` (for how long the control plane's state is known), and the flaws."""

    def make() -> DataFrame:
        by = list(scope.columns)
        known = scope.clip(silver.control.where("known"))
        known = known.groupBy(*by).agg(F.sum(F.col("t1") - F.col("t0")).alias("_control_us"))
        n_keys = silver.keys.groupBy(*scope.grouping.value).agg(F.count("*").alias("_n_keys"))
        rows = scope.windows(silver.keys).join(F.broadcast(n_keys), list(scope.grouping.value), "left")
        rows = rows.withColumn("_length", (F.col("window_end") - F.col("window_start")) * F.col("_n_keys"))
        rows = rows.drop("_n_keys").join(known, by, "left")
        return rows.join(quality(silver, scope, samples=samples), by, "left").na.fill(0, list(QUALITY))

    return silver.keep(("frame", scope, samples), make, samples=samples)


def group(scope: Scope, extra: Iterable[str] = ()) -> list[str]:
    """What to group by: the scope's columns and more."""
    return [*scope.columns, *extra]
