"""How rows come to their place: one file for an hour and cluster, complete or not there, replaced at once.

Spark writes into ``_unfinished``, which no reader of Spark looks at; then each file is moved over the one that it
replaces. A directory of this machine renames, which is atomic; an object store copies, and the object appears whole.

Invariant: anyone who reads meanwhile sees the old file or the new one; what a run that was killed left behind lies in
``_unfinished``, and the next run removes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from strandline_analytics.jobs.results import PLACE
from strandline_analytics.jvm import gateway_of, hadoop_settings, has_jvm
from strandline_analytics.sources.places import path_here, uri_of

UNFINISHED = "_unfinished"
FILE_NAME = "rows.parquet"


def place_rows(spark: SparkSession, rows: DataFrame, root: str, folder: str, clusters: Sequence[str]) -> None:
    """Write the rows of one hour, a file for each cluster.

    Args:
        rows: in their order, with ``place``, the number of their cluster in ``clusters``, beside what is written.
        root: where ``_unfinished`` is; a path or URI.
        folder: of the hour, below the root.
        clusters: those that the hour is written for; the file of one without rows is removed.
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
    """Whether the file of an hour and cluster is there."""
    return _mover(spark, root).exists(f"{root}/{folder}/cluster={cluster}/{FILE_NAME}")


class Mover(Protocol):
    """Moves files of one kind of place."""

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
    """Moves files of this machine."""

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
    """Moves files of a file system of Hadoop."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = gateway_of(spark)
        self._fs: Any = self._gateway.jvm.org.apache.hadoop.fs
        self._conf = hadoop_settings(spark)

    def replace(self, fresh: str, place: str) -> None:
        """As on this machine, by the one rename of Hadoop that may replace."""
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
