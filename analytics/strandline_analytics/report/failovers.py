"""Finds the moments of a failover: the last heartbeat and the fence of the old leader, the decision, the new
leader's first event.

Times are the controller's: fence and decision are its own events, and the new leader's event is converted to its time
by the offset that it measured, within ``clock_err_us``.

Invariant: a failover is reported only with the last three moments; a planned change has no fence and is not a failover.
If no replica could be elected at once, the old leader is the one that was lost before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strandline.units import bytes_text
from strandline_analytics.explain.cost import leader_lost
from strandline_analytics.report.material import Material, Result
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.inferred import fence_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One partition's change of leader after a fence; times in us since 1970."""

    topic: str
    partition: int
    old_leader: int
    new_leader: int
    leader_epoch: int
    last_heartbeat_us: int | None
    fence_us: int
    decided_us: int
    epoch_start_us: int
    clock_err_us: int | None
    """The error of ``epoch_start_us``; None if the new leader's clock was not measured: the time is uncorrected."""


def failovers(events: Sequence[Event], start_us: int, end_us: int) -> list[Failover]:
    """The failovers that were decided within [start_us, end_us), by partition and epoch."""
    found = failovers_of([e for e in events if start_us <= e.t_us < end_us], events)
    return sorted(found, key=lambda each: (each.topic, each.partition, each.leader_epoch))


def failovers_of(changes: Iterable[Event], events: Sequence[Event]) -> list[Failover]:
    """The failovers among the given changes, in their order.

    Args:
        changes: the events to examine; those other than changes of a leader are ignored.
        events: all transitions.
    """
    starts = {(e.key, e.leader_epoch): e for e in events if e.event_type == "EPOCH_START"}
    changed = defaultdict(list)
    for event in events:
        if event.event_type == "LEADER_CHANGE":
            changed[event.key].append(event)
    found = []
    for change in changes:
        epoch, new = change.get("new_leader_epoch"), change.get("new_leader")
        decided = change.event_type == "LEADER_CHANGE" and change.by_controller
        if not decided or (change.key, epoch) not in starts or new is None or change.partition is None:
            continue
        lost = leader_lost(change, changed[change.key]) or change
        fence = fence_before(lost, events)
        if fence is None:
            continue
        found.append(
            Failover(
                topic=change.topic or "",
                partition=change.partition,
                old_leader=lost.get("old_leader"),
                new_leader=new,
                leader_epoch=epoch,
                last_heartbeat_us=fence.get("last_heartbeat_us"),
                fence_us=fence.t_us,
                decided_us=change.t_us,
                epoch_start_us=starts[change.key, epoch].t_us,
                clock_err_us=starts[change.key, epoch].err_us,
            )
        )
    return found


# ---- losses
# Sums a window's lost committed records: their number, their size, and how many of them could have been avoided.
#
# Invariant: an unknown figure is None, and no sentence mentions it; an incomplete sum is called a lower bound.


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Records, bytes and avoidable records over all partitions (S7); each is None if nothing is known of it.

    ``avoidable`` and ``min_bytes`` are lower bounds.
    """

    records: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    avoidable: int | None = None


def losses(material: Material) -> Losses:
    """The losses of a window, from the rows of S7."""
    found = material.results.get("s07")
    if found is None or found.trouble or not found.is_recorded("epochs_unknown"):
        return Losses()
    records = found.at_least("committed_lost_records", "epochs_unknown")
    if not records:
        return Losses(records=records, min_bytes=records, max_bytes=records, avoidable=records)
    most, is_whole = _of_lossy(found, "committed_lost_max_bytes")
    return Losses(
        records=records,
        min_bytes=_of_lossy(found, "committed_lost_min_bytes")[0],
        max_bytes=most if is_whole else None,
        avoidable=_of_lossy(found, "avoidable_lost_records")[0],
    )


def loss_parts(found: Losses) -> list[str]:
    """The size of the loss, and how much of it another replica had; empty if neither is known."""
    if not found.records:
        return []
    parts = [size] if (size := _size_text(found)) else []
    if found.avoidable:
        parts.append(f"at least {found.avoidable:,} of them avoidable: another live replica had them")
    return parts


def _size_text(found: Losses) -> str:
    least, most = bytes_text(found.min_bytes), bytes_text(found.max_bytes)
    if found.max_bytes is None:
        return f"at least {least}" if found.min_bytes else ""
    if not found.min_bytes:
        return f"at most {most}"
    return most if most == least else f"{least} to {most}"


def _of_lossy(found: Result, name: str) -> tuple[int | None, bool]:
    """The sum over the partitions that lost records, None if it is 0 and one is unknown; and whether all are known."""
    values = [row.get(name) for row in found.rows if row.get("committed_lost_records")]
    known = sum(value for value in values if value is not None)
    is_whole = None not in values and not found.total("epochs_unknown")
    return (known if known or is_whole else None), is_whole
