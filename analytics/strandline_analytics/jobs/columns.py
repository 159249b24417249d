"""Which columns a statistic's results have, with the unit and the meaning of each."""

from __future__ import annotations

from collections.abc import Sequence

from strandline_analytics.scope import TIMES, Grouping
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic, Value

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


def head_columns(grouping: Grouping) -> list[Value]:
    """What a row is about: the statistic, its group and its window."""
    names = (*grouping.value, *(name for both in TIMES.items() for name in both))
    return [Value("stat", "string", "", "the statistic's id"), *(Value(name, *_COMMON[name]) for name in names)]


def tail_columns() -> list[Value]:
    """How far a row can be relied on, and what it follows from."""
    return [Value(name, *said) for name, said in _EVERYWHERE.items()]


def result_columns(statistic: Statistic, grouping: Grouping) -> list[Value]:
    """All columns of a statistic's results, in their order."""
    grouping = Grouping.CLUSTER if statistic.only_cluster else grouping
    return [*head_columns(grouping), *statistic.extra, *statistic.values, *tail_columns()]


# ---- schema_page
# What `_schema.md` beside results says: every column of every statistic, with its unit and meaning.
#
# Invariant: derived from the declarations alone, so it cannot say anything else than the files.


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
