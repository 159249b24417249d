"""What `_schema.md` beside results says: every column of every statistic, with its unit and meaning.

Invariant: derived from the declarations alone, so it cannot say anything else than the files.
"""

from __future__ import annotations

from strandline_analytics.scope import Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.timestamps import TIMES

_COMMON = {
    "cluster_id": ("string", "", "the cluster, as it calls itself"),
    "topic_id": ("string", "", "the topic's id: names are used again, ids are not"),
    "topic": ("string", "", "the topic's name"),
    "partition": ("int", "", "the partition's number"),
    "window_start": ("bigint", "us since 1970", "the first moment of the row's window"),
    "window_start_time": ("timestamp", "", "the same as window_start"),
    "window_end": ("bigint", "us since 1970", "the moment before which it ends"),
    "window_end_time": ("timestamp", "", "the same as window_end"),
}
_EVERYWHERE = {
    "coverage": ("double", "share", "known time / time of the window, over all partitions of the row"),
    "n_zombie": ("bigint", "samples", "of leaders whose term was over; not used"),
    "n_duplicate": ("bigint", "events", "further copies; not used"),
    "n_gap": ("bigint", "transitions", "missing by the partition epochs; the time before each is unknown"),
    "clock_regressions": ("bigint", "events", "whose time was before that of the one before them; corrected"),
    "input_manifest_hash": ("string", "", "names the files that the row follows from"),
    "code_version": ("string", "", "the version of strandline that computed it"),
}


def schema_page(grouping: Grouping) -> str:
    """The page for results of a grouping."""
    group = {name: _COMMON[name] for name in (*grouping.value, *(name for both in TIMES.items() for name in both))}
    parts = [
        "# Columns of the results",
        "Files: `stat=ID/dt=YYYY-MM-DD/hr=HH/cluster=ID/`, Parquet; `dt`, `hr` and `cluster` repeat what the rows say. "
        "A null value means that nothing is known, never 0. Times are UTC.",
        "## In every result",
        _table({"stat": ("string", "", "the statistic's id")} | group | _EVERYWHERE),
        *(_section(statistic) for statistic in ALL.values()),
    ]
    return "\n\n".join(parts) + "\n"


def _section(statistic: Statistic) -> str:
    values = {one.name: (one.type, one.unit, one.meaning) for one in (*statistic.extra, *statistic.values)}
    about = "\n\nAbout the cluster as a whole, whatever the grouping." if statistic.only_cluster else ""
    return f"## {statistic.id} {statistic.name}: {statistic.title}{about}\n\n{_table(values)}"


def _table(columns: dict[str, tuple[str, str, str]]) -> str:
    lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| {name} | {kind} | {unit} | {_escaped(meaning)} |" for name, (kind, unit, meaning) in columns.items()]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
