"""Represents one event of a timeline outside of Spark; imports no Spark.

Invariant: ``fields`` has the values of the row besides the envelope, without nulls; absent values stay absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.export.schema import CONTROLLER_NODE_ID, PAYLOAD, REPEATED

_PAYLOAD = tuple(column.name for column in PAYLOAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. Times are microseconds since 1970; ``t_us`` by the controller's clock, ``raw_us`` as written."""

    cluster_id: str
    event_type: str
    node_id: int
    incarnation: int
    seq: int
    t_us: int
    raw_us: int
    err_us: int | None = None
    clock_offset_us: int = 0
    """The measured lead of its writer's clock over the controller's; 0 if it was not measured."""
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    ordinal: int = 0
    plane: str = "data"
    fields: Mapping[str, Any] = field(default_factory=dict)
    ext: Mapping[str, str] = field(default_factory=dict)
    """Values that have no column of their own."""

    @property
    def event_id(self) -> str:
        """``node:incarnation:seq``, the identity of the event in its cluster."""
        return f"{self.node_id}:{self.incarnation}:{self.seq}"

    @property
    def key(self) -> tuple[str, str | None, int | None]:
        """The key of its partition; the partition is None for events of whole nodes."""
        return self.cluster_id, self.topic_id, self.partition

    @property
    def is_control(self) -> bool:
        """Whether it is a decision of the controller about a partition."""
        return self.plane == "control"

    @property
    def by_controller(self) -> bool:
        """Whether the controller wrote it."""
        return self.node_id == CONTROLLER_NODE_ID

    @property
    def cause(self) -> str:
        """The cause, as named in the export; empty if there is none."""
        for name in ("cause", "reason", "outcome", "phase"):
            if self.fields.get(name):
                return str(self.fields[name])
        return ""

    @property
    def is_repeated(self) -> bool:
        """Whether it repeats an unchanged state."""
        return self.fields.get("cause") == REPEATED

    @property
    def cut_records(self) -> int | None:
        """The number of records that a TRUNCATION cut; None if it does not say where the log ended before."""
        begin, end = self.get("to_leo"), self.get("from_leo")
        return None if begin is None or end is None else int(end - begin)

    def by_controllers_clock(self, moment_us: int) -> int:
        """A moment of the writer's clock, by the controller's clock. Its own ``t_us`` may be later than that gives."""
        return moment_us - self.clock_offset_us

    def get(self, name: str) -> Any:
        """A field's value, None if the event has none."""
        return self.fields.get(name)


def events_from(rows: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Rows of `order.timeline` (as mappings) as events, in their order."""
    return [_event(row) for row in rows]


def _event(row: Mapping[str, Any]) -> Event:
    return Event(
        cluster_id=row["cluster_id"],
        event_type=row["event_type"],
        node_id=row["node_id"],
        incarnation=row["incarnation"],
        seq=row["seq"],
        t_us=row["t"],
        raw_us=row["ts_wall_us"],
        err_us=row["clock_err_us"],
        clock_offset_us=row.get("clock_offset_us") or 0,
        topic=row["topic"],
        topic_id=row["topic_id"],
        partition=row["partition"],
        leader_epoch=row["leader_epoch"],
        # If a row has no partition epoch, the one that determines its place in the order.
        partition_epoch=row["partition_epoch"] if row["partition_epoch"] is not None else row["anchor_epoch"],
        ordinal=row["ordinal"],
        plane=row["plane"],
        fields={name: row[name] for name in _PAYLOAD if row.get(name) is not None},
        ext=dict(row.get("ext") or {}),
    )


# ---- selection
# Selects the events that a timeline shows: by partition, node, type and window.
#
# Invariant: events are left out after they were ordered, so a filter never changes the order of the others.

QUIET_TYPES = frozenset({"EXPORT_HEARTBEAT", "CLOCK_SAMPLE", "STATE_SNAPSHOT", "CONTROLLER_DECISION"})
"""Transitions that repeat others or concern the export itself; shown when requested by name."""

MOVES = ("HW_ADVANCE",)
"""The type of sample that reports a change; the others report a state."""

TELLING_DECISIONS = ("silent", "controller_elected")
"""Decisions in a CONTROLLER_DECISION of Kafka's controllers that no other event shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The events to show; an empty tuple or None means all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    """Events that these nodes wrote, or that are about them."""
    types: tuple[str, ...] = ()
    """Event types; empty for all but `QUIET_TYPES`, refusals of callers and repetitions, with `TELLING_DECISIONS`."""
    start_us: int | None = None
    end_us: int | None = None
    cluster_id: str | None = None
    sample_types: tuple[str, ...] = ()
    """Types of samples to show as well; they need tables that were opened with samples."""
    unknown_types: bool = False
    """Whether events of types that only a newer version knows are shown along with those of ``types``."""
    node_events: bool = True
    """Whether events of whole nodes (sessions, settings) are shown with those of partitions."""


# ---- stall
# Represents a stall of the high watermark outside of Spark; imports no Spark.
#
# Invariant: only S18 finds episodes; nothing here joins or splits them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One episode of S18; [t0, t1) in us, by the controller's clock."""

    cluster_id: str
    topic_id: str
    topic: str
    partition: int
    t0: int
    t1: int
    hw: int
    ended_by: str
    blockers: tuple[int, ...]
    is_under_min: bool

    @property
    def key(self) -> tuple[str, str | None, int | None]:
        """The key of the stalled partition."""
        return self.cluster_id, self.topic_id, self.partition


def stall_from(row: Mapping[str, Any]) -> Stall:
    """The stall of a row of `stats.s18_stalls.stalls`."""
    return Stall(
        cluster_id=row["cluster_id"],
        topic_id=row["topic_id"],
        topic=row["topic"],
        partition=row["partition"],
        t0=row["t0"],
        t1=row["t1"],
        hw=row["hw"],
        ended_by=row["ended_by"],
        blockers=tuple(row["blockers"] or ()),
        is_under_min=row["is_under_min"],
    )
