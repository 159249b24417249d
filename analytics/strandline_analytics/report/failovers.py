"""Decides which moments make up a failover: the fence of the old leader, the decision, the new leader's first word.

Times are the controller's: fence and decision are its own events, and the new leader's word is put into its time by
the offset that it measured, within ``clock_err_us``.

Invariant: a failover is told only with all three moments; a change without a fence, a planned one, is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.fences import fence_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One partition's change of leader after a fence; times in us since 1970."""

    topic: str
    partition: int
    old_leader: int
    new_leader: int
    leader_epoch: int
    fence_us: int
    decided_us: int
    epoch_start_us: int
    clock_err_us: int | None
    """The error of ``epoch_start_us``; None: nobody measured the new leader's clock, and it is as that showed it."""


def failovers(events: Sequence[Event], start_us: int, end_us: int) -> list[Failover]:
    """The failovers that were decided within [start_us, end_us), by partition and epoch."""
    starts = {(e.key, e.leader_epoch): e for e in events if e.event_type == "EPOCH_START"}
    found = []
    for change in events:
        epoch = change.get("new_leader_epoch")
        decided_here = change.event_type == "LEADER_CHANGE" and change.by_controller
        if not decided_here or not start_us <= change.t_us < end_us or (change.key, epoch) not in starts:
            continue
        old, new = change.get("old_leader"), change.get("new_leader")
        fence = fence_before(change, events)
        if fence is None or new is None or change.partition is None:
            continue
        found.append(
            Failover(
                topic=change.topic or "",
                partition=change.partition,
                old_leader=old,
                new_leader=new,
                leader_epoch=epoch,
                fence_us=fence.t_us,
                decided_us=change.t_us,
                epoch_start_us=starts[change.key, epoch].t_us,
                clock_err_us=starts[change.key, epoch].err_us,
            )
        )
    return sorted(found, key=lambda each: (each.topic, each.partition, each.leader_epoch))
