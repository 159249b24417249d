"""Decides which files tell how complete an hour is, and which files its results follow from.

Invariant: the hash of an hour is that of the files that it is computed from and of no others, whatever range a run
covers: a file that comes late changes the hashes of the hours that it can change, and a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from strandline.export import layout
from strandline_analytics.jobs.coverage import HourCoverage, hours_of
from strandline_analytics.sources.catalog import HOUR_US, ExportedFile, find_exports, input_hash
from strandline_analytics.sources.census import census
from strandline_analytics.sources.exports import needed
from strandline_analytics.sources.inspection import inspect


def files_of_hours(
    spark: SparkSession,
    inputs: Sequence[str],
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    cluster_id: str | None = None,
) -> list[ExportedFile]:
    """All files of the hours of a window and of the hour before it."""
    before = None if start_us is None else layout.hour_folder(layout.hour_of(start_us) - 1)
    last = None if end_us is None else layout.hour_folder(layout.hour_of(end_us - 1))

    def is_near(_: str, hour_path: str) -> bool:
        return (before is None or before <= hour_path) and (last is None or hour_path <= last)

    return find_exports(spark, inputs, cluster_id=cluster_id, wanted=is_near)


def covered(
    spark: SparkSession,
    files: Sequence[ExportedFile],
    *,
    now_us: int,
    start_us: int | None = None,
    end_us: int | None = None,
) -> list[HourCoverage]:
    """How complete each hour of each cluster is.

    Raises:
        InputTrouble: a file is damaged.
    """
    inspect(files)
    return hours_of(census(spark, files), now_us=now_us, start_us=start_us, end_us=end_us)


def hash_of_hour(files: Sequence[ExportedFile], cluster_id: str, hour: int, *, samples: bool) -> str:
    """The hash of the files from which an hour of a cluster is computed."""
    is_needed = needed(hour * HOUR_US, (hour + 1) * HOUR_US, samples=samples)
    own = (file for file in files if file.cluster_id == cluster_id)
    return input_hash(file for file in own if is_needed(file.dataset, file.hour_path))
