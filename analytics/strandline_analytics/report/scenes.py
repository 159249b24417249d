"""What of an incident is drawn: which of its partitions, and from when to when.

Invariant: what is not drawn is counted by the code that shows the drawings.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline_analytics.report.incidents import Incident, Key
from strandline_analytics.report.material import Material

MOST_PARTITIONS = 6
"""Drawings of one incident; its table has all of its partitions."""

MOST_INCIDENTS = 12
"""Incidents with drawings: the first ones, by time."""

_LEAST_PAD_US = 500_000
_PAD_SHARE = 0.12


@dataclass(frozen=True, slots=True)
class Scene:
    """One partition in [t0, t1), us."""

    key: Key
    t0: int
    t1: int


def scenes(incident: Incident, material: Material) -> list[Scene]:
    """What is drawn of an incident: partitions whose log was cut first, then those that changed their leader."""
    if incident.number > MOST_INCIDENTS:
        return []
    cut = {event.key: event.get("from_leo") - event.get("to_leo") for event in incident.truncations}
    led = {event.key for event in incident.leader_changes}
    chosen = sorted(incident.keys, key=lambda key: (-cut.get(key, 0), key not in led, str(key[1]), key[2] or 0))
    t0, t1 = window(incident, material)
    return [Scene(key, t0, t1) for key in chosen[:MOST_PARTITIONS]]


def window(incident: Incident, material: Material) -> tuple[int, int]:
    """From a little before the first decision to a little after the recovery, within what was asked about."""
    until = incident.recovered_us if incident.recovered_us is not None else material.end_us
    until = max(until, incident.ended_us, *(stall.t1 for stall in incident.stalls), *[0])
    began = min([incident.began_us, *(stall.t0 for stall in incident.stalls)])
    pad = max(_LEAST_PAD_US, round((until - began) * _PAD_SHARE))
    return max(material.start_us, began - pad), min(material.end_us, until + pad)
