"""The statistics a second time: in another engine, from the definitions of STATISTICS.md, over the same files.

One SQL file per statistic beside this one, over the tables of `tables.sql` and `samples.sql`. It shares no code with
the Spark statistics except a result's description of its columns (`Statistic.values`), on which both must agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from strandline.export.schema import EVENT_TYPES
from strandline_analytics.scope import FOREVER_US, Grouping, Scope
from strandline_analytics.stats.definition import Statistic

_HERE = Path(__file__).parent
_KEY = "cluster_id, topic_id, partition"
_RANKS = re.compile(r"\$RANKS\((\w+), (\w+), ([^)]*)\)")
_RANK = re.compile(r"\$RANK\((.+?), (\d+)\)(?= AS)")
_AT_LEAST = re.compile(r"\$AT_LEAST\((\w+)\)")


class Oracle:
    """One export in DuckDB: tables made once, statistics from them."""

    def __init__(self, root: Path, scope: Scope, *, database: str = ":memory:", slices: int = 1) -> None:
        """``slices``: in how many parts groups are joined with the HW of their partitions; more need less memory."""
        self.scope = scope
        self._slices = slices
        self._connection = duckdb.connect(database, config={"threads": 2, "default_null_order": "nulls_first"})
        for dataset in ("transitions", "samples"):
            self._connection.execute(f"CREATE VIEW raw_{dataset} AS SELECT * FROM {_reader(root, dataset)}")
        self._connection.execute(
            f"CREATE TABLE windows AS SELECT a AS window_start, least(a + {scope.step}, {scope.end_us}) AS window_end "
            f"FROM range({scope.start_us}, {scope.end_us}, {scope.step}) r(a)"
        )

    def make_tables(self, *, samples: bool = True) -> None:
        """Create the tables that STATISTICS.md calls silver."""
        self._run("tables")
        if samples:
            self.make_looks()

    def make_looks(self) -> None:
        """Create the part of them that is needed only for samples."""
        self._run("samples")
        rows = (_HERE / "lag_spans.sql").read_text()
        for number in range(self._slices):
            part = rows.replace("$SLICE", f"hash(topic_id, partition) % {self._slices} = {number}")
            into = "INSERT INTO lag_spans" if number else "CREATE TABLE lag_spans AS"
            self._connection.execute(f"{into} {self._expanded(part, self.scope.grouping)}")

    def _run(self, name: str) -> None:
        self._connection.execute(self._expanded((_HERE / f"{name}.sql").read_text(), self.scope.grouping))

    def rows(self, statistic: Statistic) -> list[dict[str, Any]]:
        """A statistic's result: a row for every group and window, with its values."""
        grouping = Grouping.CLUSTER if statistic.only_cluster else self.scope.grouping
        by = ", ".join((*grouping.value, "window_start", "window_end"))
        own = [value.name for value in (*statistic.extra, *statistic.values)]
        figures = self._expanded((_HERE / f"{statistic.id}.sql").read_text(), grouping)
        known = "" if statistic.needs_coverage else f"LEFT JOIN known USING ({by})"
        counted = {value.name: value.over for value in statistic.values if value.counts}
        empty = {n: f" AND coalesce({over}, 0) = 0" if over else "" for n, over in counted.items()}
        shown = [
            f"coalesce({n}, CASE WHEN known_us > 0{empty[n]} THEN 0 END) AS {n}" if n in counted else n for n in own
        ]
        query = f"""
            WITH figures AS ({figures}), known AS (
              SELECT $BY, sum($DUR) AS known_us FROM known_states JOIN windows ON $OVERLAP GROUP BY $BY
            ), keys AS (SELECT $G, count(*) AS n_keys FROM groups GROUP BY $G)
            SELECT {by}, {", ".join(shown)}, coalesce(known_us, 0) / ((window_end - window_start) * n_keys) AS coverage
            FROM keys CROSS JOIN windows LEFT JOIN figures USING ({by}) {known}"""
        found = self._connection.execute(self._expanded(query, grouping))
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def close(self) -> None:
        """Drop the tables."""
        self._connection.close()

    def _expanded(self, text: str, grouping: Grouping) -> str:
        group = ", ".join(grouping.value)
        text = _RANKS.sub(_weighted_percentiles, text)
        text = _RANK.sub(_nearest_rank, text)
        text = _AT_LEAST.sub(r"CASE WHEN sum(\1) > 0 OR count(\1) = count(*) THEN sum(\1) END", text)
        short = {
            "$BY": f"{group}, window_start, window_end",
            "$KEY": _KEY,
            "$G": group,
            "$DUR": "(least(t1, window_end) - greatest(t0, window_start))",
            "$OVERLAP": "(t0 < window_end AND t1 > window_start)",
            "$WITHIN": "(t >= window_start AND t < window_end)",
            "$FOREVER": f"{FOREVER_US}::BIGINT",
            "$KNOWN_TYPES": ", ".join(f"'{name}'" for name in EVENT_TYPES),
            "$END": str(self.scope.end_us),
            "$A": "greatest(t0, window_start)",
            "$B": "least(t1, window_end)",
        }
        for name in sorted(short, key=len, reverse=True):
            text = text.replace(name, short[name])
        return text


def _weighted_percentiles(found: re.Match[str]) -> str:
    """The smallest value v with sum of durations(value <= v) >= p percent of the whole."""
    table, value, rest = found.groups()
    parts = [part.strip() for part in rest.split(",")]
    percents = [part.split() for part in parts if " " in part]
    by = ", ".join(["$BY", *(part for part in parts if " " not in part)])
    picks = ", ".join(f"min({value}) FILTER (so_far * 100 >= whole * {p}) AS {name}" for name, p in percents)
    return (
        f"SELECT {by}, {picks} FROM (SELECT {by}, {value}, sum(sum(dur)) OVER (PARTITION BY {by} ORDER BY {value}) "
        f"AS so_far, sum(sum(dur)) OVER (PARTITION BY {by}) AS whole FROM {table} GROUP BY {by}, {value}) GROUP BY {by}"
    )


def _nearest_rank(found: re.Match[str]) -> str:
    """The value at position ceil(p * n) in order."""
    value, percent = found.groups()
    return f"(list({value} ORDER BY {value}) FILTER ({value} IS NOT NULL))[(count({value}) * {percent} + 99) // 100]"


def _reader(root: Path, dataset: str) -> str:
    files = sorted(str(path) for path in root.glob(f"*/v1/{dataset}/*/*/*.parquet"))
    # A folder without samples still has the columns.
    files = files or sorted(str(path) for path in root.glob("*/v1/transitions/*/*/*.parquet"))[:1]
    empty = " WHERE event_type IS NULL" if dataset == "samples" and "/samples/" not in files[0] else ""
    return f"read_parquet({files!r}, hive_partitioning=false){empty}"


def differences(
    statistic: Statistic, scope: Scope, spark: Sequence[Mapping[str, Any]], duck: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Where two engines disagree, as text; integers exactly, fractions to 1e-9 of their value."""
    grouping = Grouping.CLUSTER if statistic.only_cluster else scope.grouping
    key = (*grouping.value, "window_start", "window_end", *(value.name for value in statistic.extra))
    names = [value.name for value in statistic.values] + ["coverage"]
    ours, theirs = ({tuple(row[n] for n in key): row for row in rows} for rows in (spark, duck))
    found = [f"{statistic.id}: only Spark has {dict(zip(key, k, strict=True))}" for k in ours.keys() - theirs.keys()]
    found += [f"{statistic.id}: only DuckDB has {dict(zip(key, k, strict=True))}" for k in theirs.keys() - ours.keys()]
    for k in ours.keys() & theirs.keys():
        for name in names:
            a, b = ours[k][name], theirs[k][name]
            if not _equal(a, b):
                found.append(f"{statistic.id}.{name} at {dict(zip(key, k, strict=True))}: Spark {a!r}, DuckDB {b!r}")
    return found


def digest(statistic: Statistic, scope: Scope, rows: Sequence[Mapping[str, Any]]) -> str:
    """A digest of a result's rows, equal for both engines where they agree: fractions to nine digits."""
    grouping = Grouping.CLUSTER if statistic.only_cluster else scope.grouping
    names = (*grouping.value, "window_start", "window_end", "coverage")
    names += tuple(value.name for value in (*statistic.extra, *statistic.values))
    lines = sorted(repr([_shown(row[name]) for name in names]) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(value.items()) or None
    return f"{value:.9g}" if isinstance(value, float) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1e-9)
    return bool((a or None) == (b or None)) if isinstance(a, dict) or isinstance(b, dict) else bool(a == b)
