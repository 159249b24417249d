"""Figures as plain values, without a library, between the code that counts and the metrics port.

Invariant: `Histogram.observe` costs a binary search and two additions, cheap enough for every request. It is for one
thread, that of the event loop; snapshots are taken there too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from strandline.core.control.state import ClusterState
from strandline.core.errors import ErrorCode
from strandline.core.messages import PartitionImage
from strandline.core.state_events import IsrChange, LeaderChange, NodeSession, StateEvent
from strandline.export.counters import ExportCounters
from strandline.metrics import families as f
from strandline.metrics.families import EXPORT, REFUSALS, Family
from strandline.runtime.refusals import Refusals

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets, in seconds; the last bucket is +Inf."""


class Spread(NamedTuple):
    """A histogram at one moment: cumulative counts by upper bound, the last without one, and the sum."""

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    total: float


class Figure(NamedTuple):
    """One series of a family at one moment."""

    family: Family
    value: float | Spread
    labels: tuple[str, ...] = ()


class Histogram:
    """Counts durations in buckets."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def spread(self) -> Spread:
        """The present counts."""
        return Spread(self._bounds, tuple(accumulate(self._counts)), self._sum)


class Tally:
    """A counter with one label. Known values of the label exist from the start, so that a first increase is visible."""

    __slots__ = ("_counts", "_family")

    def __init__(self, family: Family, *known: str) -> None:
        assert len(family.labels) == 1, f"{family.name} has the labels {family.labels}"
        self._family = family
        self._counts: Counter[str] = Counter(dict.fromkeys(known, 0))

    def add(self, value: str, count: int = 1) -> None:
        """Count under this value of the label."""
        self._counts[value] += count

    def figures(self) -> Iterator[Figure]:
        """One figure for each value of the label."""
        for value, count in self._counts.items():
            yield Figure(self._family, count, (value,))


# ---- refusal_figures
# The series of refusals: one for every error that has occurred, and from the start those that alerts need.
#
# Invariant: an error's name comes from the closed table of errors, so the number of series is bounded.

_FROM_THE_START = (ErrorCode.NOT_ENOUGH_REPLICAS.name, ErrorCode.THROTTLING_QUOTA_EXCEEDED.name)


def refusal_figures(refusals: Refusals) -> Iterator[Figure]:
    """The number of refusals, by error."""
    counts = dict.fromkeys(_FROM_THE_START, 0) | refusals.by_error
    yield from (Figure(REFUSALS, count, (error,)) for error, count in counts.items())


# ---- export_figures
# All of the export's counters as figures, by their names.
#
# Invariant: a counter without a family is a bug, which the first scrape finds.

_FAMILIES = {family.full_name: family for family in EXPORT}


def export_figures(counters: ExportCounters) -> Iterator[Figure]:
    """One figure for each counter."""
    for name, value in counters.metrics().items():
        yield Figure(_FAMILIES[name], value)


# ---- controller
# What a scrape of the controller reads from its state, and the counts of its events.
#
# Invariant: nothing is changed; the state is one that was committed or is about to be, never half a step.

_CAUSES = ("lag", "node_fenced", "controlled_shutdown")
_ENDS = ("session_timeout", "connection_refused", "controlled_shutdown", "requested")


def controller_figures(state: ClusterState) -> Iterator[Figure]:
    """Gauges over nodes and partitions."""
    partitions = list(state.partitions())
    fenced = sum(node.image.fenced for node in state.nodes.values())
    yield Figure(f.OFFLINE, sum(one.leader is None for one in partitions))
    yield Figure(f.AWAITING_LOGS, sum(one.leader is None and _has_a_live_member(state, one) for one in partitions))
    for node_id, node in sorted(state.nodes.items()):
        yield Figure(f.FENCED_NODES, node.image.fenced, (str(node_id),))
    yield Figure(f.ACTIVE_NODES, len(state.nodes) - fenced)
    yield Figure(f.CLUSTER_TOPICS, len(state.topics))
    yield Figure(f.CLUSTER_PARTITIONS, len(partitions))
    short = [one for one in partitions if len(one.isr) < len(one.settled_replicas)]
    yield Figure(f.CLUSTER_UNDER_REPLICATED, len(short))
    yield Figure(f.UNREPAIRED, sum(not (one.original or one.queued_target) for one in short))
    yield Figure(f.REASSIGNING, sum(bool(one.original) for one in partitions), ("running",))
    yield Figure(f.REASSIGNING, sum(bool(one.queued_target) and not one.original for one in partitions), ("queued",))
    yield Figure(f.CLUSTER_UNDER_MIN_ISR, sum(len(one.isr) < one.min_isr for one in partitions))
    yield Figure(f.IMBALANCED, sum(one.leader not in (None, one.replicas[0]) for one in partitions))
    yield Figure(f.METADATA_OFFSET, state.header.metadata_offset)
    yield Figure(f.CONTROLLER_EPOCH, state.header.controller_epoch)


def _has_a_live_member(state: ClusterState, partition: PartitionImage) -> bool:
    nodes = (state.nodes.get(member) for member in (*partition.isr, *partition.elr))
    return any(node is not None and not node.image.fenced for node in nodes)


class ControllerCounts:
    """Counts what one reign did, by its events."""

    def __init__(self) -> None:
        self.commits = Histogram()
        self._elections = Tally(f.LEADER_ELECTIONS, *_CAUSES)
        self._shrinks = Tally(f.CONTROLLER_SHRINKS, *_CAUSES)
        self._sessions_ended = Tally(f.SESSIONS_ENDED, *_ENDS)
        self._expands = self._unclean = 0

    def count(self, event: StateEvent) -> None:
        """Count an event that leaves the controller, after its transaction."""
        match event:
            case IsrChange():
                if event.removed:
                    self._shrinks.add(str(event.cause))
                self._expands += bool(event.added)
            case LeaderChange() if event.new_leader is not None and event.old_leader_epoch is not None:
                self._elections.add(event.reason)
                self._unclean += event.election_type == "unclean"
            case NodeSession(phase="fence"):
                self._sessions_ended.add(event.cause)

    def figures(self) -> Iterator[Figure]:
        """The present values."""
        yield from self._elections.figures()
        yield from self._shrinks.figures()
        yield from self._sessions_ended.figures()
        yield Figure(f.CONTROLLER_EXPANDS, self._expands)
        yield Figure(f.UNCLEAN_ELECTIONS, self._unclean)
        yield Figure(f.METADATA_COMMIT, self.commits.spread())
