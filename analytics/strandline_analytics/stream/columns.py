"""Which columns live rows have: those of the five statistics side by side, absent ones null.

Invariant: a column has the name, the type and the default that its statistic declares for the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline_analytics.scope import Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.stream.figures import FLAWS

LIVE: dict[str, Statistic] = {name: ALL[name] for name in ("s01", "s08", "s10", "s15", "s18")}
"""The statistics that are reported live."""

_FIXED = {
    "stat": "string", "cluster_id": "string", "topic_id": "string", "topic": "string", "partition": "int",
    "window_start": "bigint", "window_end": "bigint", "final": "boolean", "coverage": "double",
}  # fmt: skip


def types() -> dict[str, str]:
    """Every column with its type, in order."""
    found = _FIXED | dict.fromkeys(FLAWS, "bigint")
    for statistic in LIVE.values():
        for value in (*statistic.extra, *statistic.values):
            assert found.setdefault(value.name, value.type) == value.type, value.name
    return found


def ddl() -> str:
    """The columns as Spark reads them."""
    return ", ".join(f"`{name}` {kind}" for name, kind in types().items())


def columns_of(statistic: Statistic) -> list[str]:
    """What a live row of one statistic has."""
    values = (value.name for value in (*statistic.extra, *statistic.values))
    own = ("stat", *Grouping.PARTITION.value, "window_start", "window_end", "final")
    return [*own, *values, "coverage", *FLAWS]


def completed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the machine with all columns: counts are 0 where the state was known and nothing happened."""
    counts = {value.name for value in LIVE[row["stat"]].values if value.counts}
    default = 0 if row["known_us"] else None
    full = {name: row.get(name) for name in types()}
    return {name: default if value is None and name in counts else value for name, value in full.items()}
