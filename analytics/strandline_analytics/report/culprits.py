"""Finds whom incidents are about: the node that most of the events point to, why, and when it was down.

Invariant: a node is named only because of events or an inferred cause, and an inferred cause is called inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from strandline_analytics.report.drawing import clock_text
from strandline_analytics.report.incident import Incident
from strandline_analytics.report.material import Material
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.states import downs

MOSTLY = 0.8
"""The share of the events from which a node counts as the one that incidents are about (S17)."""

_NAMED = 3
"""The maximum number of names in a sentence; the others are counted."""


def whose(material: Material, incidents: Sequence[Incident]) -> str:
    """The number of incidents, and the node that most of them are about, with the reason and when it was down."""
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
    """``, down FROM to TO``: the first time that a node was fenced in these incidents of its cluster.

    Empty if the node was not fenced.
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
    """The nodes that an incident is about, and the reason."""
    about = [node for node, _ in incident.culprits.most_common()]
    if not about:
        return incident.reason
    down = down_text(material, [incident], about[0]) if len(about) == 1 else ""
    return f"{names_text([f'node {node}' for node in about])} ({incident.reason}{down})"


def names_text(names: Sequence[str]) -> str:
    """The first names, and the number of further ones."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def count_text(number: int, what: str) -> str:
    """``1 incident``, ``2 incidents``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# ---- spools
# Finds nodes with events still in a spool: a node that was killed exports its last minutes only when it runs again.
#
# Invariant: a node is reported if it is down at the end of the window, in a cluster whose nodes export, and neither its
# final heartbeat was read nor any event as late as the controller last heard the node.

_LATE_US = 12_000_000
"""An export heartbeat is written every 10 s, and its events reach the spool at most 1 s later; us."""


def spooled(material: Material) -> Iterator[str]:
    """A sentence for each such node."""
    for cluster in sorted({event.cluster_id for event in material.events}):
        events = sorted((e for e in material.events if e.cluster_id == cluster), key=lambda e: (e.incarnation, e.seq))
        beats = [e for e in events if e.event_type == "EXPORT_HEARTBEAT" and not e.by_controller]
        # An import of Kafka's logs also writes heartbeats but has no spool; its heartbeats name the clock of its times.
        if any("clock" not in beat.ext for beat in beats):
            yield from _of_cluster(events, material.end_us)


def _of_cluster(events: list[Event], end_us: int) -> Iterator[str]:
    sessions = sorted((e for e in events if e.event_type == "NODE_SESSION"), key=lambda e: e.t_us)
    for down in downs(sessions, end_us):
        if down.t1 < end_us:
            continue
        own = [e for e in sessions if e.get("subject_node_id") == down.node_id]
        heard_us = max(int(e.get("last_heartbeat_us") or e.t_us) for e in own if e.get("phase") == "fence")
        written = [e for e in events if e.node_id == down.node_id]
        is_final = bool(written) and written[-1].ext.get("final") == "true"
        since_us = written[-1].t_us if written else own[0].t_us
        if not is_final and heard_us - since_us > _LATE_US:
            yield (
                f"node {down.node_id}'s events since {clock_text(since_us)} are still in its spool: start it, or run "
                "`strandline export recover DATA_DIR EXPORT`"
            )
