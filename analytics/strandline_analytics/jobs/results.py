"""What a run asks of the place that its rows go to, whatever the format: files in folders, or tables.

Invariant: an hour of a statistic is replaced as a whole, and nothing is reported as known that is not there.
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
    """The files that a statistic's rows follow from, and how many rows there are."""

    input_manifest_hash: str
    rows: int
    code_version: str = __version__


class Results(Protocol):
    """Where the rows of closed hours are written."""

    @property
    def shown(self) -> str:
        """What people are shown as the place."""
        ...

    def place(self, statistic: Statistic) -> str:
        """Where the rows of one statistic are: a folder, or a table."""
        ...

    def begin(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> None:
        """Make ready for rows of these statistics and hours, and for `known`. Hours may be none.

        Raises:
            InputTrouble: what is there cannot take the rows.
        """
        ...

    def known(self, hour: HourCoverage) -> Mapping[str, ResultEntry]:
        """What earlier runs wrote of an hour, as far as it is there, by statistic."""
        ...

    def write(self, statistic: Statistic, rows: DataFrame, hour: int, hashes: Mapping[str, str]) -> None:
        """Replace an hour of a statistic; called for several statistics at a time.

        Args:
            rows: in their order, with ``place``, the number of their cluster in ``hashes``, beside what is written.
            hour: since 1970.
            hashes: of the input, by cluster; the rows of a cluster that has none now are removed.
        """
        ...

    def finish(self, hour: HourCoverage) -> None:
        """Called when every statistic of an hour is written."""
        ...

    def end(self) -> None:
        """Called after the last hour."""
        ...

    def count(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """How many rows of these hours there are now, by statistic."""
        ...


# ---- ledger
# How it is known what was written of an hour, and from which files: one small JSON file for hour and cluster.
#
# It lies beside the results, in ``_written/dt=.../hr=.../cluster=ID.json``, and is written after them: an hour whose
# statistics all stand in it with one version of the code is whole. An hour is computed again when its files, or the
# code, are others than those of its ledger.
#
# Invariant: a ledger never says more than lies in the results; without a ledger nothing is believed.

FOLDER = "_written"


def read_ledger(spark: SparkSession, root: str, hour: HourCoverage) -> dict[str, ResultEntry]:
    """What was written of an hour, by statistic; nothing where no ledger can be read."""
    text = read_text(spark, _name(root, hour))
    if text is None:
        return {}
    try:
        reported: dict[str, Any] = json.loads(text)
        return {stat: ResultEntry(**entry) for stat, entry in reported["statistics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_ledger(spark: SparkSession, root: str, hour: HourCoverage, entries: dict[str, ResultEntry]) -> None:
    """Say what is written of an hour."""
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
# Which columns a statistic's results have, with the unit and the meaning of each.


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
