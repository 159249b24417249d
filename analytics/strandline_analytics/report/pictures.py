"""Computes the picture of a partition: who was a member when, who led, how far the log and its HW had come.

It uses no Spark and draws nothing: it turns events into spans and curves.

Invariant: a span or a piece of a curve exists only where something is known; the rest is reported as unknown. A
leader's observation is valid for as long as in `silver.looks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from strandline_analytics.silver.looks import HOLD_INTERVALS
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.inferred import with_inferences
from strandline_analytics.timeline.sentences import writer
from strandline_analytics.timeline.states import Down, State, downs, states

MARKED = frozenset(
    {"ISR_CHANGE", "LEADER_CHANGE", "REASSIGNMENT", "EPOCH_START", "TRUNCATION", "PARTITION_FAILED", "NODE_SESSION"}
)

_IN_TIME = 1.25
"""The number of intervals after an observation within which the next one is in time."""


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A replica's state in [t0, t1): member, joining, out, down or unknown."""

    t0: int
    t1: int
    state: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A replica: its states, and the periods in which it led."""

    replica_id: int
    spans: tuple[StateSpan, ...]
    led: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BelievedValue:
    """A value that is valid in [t0, t1); ``is_old`` if no later observation of the same leader confirmed it in time."""

    t0: int
    t1: int
    value: int
    is_old: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """Something that happened, numbered for the list below the picture."""

    number: int
    t_us: int
    kind: str
    who: str
    sentence: str
    cause: str
    event_id: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The contents of the drawing of one partition in [t0, t1)."""

    title: str
    t0: int
    t1: int
    lanes: tuple[Lane, ...]
    epochs: tuple[tuple[int, int], ...]
    leader_leo: tuple[BelievedValue, ...]
    hw: tuple[BelievedValue, ...]
    others_leo: dict[int, tuple[BelievedValue, ...]] = field(default_factory=dict)
    zombies: tuple[tuple[int, int], ...] = ()
    unknown: tuple[tuple[int, int], ...] = ()
    markers: tuple[Marker, ...] = ()


def picture(title: str, of_partition: Sequence[Event], of_nodes: Sequence[Event], t0: int, t1: int) -> Picture:
    """The picture of one partition.

    Args:
        title: the title above the picture.
        of_partition: all events of the partition, including samples, in order.
        of_nodes: events of whole nodes.
        t0: the start of the picture, us.
        t1: the end of the picture, us.
    """
    held = states(of_partition, t1)
    replicas = sorted({replica for state in held for replica in state.replicas} | {r for s in held for r in s.isr})
    fenced = downs(of_nodes, t1)
    leo, hw, others, zombies = _curves(of_partition, held, t0, t1)
    began = held[0].t0 if held and _is_birth(of_partition) else t0
    return Picture(
        title=title,
        t0=t0,
        t1=t1,
        lanes=tuple(_lane(replica, held, fenced, t0, t1) for replica in replicas),
        epochs=tuple(_epochs(held, t0, t1)),
        leader_leo=leo,
        hw=hw,
        others_leo=others,
        zombies=zombies,
        # A row with a HW also has a LEO, and Prometheus has only the LEO.
        unknown=tuple(_gaps(leo, max(t0, began), t1)),
        markers=tuple(_markers(of_partition, of_nodes, replicas, t0, t1)),
    )


def _is_birth(events: Sequence[Event]) -> bool:
    first = next((event for event in events if event.is_control), None)
    return first is not None and bool(first.get("topic_created"))


def _lane(replica: int, held: Sequence[State], fenced: Sequence[Down], t0: int, t1: int) -> Lane:
    own = [down for down in fenced if down.node_id == replica]
    spans: list[StateSpan] = []
    for state in held:
        if not state.known:
            spans.append(StateSpan(state.t0, state.t1, "unknown"))
        elif replica in state.isr:
            spans += _inside(state, own)
        elif replica in state.replicas:
            spans += _outside(state, own)
    # A leader that is fenced leads in name only.
    led = [
        (span.t0, span.t1)
        for state in held
        if state.leader == replica and state.known
        for span in _inside(state, own)
        if span.state != "down"
    ]
    clipped = [StateSpan(max(s.t0, t0), min(s.t1, t1), s.state) for s in _joined(spans) if s.t0 < t1 and s.t1 > t0]
    if held and held[0].t0 > t0 and held[0].partition_epoch > 0:
        clipped.insert(0, StateSpan(t0, min(held[0].t0, t1), "unknown"))
    return Lane(replica, tuple(clipped), tuple((max(a, t0), min(b, t1)) for a, b in _merged(led) if a < t1 and b > t0))


def _inside(state: State, own: Sequence[Down]) -> list[StateSpan]:
    """A stay in the ISR, split where the node was fenced: the last member of an ISR stays in it in name only."""
    spans: list[StateSpan] = []
    at = state.t0
    for down in own:
        start, end = max(down.t0, at), min(down.t1, state.t1)
        if end <= start:
            continue
        if start > at:
            spans.append(StateSpan(at, start, "member"))
        spans.append(StateSpan(start, end, "down"))
        at = end
    return [*spans, StateSpan(at, state.t1, "member")] if at < state.t1 else spans


def _outside(state: State, own: Sequence[Down]) -> list[StateSpan]:
    """A stay outside the ISR, split where the node went down and came up: out, down, joining."""
    spans: list[StateSpan] = []
    at = state.t0
    was_down = any(down.t1 <= state.t0 for down in own if down.t0 >= state.t0 - 1)
    for down in own:
        if down.t1 <= at or down.t0 >= state.t1:
            was_down = was_down or down.t1 <= at
            continue
        if down.t0 > at:
            spans.append(StateSpan(at, down.t0, "joining" if was_down else "out"))
        spans.append(StateSpan(max(at, down.t0), min(down.t1, state.t1), "down"))
        at, was_down = min(down.t1, state.t1), True
    if at < state.t1:
        spans.append(StateSpan(at, state.t1, "joining" if was_down and spans else "out"))
    return spans


def _joined(spans: Sequence[StateSpan]) -> list[StateSpan]:
    found: list[StateSpan] = []
    for span in spans:
        if found and found[-1].state == span.state and found[-1].t1 == span.t0:
            found[-1] = StateSpan(found[-1].t0, span.t1, span.state)
        else:
            found.append(span)
    return found


def _merged(pieces: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in pieces:
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _epochs(held: Sequence[State], t0: int, t1: int) -> list[tuple[int, int]]:
    """(start, leader epoch) for each epoch that was in force in the window."""
    found: list[tuple[int, int]] = []
    for state in held:
        if state.leader_epoch is None or state.t0 >= t1 or state.t1 <= t0:
            continue
        if not found or found[-1][1] != state.leader_epoch:
            found.append((max(state.t0, t0), state.leader_epoch))
    return found


Curves = tuple[
    tuple[BelievedValue, ...],
    tuple[BelievedValue, ...],
    dict[int, tuple[BelievedValue, ...]],
    tuple[tuple[int, int], ...],
]


class _Point(NamedTuple):
    """A value that the leader of an epoch observed at ``t_us``, valid until ``until_us``; the next one was due at
    ``due_us``."""

    epoch: int | None
    t_us: int
    due_us: int
    until_us: int
    value: int


def _curves(events: Sequence[Event], held: Sequence[State], t0: int, t1: int) -> Curves:
    """LEO and HW of leaders, LEOs of the others as leaders knew them, and LEOs that zombies reported."""
    ends: dict[int, int] = {}
    for state in held:
        if state.leader_epoch is not None:
            ends[state.leader_epoch] = max(ends.get(state.leader_epoch, 0), state.t1)
    leo: list[_Point] = []
    hw: list[_Point] = []
    others: dict[int, list[_Point]] = {}
    zombies: list[tuple[int, int]] = []
    interval_us = 10_000_000
    for event in sorted(events, key=lambda e: e.t_us):
        kind, term_end = event.event_type, ends.get(event.leader_epoch if event.leader_epoch is not None else -1, t1)
        if kind not in ("REPLICA_SAMPLE", "HW_ADVANCE", "EPOCH_START"):
            continue
        interval_us = (event.get("interval_ms") or interval_us // 1000) * 1000
        until = min(event.t_us + HOLD_INTERVALS * interval_us, term_end)
        seen = partial(_Point, event.leader_epoch, event.t_us, event.t_us + interval_us, until)
        if event.t_us >= term_end and term_end < t1:
            if event.get("leader_leo") is not None:
                zombies.append((event.t_us, event.get("leader_leo")))
        elif kind == "HW_ADVANCE":
            hw.append(seen(event.get("new_hw")))
            # HWs are reported at each change, but LEOs are sampled: a log that has this HW is at least as long.
            leo.append(seen(max(event.get("new_hw"), leo[-1].value if leo else 0)))
        elif kind == "EPOCH_START":
            leo.append(seen(event.get("start_offset")))
            hw.append(seen(event.get("hw")))
        elif event.get("replica_id") == event.node_id:
            leo.append(seen(event.get("leader_leo")))
            if event.get("hw") is not None:
                hw.append(seen(event.get("hw")))
        elif event.get("leo") is not None:
            others.setdefault(event.get("replica_id"), []).append(seen(event.get("leo")))
    found = {replica: _steps(points, t0, t1) for replica, points in others.items()}
    return _steps(leo, t0, t1), _steps(hw, t0, t1), found, tuple(z for z in zombies if t0 <= z[0] < t1)


def _steps(points: Sequence[_Point], t0: int, t1: int) -> tuple[BelievedValue, ...]:
    """Each value from its time to that of the next one, no longer than it is valid; clipped to the window."""
    found = []
    for number, point in enumerate(points):
        after = points[number + 1] if number + 1 < len(points) else None
        end = point.until_us if after is None else min(point.until_us, after.t_us)
        if end > point.t_us and end > t0 and point.t_us < t1:
            found.append(BelievedValue(max(point.t_us, t0), min(end, t1), point.value, _is_old(point, after, end, t1)))
    return tuple(found)


def _is_old(point: _Point, after: _Point | None, end: int, t1: int) -> bool:
    """Whether no observation of the same leader confirmed a value in time; nothing after ``t1`` is known."""
    late = point.t_us + round(_IN_TIME * (point.due_us - point.t_us))
    is_confirmed = after is not None and after.epoch == point.epoch and after.t_us <= late
    return not is_confirmed and (end < t1 or point.due_us < t1)


def _gaps(known: Sequence[BelievedValue], t0: int, t1: int) -> list[tuple[int, int]]:
    """The periods in which nothing is known: the complement of the steps."""
    found, at = [], t0
    for step in known:
        if step.t0 > at:
            found.append((at, step.t0))
        at = max(at, step.t1)
    if at < t1:
        found.append((at, t1))
    return found


def _markers(
    of_partition: Sequence[Event], of_nodes: Sequence[Event], replicas: Sequence[int], t0: int, t1: int
) -> list[Marker]:
    """Markers of the events in the window, in logical order."""
    about = [e for e in of_nodes if e.event_type == "NODE_SESSION" and e.get("subject_node_id") in replicas]
    own = noted(of_partition)
    own.sort(key=lambda e: e.ordinal)
    merged = _merge(own, about)
    inside = [event for event in merged if t0 <= event.t_us < t1]
    return [
        Marker(
            number, e.t_us, e.event_type, writer(e.node_id), with_inferences(e), e.cause.replace("_", " "), e.event_id
        )
        for number, e in enumerate(inside, 1)
    ]  # fmt: skip


def noted(of_partition: Iterable[Event]) -> list[Event]:
    """The events of a partition that a picture marks; the leader's echoes of ISR changes are left out."""
    found = list(of_partition)
    own = [e for e in found if e.event_type in MARKED and (e.is_control or e.event_type != "ISR_CHANGE")]
    refused = [e for e in found if e.event_type == "ALTER_PARTITION" and e.get("phase") not in ("proposed",)]
    return own + [e for e in refused if e.get("error_code") or e.get("phase") == "timeout"]


def _merge(own: Sequence[Event], about: Sequence[Event]) -> list[Event]:
    """Two ordered lists merged by the times of their heads; neither is reordered."""
    found: list[Event] = []
    left, right = list(own), list(about)
    while left and right:
        found.append(left.pop(0) if left[0].t_us < right[0].t_us else right.pop(0))
    return [*found, *left, *right]
