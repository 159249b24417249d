"""Whose events are still in a spool: a node that was killed exports its last minutes only when it runs again.

Invariant: said of a node that is down at the end of the window, in a cluster whose nodes export, if neither the last
word of its export was read nor anything as late as the controller heard it.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline_analytics.report.drawing import clock_text
from strandline_analytics.report.material import Material
from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.states import downs

_LATE_US = 12_000_000
"""An export says every 10 s that it is alive, and its events are in the spool a second later at most, us."""


def spooled(material: Material) -> Iterator[str]:
    """A sentence for each such node."""
    for cluster in sorted({event.cluster_id for event in material.events}):
        events = sorted((e for e in material.events if e.cluster_id == cluster), key=lambda e: (e.incarnation, e.seq))
        beats = [e for e in events if e.event_type == "EXPORT_HEARTBEAT" and not e.by_controller]
        # An import of Kafka's logs writes heartbeats too, and has no spool; it says which clock its times are of.
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
