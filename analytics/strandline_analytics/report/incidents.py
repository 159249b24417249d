"""Groups decisions and stalls into incidents: chains of shrinks (S17) with the elections and stalls around them, or
elections and stalls alone.

Chains are taken from Spark, never recomputed. A leader change belongs to the chain that is at most G away; a stall to
the incident that it overlaps. The rest forms incidents of its own, by the same gap. Planned and unplanned events are
never in one incident (S17), except that the end of an outage belongs to the incident that began it, however long the
partition had no leader. One outage is one incident: until its ISRs are whole, whatever happens to its nodes is part of
it, and so are further losses of its partitions within a minute.

Invariant: every chain, every leader change except creations and moves, and every stall is in exactly one incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strandline_analytics.report.incident import Incident, Key
from strandline_analytics.scope import FOREVER_US
from strandline_analytics.timeline.causes import MOVED, PLANNED
from strandline_analytics.timeline.event import Event, Stall
from strandline_analytics.timeline.states import State, states

GAP_US = 5_000_000
"""The gap G of S17, us."""

SOON_US = 60_000_000
"""Losses of an outage's partitions within this time after its last decision are part of it, us."""

Held = Mapping[Key, Sequence[State]]
"""The states of each partition, in order."""


def incidents(chains: Iterable[Mapping[str, Any]], stalls: Iterable[Stall], events: Sequence[Event]) -> list[Incident]:
    """All incidents: first those that lost committed records, or may have; then by time.

    Args:
        chains: rows of S17.
        stalls: episodes of S18.
        events: the timeline's transitions.
    """
    found = [_of_chain(chain, events) for chain in chains]
    held = _held(events)
    quiet = ("created", MOVED)
    changes = [e for e in events if e.event_type == "LEADER_CHANGE" and e.is_control and e.cause not in quiet]
    for change in changes:
        home = _outage(found, [change.key], change.t_us, held)
        alike = [i for i in found if not i.causes or i.is_planned == (change.cause in PLANNED)]
        home = home or _home(alike, change.cluster_id, change.t_us, change.t_us)
        if home is None:
            home = _new(found, change.cluster_id, change.t_us, change.t_us)
        home.leader_changes.append(change)
        home.began_us, home.ended_us = min(home.began_us, change.t_us), max(home.ended_us, change.t_us)
    found = _joined(found, held)
    _recover(found, events, held)
    for stall in sorted(stalls, key=lambda s: s.t0):
        home = _home([i for i in found if stall.key in i.keys], stall.cluster_id, stall.t0, stall.t1)
        home = home or _home([i for i in found if not i.shrinks], stall.cluster_id, stall.t0, stall.t1)
        # A node in trouble also holds up partitions from whose ISR it is not removed.
        of_nodes = [i for i in found if not i.is_planned and set(stall.blockers) & set(i.culprits)]
        home = home or _home(of_nodes, stall.cluster_id, stall.t0, stall.t1)
        home = home or _new(found, stall.cluster_id, stall.t0, stall.t1)
        home.stalls.append(stall)
        if not home.shrinks and not home.leader_changes:
            home.recovered_us = home.ended_us = max(home.ended_us, stall.t1)
    found.sort(key=lambda incident: (not incident.is_severe, incident.began_us, incident.cluster_id))
    for number, incident in enumerate(found, 1):
        incident.number = number
    return found


def _of_chain(chain: Mapping[str, Any], events: Sequence[Event]) -> Incident:
    began, ended, is_planned = chain["began_us"], chain["ended_us"], chain["kind"] == "planned"
    shrinks = [
        e
        for e in events
        if e.event_type == "ISR_CHANGE"
        and e.is_control
        and e.cluster_id == chain["cluster_id"]
        and began <= e.t_us <= ended
        and (e.cause in PLANNED) == is_planned
        and e.cause != MOVED
        and set(e.get("old_isr") or ()) - set(e.get("new_isr") or ())
    ]
    return Incident(
        number=0, cluster_id=chain["cluster_id"], began_us=began, ended_us=ended, chain=chain, shrinks=shrinks
    )


def _home(found: Iterable[Incident], cluster_id: str, t0: int, t1: int) -> Incident | None:
    """The nearest incident that is at most G away; the earlier one if two are equally near."""

    def away(incident: Incident) -> int:
        end = max(incident.ended_us, incident.recovered_us or 0) if t1 > t0 else incident.ended_us
        return max(0, incident.began_us - t1, t0 - end)

    near = [i for i in found if i.cluster_id == cluster_id and away(i) <= GAP_US]
    return min(near, key=lambda i: (away(i), i.began_us), default=None)


def _outage(found: Iterable[Incident], keys: Iterable[Key], at: int, held: Held) -> Incident | None:
    """The incident in which one of these partitions lost its leader, if it had none just before ``at``."""
    for key in keys:
        before = [s for s in held.get(key, []) if s.t0 < at]
        if before and before[-1].known and before[-1].leader is None:
            earlier = [i for i in found if key in i.keys and i.began_us < at]
            if earlier:
                return max(earlier, key=lambda i: i.began_us)
    return None


def _joined(found: Sequence[Incident], held: Held) -> list[Incident]:
    """Merge incidents that end an outage, as an unclean election does, or continue it, into the one that began it."""
    kept: list[Incident] = []
    for incident in sorted(found, key=lambda i: i.began_us):
        home = _outage(kept, incident.keys, incident.began_us, held)
        home = home or next((one for one in reversed(kept) if _goes_on(one, incident, held)), None)
        if home is None:
            kept.append(incident)
        else:
            home.take(incident)
    return kept


def _goes_on(outage: Incident, later: Incident, held: Held) -> bool:
    """Whether a later incident belongs to the same outage."""
    if outage.cluster_id != later.cluster_id or outage.is_planned or later.is_planned:
        return False
    whole_us = _recovered(outage, held)
    if whole_us is not None and later.began_us - whole_us > GAP_US:
        return False
    nodes = {*outage.removed_nodes, *outage.lost_leaders}
    if nodes & {*later.removed_nodes, *later.lost_leaders, *_removers(later, held)}:
        return True
    return later.began_us - outage.ended_us <= SOON_US and any(
        (back := _back(held[key], outage)) is None or back > later.began_us for key in {*outage.keys} & {*later.keys}
    )


def _removers(incident: Incident, held: Held) -> set[int | None]:
    """The leaders that removed others: a leader that was paused does so when it continues."""
    own = [event for event in incident.shrinks if event.get("initiator") == "leader"]
    before = [[state for state in held[event.key] if state.t0 < event.t_us] for event in own]
    return {states[-1].leader for states in before if states} - {None}


def _held(events: Sequence[Event]) -> Held:
    by_key: dict[Key, list[Event]] = {}
    for event in events:
        if event.partition is not None:
            by_key.setdefault(event.key, []).append(event)
    return {key: states(own, FOREVER_US) for key, own in by_key.items()}


def _new(found: list[Incident], cluster_id: str, t0: int, t1: int) -> Incident:
    incident = Incident(number=0, cluster_id=cluster_id, began_us=t0, ended_us=t1)
    found.append(incident)
    return incident


def _recover(found: Sequence[Incident], events: Sequence[Event], held: Held) -> None:
    """Set when each incident was over, and its truncations."""
    for incident in found:
        incident.recovered_us = _recovered(incident, held)
    for cut in (e for e in events if e.event_type == "TRUNCATION"):
        own = sorted((i for i in found if i.cluster_id == cut.cluster_id), key=lambda i: i.began_us)
        begun = [incident for incident in own if incident.began_us <= cut.t_us]
        # The newest that had begun in its cluster, else the first: each truncation counts once.
        for home in begun[-1:] or own[:1]:
            home.truncations.append(cut)


def _recovered(incident: Incident, held: Held) -> int | None:
    """When all of its partitions had recovered; None if one never did."""
    ends = [_back(held[key], incident) for key in incident.keys]
    reported = [end for end in ends if end is not None]
    return max([incident.ended_us, *reported]) if len(reported) == len(ends) else None


def _back(held: Sequence[State], incident: Incident) -> int | None:
    """When the partition had a leader and all replicas in its ISR again; None if it never did.

    For a partition that recovered before the last decision of the incident that time counts, whatever happens to it
    later. If its replicas were not reported, as many members are expected as it had before.
    """
    before = [len(s.isr) for s in held if s.t0 < incident.began_us]
    size = before[-1] if before else max((len(s.isr) for s in held), default=0)
    whole = [s for s in held if s.is_read and s.leader is not None and len(s.isr) >= (len(s.replicas) or size)]
    return next((s.t0 for s in whole if s.t1 > incident.ended_us), None)
