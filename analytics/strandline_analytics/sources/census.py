"""Counts for every emitter and hour which event numbers are there, which it reported, and which types are unknown.

An emitter numbers its events over both datasets. Files of samples whose manifests list their numbers are not opened.

Invariant: a number that occurs twice counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql import SparkSession, functions as F

from strandline.export.schema import EVENT_TYPES, SAMPLES, SCHEMA_VERSION
from strandline_analytics.scope import HOUR_US
from strandline_analytics.sources.catalog import ExportedFile
from strandline_analytics.sources.exports import read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class HourTally:
    """The events of one incarnation of an emitter in one hour (counted from 1970)."""

    cluster_id: str
    node_id: int
    incarnation: int
    hour: int
    events: int
    """The number of distinct event numbers."""
    copies: int
    """The number of rows beyond the first of each event number."""
    first_seq: int
    last_seq: int
    first_us: int
    last_us: int
    reported_last_seq: int = 0
    """The last number that a heartbeat reported."""
    told_lost: int = 0
    """The number of events that were dropped, according to EXPORT_GAP rows."""
    is_final: bool = False
    """Whether the emitter reported its end."""
    unknown: int = 0
    """The number of events of a type that this version does not know; they are kept."""
    unknown_types: tuple[str, ...] = ()
    newer: int = 0
    """The number of events of a newer version of the schema; they are kept, without columns unknown to this version."""


def census(spark: SparkSession, files: Sequence[ExportedFile]) -> list[HourTally]:
    """The tallies of all files, in order."""
    reported, unread = _reported_by_manifests(files)
    return _merged([*reported, *_counted(spark, unread)])


def _reported_by_manifests(files: Sequence[ExportedFile]) -> tuple[list[HourTally], list[ExportedFile]]:
    """Tallies of samples according to their manifests, and the files that must be read nevertheless."""
    by_hour: dict[tuple[str, str], list[ExportedFile]] = defaultdict(list)
    unread = [file for file in files if file.dataset != SAMPLES]
    # A file without a manifest may be a copy of any other, from any folder: then numbers are counted in rows.
    unproven = {file.cluster_id for file in files if file.dataset == SAMPLES and file.manifest is None}
    for file in files:
        if file.cluster_id in unproven and file.dataset == SAMPLES:
            unread.append(file)
        elif file.dataset == SAMPLES:
            by_hour[file.cluster_id, file.hour_path].append(file)
    reported: list[HourTally] = []
    for same_hour in by_hour.values():
        if _is_reported(same_hour):
            reported += [_of_manifest(file) for file in same_hour]
        else:
            unread += same_hour
    return reported, unread


def _is_reported(files: Sequence[ExportedFile]) -> bool:
    """Whether manifests alone show which numbers are there: one emitter in each file, and no overlap."""
    if any(file.manifest is None or len(file.ranges) != 1 for file in files):
        return False
    parts = sorted((part.node_id, part.incarnation, part.first_seq, part.last_seq) for f in files for part in f.ranges)
    return all(one[:2] != other[:2] or one[3] < other[2] for one, other in pairwise(parts))


def _of_manifest(file: ExportedFile) -> HourTally:
    assert file.manifest is not None, "asked before"
    (part,) = file.ranges
    return HourTally(
        cluster_id=file.cluster_id,
        node_id=part.node_id,
        incarnation=part.incarnation,
        hour=file.hour,
        events=file.manifest.rows,
        copies=0,
        first_seq=part.first_seq,
        last_seq=part.last_seq,
        first_us=file.manifest.min_ts_wall_us,
        last_us=file.manifest.max_ts_wall_us,
        newer=file.manifest.rows if file.manifest.schema_version > SCHEMA_VERSION else 0,
    )


def _counted(spark: SparkSession, files: Sequence[ExportedFile]) -> list[HourTally]:
    if not files:
        return []
    is_unknown = ~F.col("event_type").isin(*EVENT_TYPES)
    beats = F.col("event_type") == "EXPORT_HEARTBEAT"
    lost = F.aggregate(F.map_values("dropped_by_type"), F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one)
    hour = F.floor((F.col("ts_wall_us") - F.pmod("ts_wall_us", F.lit(HOUR_US))) / HOUR_US)
    rows = read_rows(spark, files).groupBy("cluster_id", "node_id", "incarnation", hour.alias("hour"))
    counted = rows.agg(
        F.count_distinct("seq").alias("events"),
        F.count("*").alias("rows"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min("ts_wall_us").alias("first_us"),
        F.max("ts_wall_us").alias("last_us"),
        F.max(F.when(beats, F.col("last_seq"))).alias("reported_last_seq"),
        F.sum(F.when(F.col("event_type") == "EXPORT_GAP", lost)).alias("told_lost"),
        F.max(beats & F.col("ext").getItem("final").eqNullSafe("true")).alias("is_final"),
        F.count_if(is_unknown).alias("unknown"),
        F.collect_set(F.when(is_unknown, F.col("event_type"))).alias("unknown_types"),
        F.count_if(F.col("schema_version") > SCHEMA_VERSION).alias("newer"),
    )
    return [
        HourTally(
            cluster_id=row.cluster_id,
            node_id=row.node_id,
            incarnation=row.incarnation,
            hour=row.hour,
            events=row.events,
            copies=row.rows - row.events,
            first_seq=row.first_seq,
            last_seq=row.last_seq,
            first_us=row.first_us,
            last_us=row.last_us,
            reported_last_seq=row.reported_last_seq or 0,
            told_lost=row.told_lost or 0,
            is_final=bool(row.is_final),
            unknown=row.unknown,
            unknown_types=tuple(sorted(row.unknown_types)),
            newer=row.newer,
        )
        for row in counted.collect()
    ]


def _merged(tallies: Iterable[HourTally]) -> list[HourTally]:
    """One tally per emitter and hour, over both datasets."""
    found: dict[tuple[str, int, int, int], HourTally] = {}
    for one in tallies:
        key = (one.cluster_id, one.node_id, one.incarnation, one.hour)
        found[key] = _sum(found[key], one) if key in found else one
    return [found[key] for key in sorted(found)]


def _sum(one: HourTally, other: HourTally) -> HourTally:
    return replace(
        one,
        events=one.events + other.events,
        copies=one.copies + other.copies,
        first_seq=min(one.first_seq, other.first_seq),
        last_seq=max(one.last_seq, other.last_seq),
        first_us=min(one.first_us, other.first_us),
        last_us=max(one.last_us, other.last_us),
        reported_last_seq=max(one.reported_last_seq, other.reported_last_seq),
        told_lost=one.told_lost + other.told_lost,
        is_final=one.is_final or other.is_final,
        unknown=one.unknown + other.unknown,
        unknown_types=tuple(sorted({*one.unknown_types, *other.unknown_types})),
        newer=one.newer + other.newer,
    )
