"""Writes results as plain Parquet, one file per statistic, hour and cluster, with a ledger of what was written.

Results are in ``OUTPUT/results/stat=s10/dt=2026-11-21/hr=14/cluster=ID/rows.parquet``; a grouping other than by
partition has a folder of its own (``results_by_topic``, ``results_by_cluster``). ``cluster`` repeats ``cluster_id``, so
that a run over one cluster leaves the results of others alone. ``_schema.md`` next to them explains each column;
``_written`` records what was written for each hour, and from which files (`ledger`).

Invariant: the ledger of an hour is written after all its files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, Observation, SparkSession, functions as F

from strandline.export.layout import hour_folder
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.results import PLACE, ResultEntry, read_ledger, schema_page, write_ledger
from strandline_analytics.jvm import gateway_of, hadoop_settings, has_jvm
from strandline_analytics.scope import Grouping
from strandline_analytics.sources.places import path_here, uri_of, write_text
from strandline_analytics.stats.definition import Statistic

# ---- placing
# Puts rows in their place: one file per hour and cluster, complete or absent, replaced at once.
#
# Spark writes into ``_unfinished``, which Spark's readers ignore; then each file is moved over the one it replaces.
# On a local file system that is an atomic rename; an object store copies, and the object appears whole.
#
# Invariant: a concurrent reader sees the old file or the new one; a run that was killed leaves files only in
# ``_unfinished``, and the next run removes them.


UNFINISHED = "_unfinished"
FILE_NAME = "rows.parquet"


def place_rows(spark: SparkSession, rows: DataFrame, root: str, folder: str, clusters: Sequence[str]) -> None:
    """Write the rows of one hour, a file for each cluster.

    Args:
        rows: the rows in order, with an extra column ``place``, the index of their cluster in ``clusters``.
        root: the parent of ``_unfinished``; a path or URI.
        folder: the folder of the hour, below the root.
        clusters: the clusters that the hour is written for; the file of one without rows is removed.
    """
    fresh = f"{root}/{UNFINISHED}/{folder}"
    writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.partitionBy(PLACE).parquet(uri_of(fresh))
    mover = _mover(spark, root)
    for place, cluster in enumerate(clusters):
        mover.replace(f"{fresh}/{PLACE}={place}", f"{root}/{folder}/cluster={cluster}/{FILE_NAME}")
    mover.remove(fresh)


def clear_unfinished(spark: SparkSession, root: str) -> None:
    """Remove what a run that was killed left behind."""
    _mover(spark, root).remove(f"{root}/{UNFINISHED}")


def is_placed(spark: SparkSession, root: str, folder: str, cluster: str) -> bool:
    """Whether the file of an hour and cluster exists."""
    return _mover(spark, root).exists(f"{root}/{folder}/cluster={cluster}/{FILE_NAME}")


class Mover(Protocol):
    """Moves files on one kind of file system."""

    def replace(self, fresh: str, place: str) -> None:
        """Move the only data file of a folder over a place; without one, what is at the place is removed."""
        ...

    def remove(self, folder: str) -> None:
        """Remove a folder with everything in it."""
        ...

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        ...


class _LocalMover:
    """Moves files on this machine."""

    def replace(self, fresh: str, place: str) -> None:
        """Move the only data file of a folder over a place; without one, what is at the place is removed."""
        found = sorted(_here(fresh).glob("part-*.parquet"))
        target = _here(place)
        if not found:
            target.unlink(missing_ok=True)
            return
        (only,) = found
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(only, target)

    def remove(self, folder: str) -> None:
        """Remove a folder with everything in it."""
        shutil.rmtree(_here(folder), ignore_errors=True)

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        return _here(name).is_file()


class HadoopMover:
    """Moves files on a Hadoop file system."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = gateway_of(spark)
        self._fs: Any = self._gateway.jvm.org.apache.hadoop.fs
        self._conf = hadoop_settings(spark)

    def replace(self, fresh: str, place: str) -> None:
        """As on this machine, by the one rename of Hadoop that may replace a file."""
        source, target = self._path(fresh), self._path(place)
        files = source.getFileSystem(self._conf)
        listed = files.listStatus(source) if files.exists(source) else []
        found = [one.getPath() for one in listed if one.getPath().getName().startswith("part-")]
        if not found:
            files.delete(target, False)
            return
        (only,) = found
        files.mkdirs(target.getParent())
        rename = getattr(self._fs, "Options$Rename")
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        self._fs.FileContext.getFileContext(target.toUri(), self._conf).rename(only, target, options)

    def remove(self, folder: str) -> None:
        """Remove a folder with everything in it."""
        path = self._path(folder)
        path.getFileSystem(self._conf).delete(path, True)

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        path = self._path(name)
        return bool(path.getFileSystem(self._conf).exists(path))

    def _path(self, name: str) -> Any:
        return self._fs.Path(uri_of(name))


def _mover(spark: SparkSession, root: str) -> Mover:
    if path_here(root) is not None:
        return _LocalMover()
    if has_jvm(spark):
        return HadoopMover(spark)
    from strandline_analytics.sources.arrow_files import ArrowMover

    return ArrowMover()


def _here(name: str) -> Path:
    return Path(uri_of(name).removeprefix("file://"))


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
        """The entries of an hour's ledger, without those whose file is missing."""
        reported = self._ledgers[_key(hour)] = read_ledger(self._spark, self._root, hour)
        return {stat: entry for stat, entry in reported.items() if not entry.rows or self._is_placed(stat, hour)}

    def _is_placed(self, stat: str, hour: HourCoverage) -> bool:
        return is_placed(self._spark, self._root, _folder(stat, hour.hour), hour.cluster_id)

    def write(self, statistic: Statistic, rows: DataFrame, hour: int, hashes: Mapping[str, str]) -> None:
        """Replace the files of an hour."""
        # The rows are counted while they are written: planning a separate query would cost more than counting.
        counts = Observation()
        clusters = [*hashes]
        places = [F.count_if(F.col(PLACE) == place).alias(f"_{place}") for place in range(len(clusters))]
        folder = _folder(statistic.id, hour)
        place_rows(self._spark, rows.observe(counts, *places), self._root, folder, clusters)
        for place, (cluster, own_hash) in enumerate(hashes.items()):
            entry = ResultEntry(input_manifest_hash=own_hash, rows=counts.get[f"_{place}"])
            self._fresh[cluster, hour, statistic.id] = entry

    def finish(self, hour: HourCoverage) -> None:
        """Write the ledger; statistics that were not asked for keep their entries."""
        before = self._ledgers.get(_key(hour)) or read_ledger(self._spark, self._root, hour)
        fresh = {stat: entry for (*key, stat), entry in self._fresh.items() if (*key,) == _key(hour)}
        self._ledgers[_key(hour)] = before | fresh
        write_ledger(self._spark, self._root, hour, self._ledgers[_key(hour)])

    def end(self) -> None:
        """Write the page of columns."""
        clear_unfinished(self._spark, self._root)
        write_text(self._spark, f"{self._root}/_schema.md", schema_page(self._grouping))

    def count(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """The number of rows according to the ledgers."""
        ledgers = [self._ledgers[_key(hour)] for hour in hours]
        return {one.id: sum(ledger[one.id].rows for ledger in ledgers) for one in statistics} if hours else {}


def _key(hour: HourCoverage) -> tuple[str, int]:
    return hour.cluster_id, hour.hour


def _folder(stat: str, hour: int) -> str:
    return f"stat={stat}/{hour_folder(hour)}"
