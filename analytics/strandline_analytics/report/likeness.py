"""Which partitions of an incident look alike, so that one picture is enough for all of them.

Invariant: partitions are alike only if the same happened to them, equally often: the same nodes left and came back for
the same causes, the same leader was lost, the same replicas cut their logs. Who leads afterwards, offsets and times
are no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from strandline_analytics.report.pictures import noted
from strandline_analytics.timeline.event import Event, Stall

Likeness = frozenset[tuple[Hashable, int]]
"""What happened to a partition, and how often."""


def likeness(of_partition: Iterable[Event], stalls: Iterable[Stall]) -> Likeness:
    """What partitions must have in common to look alike.

    Args:
        of_partition: the transitions of one partition in the time that is drawn.
        stalls: its stalls in the same incident.
    """
    traits: Counter[Hashable] = Counter(_trait(event) for event in noted(of_partition))
    traits.update(("stall", stall.blockers, stall.is_under_min) for stall in stalls)
    return frozenset(traits.items())


def _trait(event: Event) -> Hashable:
    kind = event.event_type
    if kind == "ISR_CHANGE":
        old, new = frozenset(event.get("old_isr") or ()), frozenset(event.get("new_isr") or ())
        return kind, event.cause, old - new, new - old
    if kind == "LEADER_CHANGE":
        nobody = (event.get("new_leader") or 0) < 0
        return kind, event.cause, event.get("election_type"), event.get("old_leader"), nobody
    if kind == "TRUNCATION":
        committed = event.get("committed_cut")
        return kind, event.node_id, committed is None, bool(committed)
    if kind == "EPOCH_START":
        return (kind,)
    return kind, event.node_id, event.cause, event.get("phase"), event.get("error_code")
