"""Selects what is drawn of an incident: which of its partitions, and which period.

Of partitions that look alike one is drawn. Invariant: the code that shows the drawings names or counts the partitions
that are not drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from strandline_analytics.report.incident import Incident, Key
from strandline_analytics.report.material import Material
from strandline_analytics.report.pictures import noted
from strandline_analytics.timeline.event import Event, Stall

# ---- likeness
# Finds partitions of an incident that look alike, so that one picture is enough for all of them.
#
# Invariant: partitions are alike only if the same happened to them, equally often: the same nodes left and came back
# for the same causes, the same leader was lost, the same replicas cut their logs. The later leader, offsets and times
# make no difference.

Likeness = frozenset[tuple[Hashable, int]]
"""The events that happened to a partition, and how often."""


def likeness(of_partition: Iterable[Event], stalls: Iterable[Stall]) -> Likeness:
    """The key that partitions that look alike have in common.

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
        is_leaderless = (event.get("new_leader") or 0) < 0
        return kind, event.cause, event.get("election_type"), event.get("old_leader"), is_leaderless
    if kind == "TRUNCATION":
        committed = event.get("committed_cut")
        return kind, event.node_id, committed is None, bool(committed)
    if kind == "EPOCH_START":
        return (kind,)
    return kind, event.node_id, event.cause, event.get("phase"), event.get("error_code")


MOST_PARTITIONS = 6
"""The maximum number of drawings of one incident; its table has all of its partitions."""

MOST_INCIDENTS = 12
"""The maximum number of incidents with drawings: the first ones of the table."""

_LEAST_PAD_US = 500_000
_PAD_SHARE = 0.12
_BEFORE_NEXT_US = 1_000
"""A drawing ends this long before the next incident: a node is fenced a moment before its incident's first decision."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One partition in [t0, t1), us, and the partitions to which the same happened."""

    key: Key
    t0: int
    t1: int
    alike: tuple[Key, ...] = ()


def scenes(incident: Incident, found: Sequence[Incident], material: Material) -> list[Scene]:
    """The scenes of an incident: first partitions whose log was cut, then those that changed their leader.

    Of partitions that look alike the first one is drawn.

    Args:
        incident: the incident to draw.
        found: all incidents; a drawing ends where the next one begins, if this one is over by then.
        material: the events of the incidents.
    """
    if incident.number > MOST_INCIDENTS:
        return []
    cut = {event.key: event.cut_records or 0 for event in incident.truncations}
    led = {event.key for event in incident.leader_changes}
    chosen = sorted(incident.keys, key=lambda key: (-cut.get(key, 0), key not in led, str(key[1]), key[2] or 0))
    t0, t1 = window(incident, found, material)
    inside: dict[Key, list[Event]] = {key: [] for key in chosen}
    for event in material.events:
        if event.key in inside and t0 <= event.t_us < t1:
            inside[event.key].append(event)
    alike: dict[Likeness, list[Key]] = {}
    for key in chosen:
        stalls = [stall for stall in incident.stalls if stall.key == key]
        alike.setdefault(likeness(inside[key], stalls), []).append(key)
    return [Scene(first, t0, t1, tuple(others)) for first, *others in list(alike.values())[:MOST_PARTITIONS]]


def window(incident: Incident, found: Sequence[Incident], material: Material) -> tuple[int, int]:
    """The period from a little before the first decision to a little after the recovery, or to the next incident,
    within the window of the report."""
    until = incident.recovered_us if incident.recovered_us is not None else material.end_us
    until = max(until, incident.ended_us, *(stall.t1 for stall in incident.stalls), *[0])
    began = min([incident.began_us, *(stall.t0 for stall in incident.stalls)])
    pad = max(_LEAST_PAD_US, round((until - began) * _PAD_SHARE))
    later = (other.began_us - _BEFORE_NEXT_US for other in found if other.began_us > until)
    following = max(until, min(later, default=material.end_us))
    return max(material.start_us, began - pad), min(material.end_us, until + pad, following)
