"""Which fence a change of leader followed from.

Invariant: both are the controller's events, compared by its clock; a fence may stand in the very decision.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline_analytics.timeline.event import Event

NEAR_US = 60_000_000
"""A fence belongs to the loss of a leader that follows it within a minute, us (S19)."""


def fence_before(change: Event, events: Iterable[Event]) -> Event | None:
    """The latest fence of the old leader shortly before a LEADER_CHANGE; None for a planned change."""
    old_leader = change.get("old_leader")
    fences = [
        e
        for e in events
        if e.event_type == "NODE_SESSION"
        and e.get("phase") == "fence"
        and e.cluster_id == change.cluster_id
        and e.get("subject_node_id") == old_leader
        and 0 <= change.t_us - e.t_us <= NEAR_US
    ]
    return max(fences, key=lambda e: e.t_us, default=None)
