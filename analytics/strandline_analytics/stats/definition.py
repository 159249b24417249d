"""What a statistic is: its name, what its columns mean, and the columns that stand in every result.

Invariant: a result has a row for every group and window of the scope, has the columns it declares and no others, and a
value that nothing was known about is null, never 0 (STATISTICS.md#conventions). Coverage is within 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, functions as F

from strandline import __version__
from strandline.export.schema import CONTROLLER_NODE_ID
from strandline_analytics.scope import PARTITION_KEY, Grouping, Scope
from strandline_analytics.silver.clocks import in_controller_time
from strandline_analytics.silver.kept import PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.kafka.availability import is_unavailable, why_unavailable

# ---- quality
# How a reader is warned: what was wrong with the input of each group and window, as counts.
#
# - ``n_zombie``: samples of a leader whose term was over; excluded.
# - ``n_duplicate``: further copies of events; removed.
# - ``n_gap``: transitions that are missing, known from holes in the partition epochs, at the time of what came after.
# - ``clock_regressions``: events whose time was before that of their predecessor; corrected.


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

    of_groups: bool = field(default=False, kw_only=True)
    """Whether it is about consumer groups: where no coordinator has a partition, there is nothing to say."""

    of_transactions: bool = field(default=False, kw_only=True)
    """Whether it is about transactions, of which the same holds."""

    def columns(self, scope: Scope) -> tuple[str, ...]:
        """The columns of a result, in order."""
        names = (v.name for v in (*self.extra, *self.values))
        return ("stat", *scope.columns, *names, "coverage", *QUALITY, "input_manifest_hash", "code_version")


def result(statistic: Statistic, silver: Silver, scope: Scope) -> DataFrame:
    """A statistic with everything that stands in every row: coverage, quality, origin."""
    if statistic.only_cluster:
        scope = replace(scope, grouping=Grouping.CLUSTER)
    rows = frame(silver, scope, samples=statistic.reads_samples, is_once=statistic.only_cluster)
    rows = rows.join(statistic.compute(silver, scope), list(scope.columns), "left")
    known = F.col("known_us" if statistic.needs_coverage else "_control_us")
    nothing_happened = F.when(known > 0, F.lit(0))
    own = {
        "stat": F.lit(statistic.id),
        "coverage": _coverage(statistic, known),
        "input_manifest_hash": F.lit(silver.input_hash),
        "code_version": F.lit(__version__),
    }
    own |= {value.name: F.col(value.name).cast(value.type) for value in statistic.extra}
    own |= {
        value.name: _if_recorded(statistic, value, silver, _filled(statistic, value, nothing_happened)).cast(value.type)
        for value in statistic.values
    }
    # In one step: Spark analyses the whole query after each.
    found = rows.select(*(own[name].alias(name) if name in own else name for name in statistic.columns(scope)))
    return silver.fit(found, statistic.reads_samples)


def with_any_value(statistic: Statistic, silver: Silver, found: DataFrame) -> DataFrame:
    """A result without the rows of clusters whose export can give none of the values (KAFKA.md#what-is-never-known)."""
    names = [value.name for value in statistic.values]
    empty = [cluster for cluster, levels in silver.kafka.items() if is_unavailable(statistic.id, names, levels)]
    return found.where(~F.col("cluster_id").isin(*empty)) if empty else found


def _if_recorded(statistic: Statistic, value: Value, silver: Silver, found: Column) -> Column:
    """A value, but null for clusters whose export cannot give it."""
    without = [one for one, levels in silver.kafka.items() if why_unavailable(statistic.id, value.name, levels)]
    return F.when(~F.col("cluster_id").isin(*without), found) if without else found


def _filled(statistic: Statistic, value: Value, nothing_happened: Column) -> Column:
    """A value, with 0 where the state was known and what it counts did not happen."""
    if not value.counts:
        return F.col(value.name)
    if not value.over:
        return F.coalesce(value.name, nothing_happened)
    (over,) = (one for one in statistic.values if one.name == value.over)
    is_empty = F.coalesce(_filled(statistic, over, nothing_happened), F.lit(0)) == 0
    return F.coalesce(value.name, F.when(is_empty, nothing_happened))


def _coverage(statistic: Statistic, known: Column) -> Column:
    """The part of the window that was known; a query of it fails where more was known than there is."""
    share = F.coalesce(known, F.lit(0)) / F.col("_length")
    wrong = F.format_string(
        f"{statistic.id}: coverage is %s in the window that begins at %d us, which is not within 0 and 1: a time was "
        "counted twice. This is a mistake of the program and no figure of the window can be believed; please report it",
        share,
        F.col("window_start"),
    )
    return F.when(share.between(0, 1), share).otherwise(F.raise_error(wrong).cast("double"))


def frame(silver: Silver, scope: Scope, *, samples: bool, is_once: bool = False) -> DataFrame:
    """What stands in results whatever the statistic: every group and window, with ``_length`` (of the window, times the
    partitions of the group), ``_control_us`` (for how long the control plane's state is known), and the flaws.

    Args:
        is_once: no other statistic of a question has this scope, so that the table is not kept.
    """

    def make() -> DataFrame:
        by = list(scope.columns)
        rows = silver.plan(("windows", scope), lambda: _windows(silver, scope))
        rows = rows.join(quality(silver, scope, samples=samples), by, "left")
        length = (F.col("window_end") - F.col("window_start")) * F.col("_n_keys")
        flaws = (F.coalesce(name, F.lit(0)).alias(name) for name in QUALITY)
        return rows.select(*by, length.alias("_length"), "_control_us", *flaws)

    return make() if is_once else silver.keep(("frame", scope, samples), make, samples=samples)


def _windows(silver: Silver, scope: Scope) -> DataFrame:
    """Every group and window with ``_n_keys``, the number of its partitions, and ``_control_us``."""
    known = known_pieces(silver, scope).groupBy(*scope.columns).agg(F.sum("dur").alias("_control_us"))
    n_keys = silver.keys.groupBy(*scope.grouping.value).agg(F.count("*").alias("_n_keys"))
    rows = scope.windows(silver.keys).join(F.broadcast(n_keys), list(scope.grouping.value), "left")
    return rows.join(known, list(scope.columns), "left")


def known_pieces(silver: Silver, scope: Scope) -> DataFrame:
    """The intervals in which the control plane's state is known, cut at the borders of windows; ``dur`` is the length
    of a piece."""

    def make() -> DataFrame:
        return scope.clip(silver.known_control).withColumn("dur", F.col("t1") - F.col("t0"))

    return silver.plan(("known pieces", scope), make)


def group(scope: Scope, extra: Iterable[str] = ()) -> list[str]:
    """What to group by: the scope's columns and more."""
    return [*scope.columns, *extra]
