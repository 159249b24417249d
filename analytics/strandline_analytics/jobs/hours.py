"""Which files tell how complete an hour is, and which files and rows its results follow from.

The results of an hour are computed from transitions of a day before it, samples of ten minutes before it, and the first
minute of transitions after it: it has the snapshot that proves that nothing before it is missing, and the events of
nodes with fast clocks. Nothing later counts, however much a run covers.

Invariant: the hash of an hour is that of the files that it is computed from and of no others, whatever range a run
covers: a file that comes late changes the hashes of the hours that it can change, and a second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pyspark.sql import SparkSession

from strandline.export import layout
from strandline.export.schema import SAMPLES, TRANSITIONS
from strandline_analytics.jobs.coverage import HourCoverage, hours_of
from strandline_analytics.sources.catalog import HOUR_US, ExportedFile, find_exports, input_hash
from strandline_analytics.sources.census import census
from strandline_analytics.sources.exports import TRANSITIONS_BEFORE_H, needed
from strandline_analytics.sources.inspection import inspect

TRANSITIONS_AFTER_US = 60_000_000
"""How far behind the end of an hour transitions are read for it, us."""


def files_of_hours(
    spark: SparkSession,
    inputs: Sequence[str],
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    cluster_id: str | None = None,
    noticed: Callable[[str], None] = lambda said: None,
) -> list[ExportedFile]:
    """All files that the hours of a window are computed from, and those that prove them complete."""
    first = None if start_us is None else layout.hour_folder(layout.hour_of(start_us) - TRANSITIONS_BEFORE_H)
    before = None if start_us is None else layout.hour_folder(layout.hour_of(start_us) - 1)
    after = None if end_us is None else layout.hour_folder(layout.hour_of(end_us - 1) + 1)

    def is_near(dataset: str, hour_path: str) -> bool:
        begin = before if dataset == SAMPLES else first
        return (begin is None or begin <= hour_path) and (after is None or hour_path <= after)

    return find_exports(spark, inputs, cluster_id=cluster_id, wanted=is_near, noticed=noticed)


def covered(
    spark: SparkSession,
    files: Sequence[ExportedFile],
    *,
    now_us: int,
    start_us: int | None = None,
    end_us: int | None = None,
) -> list[HourCoverage]:
    """How complete each hour of each cluster is.

    Args:
        files: of `files_of_hours`; counted are those of the window, of the hour before and of the hour after it, in
            which emitters are heard that had not reported their end.

    Raises:
        InputTrouble: a file is damaged.
    """
    first = None if start_us is None else layout.hour_of(start_us) - 1
    near = [file for file in files if first is None or file.hour >= first]
    inspect(near)
    return hours_of(census(spark, near), now_us=now_us, start_us=start_us, end_us=end_us)


def files_of_hour(
    files: Sequence[ExportedFile], hour: int, clusters: Collection[str], *, samples: bool
) -> list[ExportedFile]:
    """The files from which an hour of some clusters is computed."""
    end_us = (hour + 1) * HOUR_US
    is_needed = needed(hour * HOUR_US, end_us, samples=samples)

    def is_of_it(file: ExportedFile) -> bool:
        if file.hour != hour + 1:
            return is_needed(file.dataset, file.hour_path)
        return file.dataset == TRANSITIONS and file.span_us[0] < end_us + TRANSITIONS_AFTER_US

    return [file for file in files if file.cluster_id in clusters and is_of_it(file)]


def hash_of_hour(files: Sequence[ExportedFile], cluster_id: str, hour: int, *, samples: bool) -> str:
    """The hash of the files from which an hour of a cluster is computed."""
    return input_hash(files_of_hour(files, hour, (cluster_id,), samples=samples))
