"""Collects a report's data with Spark: transitions, stalls and each statistic once, the course of a few, drawn samples.

Invariant: no other file of the report uses Spark. Silver tables are shared by all questions; statistics are computed
together (`stats.together`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions as F

from strandline import __version__
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE
from strandline.export.schema import EVENT_TYPES, TRANSITIONS
from strandline_analytics.report.material import Declared, Material, Result, incidents_of
from strandline_analytics.report.scenes import scenes
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.session import side_by_side
from strandline_analytics.silver.clocks import clock_offsets, clocks, in_controller_time
from strandline_analytics.silver.kept import is_kept_as_rows, kept
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import SAMPLES_BEFORE_US
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.stats.s18_stalls import stalls
from strandline_analytics.stats.together import together
from strandline_analytics.timeline.event import Event, Selection, events_from, stall_from
from strandline_analytics.timeline.order import timeline

STEPS = 40
"""The number of steps of the window for the course of a figure."""

COURSES = ("s01", "s10", "s18")
"""The statistics whose course is drawn: how much waits, how long too few replicas are in sync, how long nothing
moves. Computing the course of every statistic would take as long as the rest of the page."""

CURVE_TYPES = ("REPLICA_SAMPLE", "HW_ADVANCE")
MOST_EVENTS = 200_000
"""The maximum number of rows for a page; with more the user is asked for a narrower window."""

Reported = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished parts, and the number of all parts."""


class TooMuch(Exception):
    """The window holds more events than one page can show."""


def gather(
    silver: Silver,
    inputs: Sequence[str],
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    steps: int = STEPS,
    reported: Reported = lambda what, done, parts: None,
) -> Material:
    """Everything that a page shows of a window; without bounds, of the whole input.

    ``steps`` is the number of steps of the course of a figure (`COURSES`); 0 for no course.

    Raises:
        TooMuch: there are more events than a page can show.
        ValueError: there is no event.
    """
    if end_us is None:
        return _gathered(silver, inputs, start_us, end_us, steps, reported)
    known = as_of(silver, end_us)
    try:
        return _gathered(known, inputs, start_us, end_us, steps, reported)
    finally:
        known.release()


def _gathered(
    silver: Silver, inputs: Sequence[str], start_us: int | None, end_us: int | None, steps: int, reported: Reported
) -> Material:
    parts = 3 + len(ALL) + (len(COURSES) if steps else 0)
    reported("transitions", 0, parts)
    # From the beginning of the input: the state at the start of the window follows from earlier events.
    kinds = tuple(name for name, kind in EVENT_TYPES.items() if kind.dataset == TRANSITIONS)
    selection = Selection(types=kinds, unknown_types=True, end_us=end_us)
    events, stalled = side_by_side(
        silver.transitions.sparkSession, lambda: _events(silver, selection), lambda: _rows(stalls(silver))
    )
    if not events:
        raise ValueError("the input holds no event of the window; see: strandline analytics coverage")
    first = min(event.t_us for event in events) if start_us is None else start_us
    last = max(event.t_us for event in events) + 1 if end_us is None else end_us
    scope = Scope(start_us=first, end_us=max(last, first + 1))
    reported("statistics", 1, parts)
    episodes = [stall for row in stalled if (stall := stall_from(row)).t1 > first and stall.t0 < last]
    left_out = frozenset({GROUP_STATE, TRANSACTION_STATE} - {event.topic for event in events})
    step_us = max(1, -(-(scope.end_us - scope.start_us) // (steps or 1)))
    material = Material(
        inputs=(*inputs, *silver.kafka_sources),
        input_hash=silver.input_hash,
        version=__version__,
        made_us=time.time_ns() // 1_000,
        start_us=scope.start_us,
        end_us=scope.end_us,
        step_us=step_us,
        events=events,
        stalls=episodes,
        results=_results(silver, scope, step_us if steps else None, reported, parts, left_out),
    )
    reported("samples", parts - 1, parts)
    material = replace(material, samples=_samples(silver, material))
    reported("page", parts, parts)
    return material


def as_of(silver: Silver, end_us: int) -> Silver:
    """The data as known at the end of a window: a chain of shrinks does not continue beyond the end of a report.

    The end is in the controller's time, and so are the events of nodes whose clocks were measured by then.
    """
    # For small input, correcting every event again for every question costs more than keeping them.
    as_rows = is_kept_as_rows(silver.transitions)
    offsets = clock_offsets(silver.transitions.where(F.col("ts_wall_us") < end_us))
    offsets = kept(offsets) if as_rows else offsets
    measured = clocks(offsets)

    def before(rows: DataFrame) -> DataFrame:
        reported = in_controller_time(
            rows.withColumn("_reported", F.col("ts_wall_us")), measured, "node_id", "_reported"
        )
        earlier = reported.where(F.col("_reported") < end_us).select(*rows.columns)
        return kept(earlier) if as_rows else earlier

    samples = None if silver.samples is None else before(silver.samples)
    return Silver(
        before(silver.transitions),
        samples,
        silver.input_hash,
        beside=offsets if as_rows else None,
        kafka=silver.kafka,
        kafka_sources=silver.kafka_sources,
    )


def _samples(silver: Silver, material: Material) -> list[Event]:
    """Samples of the drawn partitions only, because samples are the large part of an export."""
    found = incidents_of(material)
    drawn = [scene for incident in found for scene in scenes(incident, found, material)]
    if not drawn:
        return []
    topics = {(event.cluster_id, event.topic_id): event.topic for event in material.events}
    selection = Selection(
        topics=tuple(sorted({str(topics.get(scene.key[:2])) for scene in drawn})),
        partitions=tuple(sorted({scene.key[2] for scene in drawn if scene.key[2] is not None})),
        types=("HW_ADVANCE",),
        sample_types=CURVE_TYPES,
        # A value observed before the window may still be valid in it.
        start_us=min(scene.t0 for scene in drawn) - SAMPLES_BEFORE_US,
        end_us=max(scene.t1 for scene in drawn),
        node_events=False,
    )
    return _events(silver, selection)


def _events(silver: Silver, selection: Selection) -> list[Event]:
    rows = _rows(timeline(silver, selection).limit(MOST_EVENTS + 1))
    if len(rows) > MOST_EVENTS:
        raise TooMuch(f"more than {MOST_EVENTS:,} events in the window; give a narrower one with --from and --to")
    return events_from(rows)


def _results(
    silver: Silver, scope: Scope, steps: int | None, reported: Reported, parts: int, left_out: frozenset[str]
) -> dict[str, Result]:
    """Every statistic; those of groups and of transactions are not computed if the topic of their coordinators is
    ``left_out`` of the events, because there can be none."""
    stepped = Scope(start_us=scope.start_us, end_us=scope.end_us, step_us=steps, grouping=Grouping.CLUSTER)
    topics = {statistic: _topic_of(statistic) for statistic in ALL.values()}
    asked = [(statistic, scope) for statistic, topic in topics.items() if topic not in left_out]
    if steps:
        asked += [(ALL[name], stepped) for name in COURSES]
    rows: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in ALL}
    trouble: dict[str, str] = {}
    for number, ((statistic, _), found) in enumerate(zip(asked, together(silver, asked, _computed), strict=True), 1):
        reported(f"{statistic.id} {statistic.title}", 1 + number, parts)
        if isinstance(found, str):
            trouble[statistic.id] = found
            found = []
        rows[statistic.id].append(found)
    return {
        name: _described(ALL[name], found[0] if found else (), found[1:], trouble.get(name, ""))
        for name, found in rows.items()
    }


def _topic_of(statistic: Statistic) -> str | None:
    """The topic of the coordinators that a statistic is about; None if it is not about coordinators."""
    if statistic.of_groups:
        return GROUP_STATE
    return TRANSACTION_STATE if statistic.of_transactions else None


def _computed(_: Statistic, found: DataFrame) -> list[dict[str, Any]] | str:
    """A statistic's rows, or the reason for their absence: if one fails, the others stay on the page."""
    try:
        return _rows(found)
    except PySparkException as error:
        return f"not computed: {(error.getErrorClass() or str(error).splitlines()[0])[:200]}"


def _described(
    statistic: Statistic, rows: Sequence[dict[str, Any]], courses: Sequence[Sequence[dict[str, Any]]], trouble: str
) -> Result:
    declared = [(value, True) for value in statistic.extra] + [(value, False) for value in statistic.values]
    return Result(
        id=statistic.id,
        title=statistic.title,
        headline=statistic.headline,
        definition=sys.modules[statistic.compute.__module__].__doc__ or "",
        declared=[Declared(name=v.name, unit=v.unit, meaning=v.meaning, is_extra=extra) for v, extra in declared],
        rows=rows,
        steps=[row for course in courses for row in course],
        trouble=trouble,
    )


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]
