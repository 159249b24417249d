"""What `_schema.md` beside results says: every column of every statistic, with its unit and meaning.

Invariant: derived from the declarations alone, so it cannot say anything else than the files.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline_analytics.jobs.columns import head_columns, tail_columns
from strandline_analytics.scope import Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic, Value


def schema_page(grouping: Grouping) -> str:
    """The page for results of a grouping."""
    parts = [
        "# Columns of the results",
        "Files: `stat=ID/dt=YYYY-MM-DD/hr=HH/cluster=ID/`, Parquet; `dt`, `hr` and `cluster` repeat what the rows say. "
        "A null value means that nothing is known, never 0. Times are UTC.",
        "## In every result",
        _table([*head_columns(grouping), *tail_columns()]),
        *(_section(statistic) for statistic in ALL.values()),
    ]
    return "\n\n".join(parts) + "\n"


def _section(statistic: Statistic) -> str:
    about = "\n\nAbout the cluster as a whole, whatever the grouping." if statistic.only_cluster else ""
    table = _table([*statistic.extra, *statistic.values])
    return f"## {statistic.id} {statistic.name}: {statistic.title}{about}\n\n{table}"


def _table(columns: Sequence[Value]) -> str:
    lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.type} | {one.unit} | {_escaped(one.meaning)} |" for one in columns]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
