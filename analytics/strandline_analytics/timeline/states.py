"""What a partition's state was when, from its events: leader, ISR, replicas, and which nodes were down.

The same step functions as `silver.control`, made from events that have left Spark already; for pictures and chains of
a few partitions, never for figures.

Invariant: before a hole in the partition epochs, and before the first row, the state is unknown and not guessed. Behind
a hole, and behind a change of a type that only a newer version knows, it is unknown until a row names the ISR again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from strandline.export.schema import EVENT_TYPES
from strandline_analytics.timeline.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What held in [t0, t1), us; ``known`` is false where a transition was lost, ``is_read`` if that was before t0."""

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
    leader: int | None = None
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    min_isr: int | None = None
    epoch: int | None = None
    is_reported, hole = True, False
    for number, row in enumerate(rows):
        is_reported = is_reported and not hole
        if _is_unread(row):
            row, is_reported = replace(row, fields={}), False
        if row.get("new_leader") is not None:
            leader = row.get("new_leader") if row.get("new_leader") >= 0 else None
        if row.get("new_isr") is not None:
            isr, is_reported = tuple(sorted(row.get("new_isr"))), True
        replicas = tuple(row.get("replicas")) or replicas if row.get("replicas") is not None else replicas
        min_isr = row.get("min_isr") if row.get("min_isr") is not None else min_isr
        epoch = row.leader_epoch if row.leader_epoch is not None else epoch
        following = rows[number + 1] if number + 1 < len(rows) else None
        t1 = following.t_us if following else max(end_us, row.t_us)
        hole = bool(following) and _epoch(following) - _epoch(row) > 1
        if t1 > row.t_us and not row.get("topic_deleted"):
            found.append(
                State(
                    t0=row.t_us,
                    t1=t1,
                    partition_epoch=_epoch(row),
                    leader_epoch=epoch,
                    leader=leader,
                    isr=isr,
                    replicas=replicas,
                    min_isr=min_isr,
                    known=is_reported and not hole,
                    is_read=is_reported,
                )
            )
    return found


def _deciding(events: Iterable[Event]) -> list[Event]:
    """The controller's rows about the partition; those that are not understood if they have an epoch of their own."""
    found: list[Event] = []
    for event in events:
        if event.is_control or (_is_unread(event) and found and _epoch(event) > _epoch(found[-1])):
            found.append(event)
    return found


def _is_unread(event: Event) -> bool:
    return event.by_controller and event.partition is not None and event.event_type not in EVENT_TYPES


def downs(events: Iterable[Event], end_us: int) -> list[Down]:
    """When each node was fenced, by the controller's rows about sessions; still down lasts until ``end_us``.

    A node that was removed is not down any more.
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
