"""Determines how much of an hour is there, and whether it is over: closed, closed_incomplete or open.

An hour of a cluster is *closed* when the numbers of every emitter that was alive in it run without a hole up to the
first one after the hour, or up to the end that the emitter reported. It is *open* while some emitter has not yet been
heard after it and the grace period has not passed, and *closed_incomplete* otherwise. A hole between two hours counts
in both: it is not known in which of them its events happened.

Coverage is events / (events + missing). Invariant: pure; time is an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pyspark.sql import SparkSession

from strandline.export import layout
from strandline.export.schema import SAMPLES, TRANSITIONS
from strandline_analytics.scope import HOUR_US, MOST_WINDOWS
from strandline_analytics.sources.catalog import ExportedFile, find_exports, input_hash
from strandline_analytics.sources.census import HourTally, census
from strandline_analytics.sources.exports import TRANSITIONS_BEFORE_H, needed
from strandline_analytics.sources.inspection import inspect
from strandline_analytics.sources.trouble import Incomplete, TooLong

GRACE_US = 15 * 60 * 1_000_000
"""How long after its end an hour stays open for late events."""


class HourState(StrEnum):
    """Whether an hour is over, and complete."""

    CLOSED = "closed"
    CLOSED_INCOMPLETE = "closed_incomplete"
    OPEN = "open"
    EMPTY = "empty"
    """No process was heard in the hour, nor both before and after it."""


@dataclass(slots=True, kw_only=True)
class HourCoverage:
    """The coverage of one hour of one cluster."""

    cluster_id: str
    hour: int
    emitters: int = 0
    events: int = 0
    missing: int = 0
    told_lost: int = 0
    copies: int = 0
    unknown: int = 0
    unknown_types: set[str] = field(default_factory=set)
    newer: int = 0
    unproven: set[int] = field(default_factory=set)
    """Nodes that were heard in the hour but not after it, and did not report their end."""
    restarted: set[int] = field(default_factory=set)
    """Nodes of which an incarnation ended in the hour without reporting it, and the next one came."""
    is_past_grace: bool = False

    @property
    def state(self) -> HourState:
        """Whether the hour is over, and complete."""
        if not self.emitters:
            return HourState.EMPTY
        if self.unproven and not self.is_past_grace:
            return HourState.OPEN
        if self.unproven or self.restarted or self.missing:
            return HourState.CLOSED_INCOMPLETE
        return HourState.CLOSED

    @property
    def coverage(self) -> float:
        """The share of the hour's events that is there; 0 if no process was heard."""
        return self.events / (self.events + self.missing) if self.events else 0.0


def hours_of(
    tallies: Sequence[HourTally], *, now_us: int, start_us: int | None = None, end_us: int | None = None
) -> list[HourCoverage]:
    """The hours of every cluster between start and end, including those without a single event.

    Args:
        tallies: the counts of these hours and of some before them.
        now_us: the present, us since 1970.
        start_us: the start; None for the first event.
        end_us: the end; None for the last event.

    Raises:
        TooLong: there are more hours than a request can sensibly ask for.
    """
    by_cluster: dict[str, list[HourTally]] = defaultdict(list)
    for tally in tallies:
        by_cluster[tally.cluster_id].append(tally)
    found: list[HourCoverage] = []
    for cluster_id, own in sorted(by_cluster.items()):
        first_read = min(tally.hour for tally in own)
        first = first_read if start_us is None else start_us // HOUR_US
        last = max(tally.hour for tally in own) if end_us is None else (end_us - 1) // HOUR_US
        if last - min(first, first_read) > MOST_WINDOWS:
            raise _too_long(own, last)
        hours = {
            hour: HourCoverage(
                cluster_id=cluster_id, hour=hour, is_past_grace=now_us >= (hour + 1) * HOUR_US + GRACE_US
            )
            for hour in range(min(first, first_read), last + 1)
        }
        for emitter in _emitters(own):
            _count(emitter, hours, is_from_start=start_us is None)
        found += [hour for number, hour in hours.items() if number >= first]
    return found


def _too_long(tallies: Sequence[HourTally], last: int) -> TooLong:
    early = min(tallies, key=lambda tally: tally.hour)
    late = max(tallies, key=lambda tally: tally.hour)
    return TooLong(
        f"from the first events of cluster {early.cluster_id}, {early.events} of node {early.node_id} in "
        f"{hour_text(early.hour)}, to the last, {late.events} of node {late.node_id} in {hour_text(late.hour)}, there "
        f"are {last - early.hour:,} hours, at most {MOST_WINDOWS:,} are looked at. If a clock was wrong there, give "
        "--from and --to, or take these files away with their manifests"
    )


@dataclass(frozen=True, slots=True)
class _Emitter:
    tallies: list[HourTally]
    is_succeeded: bool
    """Whether a later incarnation of the node was heard."""


def _emitters(tallies: Iterable[HourTally]) -> list[_Emitter]:
    by_incarnation: dict[tuple[int, int], list[HourTally]] = defaultdict(list)
    newest: dict[int, int] = {}
    for tally in tallies:
        by_incarnation[tally.node_id, tally.incarnation].append(tally)
        newest[tally.node_id] = max(newest.get(tally.node_id, 0), tally.incarnation)
    return [
        _Emitter(sorted(own, key=lambda tally: tally.first_seq), newest[node] > incarnation)
        for (node, incarnation), own in sorted(by_incarnation.items())
    ]


def _count(emitter: _Emitter, hours: dict[int, HourCoverage], *, is_from_start: bool) -> None:
    """Add one emitter to the hours in which it was alive."""
    own = {tally.hour: tally for tally in emitter.tallies}
    first, last = min(own), max(own)
    for number in range(first, last + 1):
        hour = hours.get(number)
        if hour is None:
            continue
        hour.emitters += 1
        if number in own:
            _add(own[number], hour)
    for numbers, hole in _holes(emitter, is_from_start or first > min(hours)):
        for number in numbers:
            if number in hours:
                hours[number].missing += hole
    if last in hours and not any(tally.is_final for tally in emitter.tallies):
        node = emitter.tallies[0].node_id
        (hours[last].restarted if emitter.is_succeeded else hours[last].unproven).add(node)


def _add(tally: HourTally, hour: HourCoverage) -> None:
    hour.events += tally.events
    hour.told_lost += tally.told_lost
    hour.copies += tally.copies
    hour.unknown += tally.unknown
    hour.unknown_types |= {*tally.unknown_types}
    hour.newer += tally.newer


def _holes(emitter: _Emitter, is_whole: bool) -> Iterable[tuple[Iterable[int], int]]:
    """The hours that a hole may belong to, and its size."""
    parts = emitter.tallies
    reached, reached_hour = (0, parts[0].hour) if is_whole else (parts[0].first_seq - 1, parts[0].hour)
    # Hours whose numbers overlap because a clock went back are examined together.
    group: list[HourTally] = []
    for part in [*parts, None]:
        if part is not None and (not group or part.first_seq <= max(each.last_seq for each in group)):
            group.append(part)
            continue
        begin, end = min(each.first_seq for each in group), max(each.last_seq for each in group)
        in_hours = sorted(each.hour for each in group)
        yield range(min(reached_hour, in_hours[0]), max(reached_hour, in_hours[0]) + 1), begin - reached - 1
        # Numbers that were counted in two hours must not make a hole of negative size.
        yield in_hours, max(0, end - begin + 1 - sum(each.events for each in group))
        reached, reached_hour = end, in_hours[-1]
        group = [part] if part is not None else []
    reported = max(each.reported_last_seq for each in parts)
    if reported > reached:
        yield [reached_hour], reported - reached


def require(hours: Sequence[HourCoverage], least: float) -> None:
    """Refuse input that is less complete than was asked for.

    Raises:
        Incomplete: it names the worst hour.
    """
    if not hours:
        raise Incomplete("there is no hour in that window; see: strandline analytics coverage")
    worst = min(hours, key=lambda hour: (hour.coverage, hour.hour))
    if worst.coverage < least:
        raise Incomplete(
            f"hour {hour_text(worst.hour)} of cluster {worst.cluster_id} is {worst.state.value} with coverage "
            f"{worst.coverage:.4f}, required is {least}: {worst.missing} events are missing, {worst.told_lost} of "
            "them reported as dropped. Wait for the files that are late, or see: strandline analytics coverage"
        )


def hour_text(hour: int) -> str:
    """`2026-11-21T14Z`."""
    from strandline.export.layout import hour_folder

    return hour_folder(hour).removeprefix("dt=").replace("/hr=", "T") + "Z"


# ---- hours
# Selects the files that show how complete an hour is, and the files and rows that its results follow from.
#
# The results of an hour are computed from transitions of a day before it, samples of ten minutes before it, and the
# first minute of transitions after it: that minute has the snapshot that proves that nothing before it is missing, and
# the events of nodes with fast clocks. Nothing later counts, however much a run covers.
#
# Invariant: the hash of an hour covers exactly the files that it is computed from, whatever range a run covers: a file
# that comes late changes the hashes of the hours that it can change, and a second run changes nothing.

TRANSITIONS_AFTER_US = 60_000_000
"""How long after the end of an hour transitions are read for it, us."""


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
        files: from `files_of_hours`; those of the window and of the hours before and after it are counted: emitters
        that had not reported their end are heard there.

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
