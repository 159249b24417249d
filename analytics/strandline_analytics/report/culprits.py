"""Whom incidents are about: the node that most of it points to, why, and when it was down.

Invariant: a node is named for what events or an inferred cause say of it, and an inferred one is called so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from strandline_analytics.report.drawing import clock_text
from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Material
from strandline_analytics.timeline.states import downs

MOSTLY = 0.8
"""With this share of what happened a node is the one that it is about (S17)."""

_NAMED = 3
"""So many names are written, the others counted."""


def whose(material: Material, incidents: Sequence[Incident]) -> str:
    """How many incidents there are, and the node that most of it is about, with the reason and when it was down."""
    reported = count_text(len(incidents), "incident")
    faults = [incident for incident in incidents if not incident.is_planned]
    about = Counter((fault.cluster_id, node) for fault in faults for node in fault.culprits.elements())
    if not about:
        return reported
    of_several = len({event.cluster_id for event in material.events}) > 1
    most = sorted(about, key=lambda one: (-about[one], one))
    names = [f"node {node} of {cluster}" if of_several else f"node {node}" for cluster, node in most]
    if about[most[0]] < MOSTLY * about.total():
        return f"{reported}: {names_text(names)}"
    own = [fault for fault in faults if fault.cluster_id == most[0][0] and most[0][1] in fault.culprits]
    ((why, _),) = Counter(fault.reason for fault in own).most_common(1)
    return f"{reported}: {names[0]} ({why}{down_text(material, own, most[0][1])})"


def down_text(material: Material, own: Sequence[Incident], node: int) -> str:
    """``, down FROM to TO``: when a node was fenced in these incidents of its cluster, of several times the first.

    It is empty where the node was not.
    """
    reported = [e for e in material.events if e.partition is None and e.cluster_id == own[0].cluster_id]
    times = [
        down
        for down in downs(reported, material.end_us)
        if down.node_id == node and any(down.t1 > one.began_us and down.t0 <= _over(one, material) for one in own)
    ]
    if not times:
        return ""
    first, others = times[0], len(times) - 1
    more = f", and {'once' if others == 1 else f'{others} times'} more" if others else ""
    if first.t1 >= material.end_us:
        return f", down since {clock_text(first.t0)}{more}"
    return f", down {clock_text(first.t0)} to {clock_text(first.t1)}{more}"


def _over(incident: Incident, material: Material) -> int:
    return material.end_us if incident.recovered_us is None else incident.recovered_us


def who_text(material: Material, incident: Incident) -> str:
    """The nodes that an incident is about, and why."""
    about = [node for node, _ in incident.culprits.most_common()]
    if not about:
        return incident.reason
    down = down_text(material, [incident], about[0]) if len(about) == 1 else ""
    return f"{names_text([f'node {node}' for node in about])} ({incident.reason}{down})"


def names_text(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def count_text(number: int, what: str) -> str:
    """``1 incident``, ``2 incidents``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
