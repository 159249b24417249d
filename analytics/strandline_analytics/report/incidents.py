"""What an incident is: a chain of shrinks (S17) with the elections and stalls around it, or those on their own.

Chains are those that Spark found, never found again. A leader change belongs to the chain that it is at most G from; a
stall to the incident that it overlaps. What is left over forms incidents of its own, by the same gap. What somebody
asked for and what nobody did are never one incident (S17), but that what ends an outage belongs to the incident that
began it, however long the partition had no leader.

Invariant: every chain, every leader change that is no creation, and every stall is in exactly one incident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline_analytics.scope import FOREVER_US
from strandline_analytics.timeline.causes import PLANNED, STALLED, UNDER_MIN
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.stall import Stall
from strandline_analytics.timeline.states import State, states

GAP_US = 5_000_000
"""G of S17."""

Key = tuple[str, str | None, int | None]
Held = Mapping[Key, Sequence[State]]
"""The states of each partition, in order."""


@dataclass(slots=True, kw_only=True)
class Incident:
    """What belongs together. ``began_us`` to ``ended_us`` are its first and last decision; recovery comes after."""

    number: int
    cluster_id: str
    began_us: int
    ended_us: int
    chain: Mapping[str, Any] | None = None
    shrinks: list[Event] = field(default_factory=list)
    leader_changes: list[Event] = field(default_factory=list)
    truncations: list[Event] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    recovered_us: int | None = None
    """When the last of its partitions had its whole ISR back; None: not within what was read."""

    @property
    def id(self) -> str:
        """What a link names it by."""
        return f"incident-{self.number}"

    @property
    def keys(self) -> list[Key]:
        """The partitions it touched."""
        return sorted({e.key for e in [*self.shrinks, *self.leader_changes]} | {s.key for s in self.stalls}, key=str)

    @property
    def causes(self) -> Counter[str]:
        """How many decisions gave each cause; a shrink and a change of leader in one partition epoch are one."""
        changes = [*self.shrinks, *self.leader_changes]
        decisions = dict.fromkeys((event.key, event.partition_epoch, event.cause or "unknown") for event in changes)
        return Counter(cause for _, _, cause in decisions)

    @property
    def is_planned(self) -> bool:
        """Whether somebody asked for all of it."""
        return bool(self.causes) and set(self.causes) <= PLANNED

    @property
    def elections(self) -> list[Event]:
        """Leader changes that gave a partition a leader."""
        return [event for event in self.leader_changes if (event.get("new_leader") or 0) >= 0]

    @property
    def removed_nodes(self) -> Counter[int]:
        """How often each node was removed from an ISR."""
        gone = (set(e.get("old_isr") or ()) - set(e.get("new_isr") or ()) for e in self.shrinks)
        return Counter(node for nodes in gone for node in nodes)

    @property
    def culprits(self) -> Counter[int]:
        """The nodes it is about: who left an ISR, else whose leadership was lost, else who held the HW up."""
        if self.shrinks:
            return self.removed_nodes
        before = [event.get("old_leader") for event in self.leader_changes]
        if lost := [node for node in before if node is not None and node >= 0]:
            return Counter(lost)
        return Counter(node for stall in self.stalls if not stall.is_under_min for node in stall.blockers)

    @property
    def why(self) -> list[str]:
        """Its causes, the most frequent first; of a stall alone, which has none, what it was."""
        named = [cause for cause, _ in self.causes.most_common()]
        stalled = {UNDER_MIN if stall.is_under_min else STALLED for stall in self.stalls}
        return named + sorted(stalled)

    @property
    def cut_records(self) -> int:
        """Records cut from logs, over all copies."""
        return sum(event.get("from_leo") - event.get("to_leo") for event in self.truncations)

    @property
    def committed_cut(self) -> int:
        """Of them below the replica's own HW, where that was known."""
        return sum(event.get("committed_cut") or 0 for event in self.truncations)

    @property
    def blind_cuts(self) -> int:
        """Cuts by replicas that did not know their own HW."""
        return sum(event.get("committed_cut") is None for event in self.truncations)

    @property
    def is_unclean(self) -> bool:
        """Whether a leader was elected that may lack committed records."""
        return any(event.get("election_type") == "unclean" for event in self.leader_changes)


def incidents(chains: Iterable[Mapping[str, Any]], stalls: Iterable[Stall], events: Sequence[Event]) -> list[Incident]:
    """All incidents, by time.

    Args:
        chains: rows of S17.
        stalls: episodes of S18.
        events: the timeline's transitions.
    """
    found = [_of_chain(chain, events) for chain in chains]
    held = _held(events)
    changes = [e for e in events if e.event_type == "LEADER_CHANGE" and e.is_control and e.cause != "created"]
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
        home = home or _new(found, stall.cluster_id, stall.t0, stall.t1)
        home.stalls.append(stall)
        if not home.shrinks and not home.leader_changes:
            home.recovered_us = home.ended_us = max(home.ended_us, stall.t1)
    found.sort(key=lambda incident: (incident.began_us, incident.cluster_id))
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
        and set(e.get("old_isr") or ()) - set(e.get("new_isr") or ())
    ]
    return Incident(
        number=0, cluster_id=chain["cluster_id"], began_us=began, ended_us=ended, chain=chain, shrinks=shrinks
    )


def _home(found: Iterable[Incident], cluster_id: str, t0: int, t1: int) -> Incident | None:
    """The nearest incident that is at most G away; the earlier one of two."""

    def away(incident: Incident) -> int:
        end = max(incident.ended_us, incident.recovered_us or 0) if t1 > t0 else incident.ended_us
        return max(0, incident.began_us - t1, t0 - end)

    near = [i for i in found if i.cluster_id == cluster_id and away(i) <= GAP_US]
    return min(near, key=lambda i: (away(i), i.began_us), default=None)


def _outage(found: Iterable[Incident], keys: Iterable[Key], at: int, held: Held) -> Incident | None:
    """The incident in which one of these partitions lost the leader that it did not have just before ``at``."""
    for key in keys:
        before = [s for s in held.get(key, []) if s.t0 < at]
        if before and before[-1].known and before[-1].leader is None:
            earlier = [i for i in found if key in i.keys and i.began_us < at]
            if earlier:
                return max(earlier, key=lambda i: i.began_us)
    return None


def _joined(found: Sequence[Incident], held: Held) -> list[Incident]:
    """A chain of shrinks that ends an outage, as an unclean election does, goes to the incident that began it."""
    kept: list[Incident] = []
    for incident in sorted(found, key=lambda i: i.began_us):
        home = _outage(kept, incident.keys, incident.began_us, held)
        if home is None:
            kept.append(incident)
            continue
        home.shrinks += incident.shrinks
        home.leader_changes += incident.leader_changes
        home.ended_us = max(home.ended_us, incident.ended_us)
    return kept


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
    """When each incident was over, and what was cut until then."""
    for incident in found:
        ends = [_back(held[key], incident) for key in incident.keys]
        reported = [end for end in ends if end is not None]
        incident.recovered_us = max([incident.ended_us, *reported]) if len(reported) == len(ends) else None
    for number, incident in enumerate(sorted(found, key=lambda i: i.began_us)):
        later = [other.began_us for other in found if other.began_us > incident.began_us]
        until = min(later, default=FOREVER_US)
        incident.truncations = [
            e
            for e in events
            if e.event_type == "TRUNCATION"
            and e.cluster_id == incident.cluster_id
            and (incident.began_us <= e.t_us < until or (number == 0 and e.t_us < until))
        ]


def _back(held: Sequence[State], incident: Incident) -> int | None:
    """When the partition's ISR had all of its replicas again, and it had a leader; None if it never did.

    A partition that healed before the last decision of the incident is back since then, however often it is in trouble
    later. Where its replicas were not reported, as many members are expected as it had before.
    """
    before = [len(s.isr) for s in held if s.t0 < incident.began_us]
    size = before[-1] if before else max((len(s.isr) for s in held), default=0)
    whole = [s for s in held if s.known and s.leader is not None and len(s.isr) >= (len(s.replicas) or size)]
    return next((s.t0 for s in whole if s.t1 > incident.ended_us), None)
