"""Results as plain Parquet, one file for a statistic, hour and cluster, with a ledger of what was written.

Results lie under ``OUTPUT/results/stat=s10/dt=2026-11-21/hr=14/cluster=ID/rows.parquet``; another grouping than by
partition has a folder of its own (``results_by_topic``, ``results_by_cluster``). ``cluster`` repeats ``cluster_id``, so
that a run over one cluster leaves the results of others alone. ``_schema.md`` beside them says what each column means,
``_written`` what was written of each hour, and from which files (`ledger`).

Invariant: the ledger of an hour is written after all files of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame, Observation, SparkSession, functions as F

from strandline.export.layout import hour_folder
from strandline_analytics.jobs.columns import schema_page
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.placing import clear_unfinished, is_placed, place_rows
from strandline_analytics.jobs.results import PLACE, ResultEntry, read_ledger, write_ledger
from strandline_analytics.scope import Grouping
from strandline_analytics.sources.places import write_text
from strandline_analytics.stats.definition import Statistic

FOLDERS = {
    Grouping.PARTITION: "results",
    Grouping.TOPIC: "results_by_topic",
    Grouping.CLUSTER: "results_by_cluster",
}


class ParquetResults:
    """Files below a directory or URI. One run at a time writes to it."""

    def __init__(self, spark: SparkSession, output: str, grouping: Grouping) -> None:
        self._spark = spark
        self._root = f"{output.rstrip('/')}/{FOLDERS[grouping]}"
        self._grouping = grouping
        self._ledgers: dict[tuple[str, int], dict[str, ResultEntry]] = {}
        self._fresh: dict[tuple[str, int, str], ResultEntry] = {}

    @property
    def shown(self) -> str:
        """The folder of the grouping."""
        return self._root

    def place(self, statistic: Statistic) -> str:
        """The folder of a statistic."""
        return f"{self._root}/stat={statistic.id}"

    def begin(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> None:
        """Remove what a run that was killed left behind."""
        if hours:
            clear_unfinished(self._spark, self._root)

    def known(self, hour: HourCoverage) -> Mapping[str, ResultEntry]:
        """What the ledger of an hour says, without tables whose file is not there."""
        reported = self._ledgers[_key(hour)] = read_ledger(self._spark, self._root, hour)
        return {stat: entry for stat, entry in reported.items() if not entry.rows or self._is_placed(stat, hour)}

    def _is_placed(self, stat: str, hour: HourCoverage) -> bool:
        return is_placed(self._spark, self._root, _folder(stat, hour.hour), hour.cluster_id)

    def write(self, statistic: Statistic, rows: DataFrame, hour: int, hashes: Mapping[str, str]) -> None:
        """Replace the files of an hour."""
        # Counted on the way: a query of its own would be planned again, which costs more than it does.
        counts = Observation()
        clusters = [*hashes]
        places = [F.count_if(F.col(PLACE) == place).alias(f"_{place}") for place in range(len(clusters))]
        folder = _folder(statistic.id, hour)
        place_rows(self._spark, rows.observe(counts, *places), self._root, folder, clusters)
        for place, (cluster, own_hash) in enumerate(hashes.items()):
            entry = ResultEntry(input_manifest_hash=own_hash, rows=counts.get[f"_{place}"])
            self._fresh[cluster, hour, statistic.id] = entry

    def finish(self, hour: HourCoverage) -> None:
        """Write the ledger: statistics that were not asked for keep what it said of them."""
        before = self._ledgers.get(_key(hour)) or read_ledger(self._spark, self._root, hour)
        fresh = {stat: entry for (*key, stat), entry in self._fresh.items() if (*key,) == _key(hour)}
        self._ledgers[_key(hour)] = before | fresh
        write_ledger(self._spark, self._root, hour, self._ledgers[_key(hour)])

    def end(self) -> None:
        """Write the page of columns."""
        clear_unfinished(self._spark, self._root)
        write_text(self._spark, f"{self._root}/_schema.md", schema_page(self._grouping))

    def count(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """How many rows the ledgers name."""
        ledgers = [self._ledgers[_key(hour)] for hour in hours]
        return {one.id: sum(ledger[one.id].rows for ledger in ledgers) for one in statistics} if hours else {}


def _key(hour: HourCoverage) -> tuple[str, int]:
    return hour.cluster_id, hour.hour


def _folder(stat: str, hour: int) -> str:
    return f"stat={stat}/{hour_folder(hour)}"
