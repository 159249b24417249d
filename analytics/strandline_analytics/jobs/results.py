"""The interface of a run's destination, whatever its format: files in folders, or tables.

Invariant: an hour of a statistic is replaced as a whole, and only what exists is reported as known.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from strandline import __version__
from strandline.export.layout import hour_folder
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.scope import TIMES, Grouping
from strandline_analytics.sources.places import read_text, write_text
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic, Value

PLACE = "place"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultEntry:
    """The hash of the files that a statistic's rows follow from, and the number of rows."""

    input_manifest_hash: str
    rows: int
    code_version: str = __version__


class Results(Protocol):
    """The destination of the rows of closed hours."""

    @property
    def shown(self) -> str:
        """The destination as it is shown to people."""
        ...

    def place(self, statistic: Statistic) -> str:
        """The place of the rows of one statistic: a folder, or a table."""
        ...

    def begin(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> None:
        """Prepare for rows of these statistics and hours, and for `known`. There may be no hours.

        Raises:
            InputTrouble: the present contents of the destination do not permit adding the rows.
        """
        ...

    def known(self, hour: HourCoverage) -> Mapping[str, ResultEntry]:
        """What earlier runs wrote for an hour and still exists, by statistic."""
        ...

    def write(self, statistic: Statistic, rows: DataFrame, hour: int, hashes: Mapping[str, str]) -> None:
        """Replace an hour of a statistic; called for several statistics at a time.

        Args:
            rows: the rows in order, with an extra column ``place``, the index of their cluster in ``hashes``.
            hour: the hour, counted from 1970.
            hashes: hashes of the input, by cluster; the old rows of a cluster without new ones are removed.
        """
        ...

    def finish(self, hour: HourCoverage) -> None:
        """Called when every statistic of an hour is written."""
        ...

    def end(self) -> None:
        """Called after the last hour."""
        ...

    def count(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """The current number of rows of these hours, by statistic."""
        ...


# ---- ledger
# Records what was written for an hour, and from which files: one small JSON file per hour and cluster.
#
# It is next to the results, in ``_written/dt=.../hr=.../cluster=ID.json``, and is written after them: an hour is whole
# if its ledger has all statistics with one version of the code. An hour is computed again when its files or the code
# differ from those in its ledger.
#
# Invariant: a ledger never claims more than the results contain; without a ledger no results are assumed.

FOLDER = "_written"


def read_ledger(spark: SparkSession, root: str, hour: HourCoverage) -> dict[str, ResultEntry]:
    """What was written for an hour, by statistic; empty if no ledger can be read."""
    text = read_text(spark, _name(root, hour))
    if text is None:
        return {}
    try:
        reported: dict[str, Any] = json.loads(text)
        return {stat: ResultEntry(**entry) for stat, entry in reported["statistics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_ledger(spark: SparkSession, root: str, hour: HourCoverage, entries: dict[str, ResultEntry]) -> None:
    """Record what is written for an hour."""
    reported = {
        "cluster_id": hour.cluster_id,
        "state": hour.state.value,
        "coverage": hour.coverage,
        "statistics": {stat: asdict(entry) for stat, entry in sorted(entries.items())},
    }
    write_text(spark, _name(root, hour), json.dumps(reported, indent=1) + "\n")


def _name(root: str, hour: HourCoverage) -> str:
    return f"{root}/{FOLDER}/{hour_folder(hour.hour)}/cluster={hour.cluster_id}.json"


# ---- columns
# The columns of a statistic's results, with the unit and the meaning of each.


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
    """The columns that identify a row: the statistic, its group and its window."""
    names = (*grouping.value, *(name for both in TIMES.items() for name in both))
    return [Value("stat", "string", "", "the statistic's id"), *(Value(name, *_COMMON[name]) for name in names)]


def tail_columns() -> list[Value]:
    """The columns that say how reliable a row is, and what it follows from."""
    return [Value(name, *said) for name, said in _EVERYWHERE.items()]


def result_columns(statistic: Statistic, grouping: Grouping) -> list[Value]:
    """All columns of a statistic's results, in their order."""
    grouping = Grouping.CLUSTER if statistic.only_cluster else grouping
    return [*head_columns(grouping), *statistic.extra, *statistic.values, *tail_columns()]


# ---- schema_page
# Makes `_schema.md`, the page next to results: every column of every statistic, with its unit and meaning.
#
# Invariant: it is derived from the declarations alone, so it cannot contradict the files.


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
