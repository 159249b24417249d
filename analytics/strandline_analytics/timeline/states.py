"""Derives the states of a partition from its events: leader, ISR, replicas, and which nodes were down.

They are the same step functions as in `silver.control`, made by the stream's fold from events outside of Spark, with
the times and the order of a timeline; they serve pictures and chains of a few partitions, never figures.

Invariant: before a hole in the partition epochs, and before the first row, the state is unknown and not guessed. After
a hole, and after a change of a type that only a newer version knows, it is unknown until a row names the ISR again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strandline.export.schema import EVENT_TYPES, NO_LEADER
from strandline_analytics.stream.control_fold import Held, held_after
from strandline_analytics.stream.feed import Story
from strandline_analytics.timeline.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state in [t0, t1), us; ``known`` is false if a transition was lost, ``is_read`` if it was lost before t0."""

    t0: int
    t1: int
    partition_epoch: int
    leader_epoch: int | None
    leader: int | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    min_isr: int | None
    known: bool = True
    is_read: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """A node was fenced in [t0, t1), us."""

    node_id: int
    t0: int
    t1: int
    cause: str


def states(events: Sequence[Event], end_us: int) -> list[State]:
    """The states of one partition, in order; the last one lasts until ``end_us``."""
    rows = _deciding(events)
    found: list[State] = []
    held: Held | None = None
    for number, row in enumerate(rows):
        is_behind_hole = held is not None and _epoch(row) - held.partition_epoch > 1
        held = held_after(held, _story(row), row.t_us, int(is_behind_hole or _is_unread(row)))
        following = rows[number + 1] if number + 1 < len(rows) else None
        t1 = following.t_us if following else max(end_us, row.t_us)
        hole = following is not None and _epoch(following) - _epoch(row) > 1
        is_read = (held.isr_reported_at or 0) == held.holes
        if t1 > row.t_us and not (row.get("topic_deleted") and not _is_unread(row)):
            found.append(
                State(
                    t0=row.t_us,
                    t1=t1,
                    partition_epoch=_epoch(row),
                    leader_epoch=held.leader_epoch,
                    leader=None if held.leader == NO_LEADER else held.leader,
                    isr=tuple(sorted(held.isr or ())),
                    replicas=held.replicas or (),
                    min_isr=held.min_isr,
                    known=is_read and not hole,
                    is_read=is_read,
                )
            )
    return found


def _story(event: Event) -> Story:
    """A row in the form that `control_fold` takes; an empty list of replicas is left out, as unknown."""
    said = {name: value for name, value in event.fields.items() if name != "replicas" or value}
    if event.leader_epoch is not None:
        said["leader_epoch"] = event.leader_epoch
    placed = {"partition_epoch": _epoch(event), "ts_wall_us": event.t_us, "seq": event.seq}
    return {**said, **placed, "event_type": event.event_type}


def _deciding(events: Iterable[Event]) -> list[Event]:
    """The controller's rows about the partition, including rows of unknown types if they have an epoch of their own."""
    found: list[Event] = []
    for event in events:
        if event.is_control or (_is_unread(event) and found and _epoch(event) > _epoch(found[-1])):
            found.append(event)
    return found


def _is_unread(event: Event) -> bool:
    return event.by_controller and event.partition is not None and event.event_type not in EVENT_TYPES


def downs(events: Iterable[Event], end_us: int) -> list[Down]:
    """The periods in which nodes were fenced, by the controller's rows about sessions; the last may last to ``end_us``.

    A node that was removed is no longer down.
    """
    open_at: dict[int, Event] = {}
    found: list[Down] = []
    for event in events:
        if event.event_type != "NODE_SESSION":
            continue
        node, phase = event.get("subject_node_id"), event.get("phase")
        if phase == "fence":
            open_at.setdefault(node, event)
        elif phase in ("unfence", "unregister") and node in open_at:
            fence = open_at.pop(node)
            found.append(Down(node_id=node, t0=fence.t_us, t1=event.t_us, cause=fence.cause))
    found += [Down(node_id=n, t0=e.t_us, t1=max(end_us, e.t_us), cause=e.cause) for n, e in open_at.items()]
    return sorted(found, key=lambda down: (down.t0, down.node_id))


def _epoch(event: Event | None) -> int:
    return event.partition_epoch if event is not None and event.partition_epoch is not None else 0


# ---- undecided
# Finds when no controller decided, and why: from the reigns of several controllers and the events of their store.
#
# A reign without a reported end, because its process was killed or stopped, lasts to the last event that its controller
# wrote. For a Kafka cluster the import says when no record was committed for long.
#
# Invariant: nothing is reported for a cluster of ours that never had several controllers; before the first event of a
# reign or of the store it is not known whether a controller decided, and it is not guessed.

KINDS = ("CONTROLLER_REIGN", "STORE")
_SILENT_MS = re.compile(r"no decision for (\d+) ms ")
"""The beginning of the outcome of a decision `silent`, as the import of Kafka's metadata log writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """A span [t0, t1), us, in which no controller decided; ``t1`` is None if it has not ended."""

    t0: int
    t1: int | None
    why: str

    @property
    def sentence(self) -> str:
        """The span in words."""
        until = "and nothing is yet" if self.t1 is None else f"for {(self.t1 - self.t0) / 1e6:,.1f} s"
        return f"nothing was decided {until}: {self.why}"

    def overlaps(self, begin_us: int, end_us: int) -> bool:
        """Whether it overlaps [begin_us, end_us)."""
        return self.t0 < end_us and (self.t1 is None or self.t1 > begin_us)


def undecided(events: Iterable[Event]) -> list[Undecided]:
    """The spans without decisions, in order of time; ``events`` are those of one cluster, in any order."""
    course = _Course()
    for event in sorted((e for e in events if e.by_controller), key=lambda e: (e.t_us, e.incarnation, e.seq)):
        course.take(event)
    return course.spans()


class _Course:
    """Tracks which controller decides, event by event."""

    def __init__(self) -> None:
        self._found: list[Undecided] = []
        self._since: tuple[int, str] | None = None
        self._token = -1
        self._last_word: Event | None = None
        """The last event of the deciding process; None while there is none."""

    def take(self, event: Event) -> None:
        """Apply the next event."""
        if event.event_type in KINDS:
            # Events of a process that continued after it was replaced concern a reign that is over.
            if event.get("token") >= self._token:
                self._take_reign(event)
        elif event.get("decision") == "silent" and (said := _SILENT_MS.match(str(event.get("outcome")))):
            began_us = event.t_us - 1_000 * int(said[1])
            self._found.append(Undecided(t0=began_us, t1=event.t_us, why="Kafka's controllers committed no record"))
        elif self._last_word is not None and event.incarnation == self._last_word.incarnation:
            self._last_word = event

    def _take_reign(self, event: Event) -> None:
        begins = event.event_type == "CONTROLLER_REIGN" and event.get("phase") == "begin"
        if begins and self._last_word is not None:
            self._since = self._last_word.t_us, "the controller that decided was gone without a word"
        if begins or event.get("phase") == "back":
            self._close(event)
            self._token, self._last_word = event.get("token"), event
        elif self._since is None:
            self._since, self._last_word = (event.t_us, _why(event)), None

    def _close(self, event: Event) -> None:
        if self._since is not None and event.t_us > self._since[0]:
            self._found.append(Undecided(t0=self._since[0], t1=event.t_us, why=self._since[1]))
        self._since = None

    def spans(self) -> list[Undecided]:
        """The spans found, including one that is still open."""
        if self._since is None:
            return self._found
        return [*self._found, Undecided(t0=self._since[0], t1=None, why=self._since[1])]


def _why(event: Event) -> str:
    if event.event_type == "STORE":
        reasons = {"away": "the controllers' store did not answer", "full": "the controllers' store had no space"}
        return reasons.get(str(event.get("phase")), "the controllers' store went back in time")
    if event.cause == "hand_over":
        return f"controller {event.get('controller_id')} handed over"
    return f"controller {event.get('controller_id')} was deposed"
