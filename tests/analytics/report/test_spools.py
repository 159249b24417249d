"""A report after a crash says whose events are still in the spool of the killed node."""

from __future__ import annotations

from dataclasses import replace

from reported_material import BEGIN_US, event, failover, material

from strandline_analytics.report.culprits import spooled
from strandline_analytics.report.page import page
from strandline_analytics.timeline.event import Event

REMEDY = "are still in its spool: start it, or run `strandline export recover DATA_DIR EXPORT`"


def _beat(at_s: float, node: int, incarnation: int = 1, **ext: str) -> Event:
    made = event("EXPORT_HEARTBEAT", at_s * 1_000, plane="node", node=node, last_seq=1)
    return replace(made, incarnation=incarnation, ext=ext)


def _session(at_s: float, node: int, phase: str, heard_s: float | None = None) -> Event:
    heard = {} if heard_s is None else {"last_heartbeat_us": BEGIN_US + round(heard_s * 1_000_000)}
    return event("NODE_SESSION", at_s * 1_000, plane="node", subject_node_id=node, phase=phase, cause="x", **heard)


def _said(*events: Event) -> list[str]:
    return list(spooled(replace(material(events=[*events]), end_us=BEGIN_US + 200_000_000)))


def _killed(*more: Event) -> list[Event]:
    """Node 1, which registered at 1 s, was heard at 99 s and fenced at 100 s; node 2 exports to the end."""
    return [_session(1, 1, "register"), _session(100, 1, "fence", 99), _beat(150, 2), *more]


def test_events_of_a_killed_node_are_said_to_be_in_its_spool() -> None:
    """Since the last that was read, or since it registered where nothing was; in the first lines of the page."""
    assert _said(*_killed(_beat(29, 1))) == [f"node 1's events since 18:08:59.000 {REMEDY}"]
    assert _said(*_killed()) == [f"node 1's events since 18:08:31.000 {REMEDY}"]
    gone = [e for e in failover() if e.get("phase") != "unfence"]
    late = [replace(e, t_us=e.t_us + 60_000_000) for e in gone if e.get("phase") == "fence"]
    heard = [replace(e, fields={**e.fields, "last_heartbeat_us": BEGIN_US + 60_000_000}) for e in late]
    others = [e for e in gone if e.get("phase") != "fence"]
    shown = page(replace(material(events=[*others, *heard, _beat(61, 2)]), end_us=BEGIN_US + 90_000_000))
    assert shown["verdict"].details[0].startswith("node 1's events since 18:08:34.200 are still in its spool")


def test_nothing_is_missing_of_a_node_that_said_all_or_is_back() -> None:
    """An orderly end, a spool that was recovered, a node that runs again, and a node that is removed."""
    assert _said(*_killed(_beat(29, 1, final="true"))) == []
    assert _said(*_killed(_beat(95, 1))) == []
    assert _said(*_killed(_beat(29, 1), _session(120, 1, "unfence"))) == []
    assert _said(*_killed(_beat(29, 1), _session(120, 1, "unregister"))) == []


def test_the_last_process_of_a_node_counts() -> None:
    """The one before ended in order; the one that was killed did not."""
    assert _said(*_killed(_beat(20, 1, 1, final="true"), _beat(50, 1, 2)))[0].startswith(
        "node 1's events since 18:09:20"
    )


def test_a_cluster_whose_nodes_do_not_export_has_no_spool() -> None:
    """Neither one of which only the controller exports, nor an import of Kafka's logs."""
    killed = [e for e in _killed() if e.event_type != "EXPORT_HEARTBEAT"]

    assert _said(*killed) == []
    assert _said(*killed, _beat(20, 1, clock="wall"), _beat(150, 2, clock="wall")) == []
