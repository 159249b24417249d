"""Hand-written material of reports: the input of a page, without a JVM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline_analytics.report.material import Declared, Material, Result
from strandline_analytics.timeline.causes import MOVED, PLANNED
from strandline_analytics.timeline.event import Event, Stall

BEGIN_US = 1_795_284_510_000_000
_COUNTS = {
    "s07": (
        "truncated_records",
        "own_hw_unknown",
        "committed_cut_records",
        "epochs_unknown",
        "committed_lost_records",
        "committed_lost_min_bytes",
        "committed_lost_max_bytes",
        "avoidable_lost_records",
    ),
    "s08": ("shrinks", "expands"),
}


def event(kind: str, at_ms: float, *, plane: str = "control", node: int = -1, seq: int = 0, **said: Any) -> Event:
    """An event this many ms after the beginning; of topic t, partition 0, unless it belongs to a whole node."""
    of_node = plane == "node"
    t_us = BEGIN_US + round(at_ms * 1000)
    return Event(
        cluster_id="c",
        event_type=kind,
        node_id=node,
        incarnation=1,
        seq=seq or round(at_ms * 10) + 1,
        t_us=t_us,
        raw_us=t_us,
        topic=None if of_node else "t",
        topic_id=None if of_node else "T",
        partition=None if of_node else said.pop("partition", 0),
        leader_epoch=said.pop("leader_epoch", None),
        partition_epoch=said.pop("partition_epoch", None),
        ordinal=said.pop("ordinal", 0),
        plane=plane,
        fields=said,
    )


def failover() -> list[Event]:
    """Node 1 leads, is fenced at 2 s, truncated at 4.2 s and back in the ISR at 5 s; 2 uncommitted records went."""
    everybody, left = [1, 2, 3], [2, 3]
    found = [
        event("CONFIG_CHANGE", 0, partition_epoch=0, topic_created=True, replicas=everybody, min_isr=2),
        event("STATE_SNAPSHOT", 0, partition_epoch=0, leader_epoch=0, new_leader=1, new_isr=everybody),
        event("LEADER_CHANGE", 0, partition_epoch=0, leader_epoch=0, old_leader=-1, new_leader=1, new_leader_epoch=0,
              reason="created"),
        event("NODE_SESSION", 2_000, plane="node", subject_node_id=1, phase="fence", cause="session_timeout",
              last_heartbeat_us=BEGIN_US + 500_000),
        event("ISR_CHANGE", 2_000, partition_epoch=1, leader_epoch=1, old_isr=everybody, new_isr=left,
              cause="node_fenced", initiator="controller"),
        event("LEADER_CHANGE", 2_000, partition_epoch=1, leader_epoch=1, old_leader=1, new_leader=2,
              old_leader_epoch=0, new_leader_epoch=1, reason="node_fenced", election_type="isr"),
        event("EPOCH_START", 2_020, plane="data", node=2, partition_epoch=1, leader_epoch=1, start_offset=10, hw=9,
              new_isr=left),
        event("NODE_SESSION", 4_000, plane="node", subject_node_id=1, phase="unfence", cause="heartbeat"),
        event("TRUNCATION", 4_200, plane="data", node=1, partition_epoch=1, leader_epoch=1, from_leo=12, to_leo=10,
              hw_before=9, committed_cut=0, reason="epoch_end_offset"),
        event("ALTER_PARTITION", 4_990, plane="data", node=2, partition_epoch=1, leader_epoch=1, phase="proposed",
              request_id=3, expected_partition_epoch=1, proposed_isr=everybody),
        event("ISR_CHANGE", 5_000, partition_epoch=2, leader_epoch=1, old_isr=left, new_isr=everybody,
              cause="catch_up", initiator="leader"),
    ]  # fmt: skip
    return found


def samples() -> list[Event]:
    """Samples of both leaders: at 1 s and 1.5 s of the first, at 2.05 s and later of the second, one of a zombie."""

    def look(at_ms: float, node: int, epoch: int, leo: int, hw: int) -> Event:
        return event(
            "REPLICA_SAMPLE", at_ms, plane="data", node=node, partition_epoch=epoch, leader_epoch=epoch,
            interval_ms=500, replica_id=node, leo=leo, leader_leo=leo, hw=hw,
        )  # fmt: skip

    advance = event("HW_ADVANCE", 2_600, plane="data", node=2, partition_epoch=1, leader_epoch=1, old_hw=9, new_hw=11,
                    cause="fetch", blocking_replicas=[3])  # fmt: skip
    first = [look(1_000, 1, 0, 8, 8), look(1_500, 1, 0, 10, 8)]
    second = [look(2_050, 2, 1, 10, 9), advance, look(5_200, 2, 1, 20, 20)]
    return [*first, *second, look(2_100, 1, 0, 12, 9)]


def unclean() -> list[Event]:
    """`failover`, but the new leader is elected unclean and the old one truncates without knowing its own HW."""
    changed = {"LEADER_CHANGE": {"election_type": "unclean"}, "TRUNCATION": {"hw_before": 0, "committed_cut": None}}
    return [
        replace(e, fields={**e.fields, **changed.get(e.event_type, {})}) if e.t_us > BEGIN_US else e for e in failover()
    ]


def outage(**how: str) -> list[Event]:
    """Node 1, which led, is fenced at 3 s; 30 s later node 2 is elected, in a way that is given."""
    return [
        event("NODE_SESSION", 3_000, plane="node", subject_node_id=1, phase="fence", cause="session_timeout",
              last_heartbeat_us=BEGIN_US + 500_000),
        event("LEADER_CHANGE", 3_000, partition_epoch=2, leader_epoch=1, old_leader=1, new_leader=-1,
              old_leader_epoch=0, new_leader_epoch=1, reason="node_fenced"),
        event("LEADER_CHANGE", 33_000, partition_epoch=3, leader_epoch=2, old_leader=-1, new_leader=2,
              old_leader_epoch=1, new_leader_epoch=2, **how),
    ]  # fmt: skip


def material(
    *,
    events: list[Event] | None = None,
    stalls: tuple[Stall, ...] = (),
    lost: int | None = 0,
    epochs_unknown: int | None = None,
    cut_below_hw: int = 0,
    under_replicated_us: int | None = None,
    lost_bytes: tuple[int | None, int | None] = (None, None),
    avoidable: int | None = None,
) -> Material:
    """A report's material, with as many results as the page's figures need."""
    reported = failover() if events is None else events
    changes = [e for e in reported if e.event_type == "ISR_CHANGE" and e.cause != MOVED]
    shrinks = [e for e in changes if set(e.get("old_isr")) - set(e.get("new_isr"))]
    moments = dict.fromkeys((e.cluster_id, "planned" if e.cause in PLANNED else "unplanned", e.t_us) for e in shrinks)
    chains = [
        {"cluster_id": cluster, "kind": kind, "began_us": t_us, "ended_us": t_us, "shrinks": 1, "label": None}
        for cluster, kind, t_us in moments
    ]
    expands = len(changes) - len(shrinks)
    cut = sum(e.get("from_leo") - e.get("to_leo") for e in reported if e.event_type == "TRUNCATION")
    blind = sum(e.event_type == "TRUNCATION" and e.get("committed_cut") is None for e in reported)
    unknown = (lost is None) if epochs_unknown is None else epochs_unknown
    values = {"truncated_records": cut, "own_hw_unknown": blind, "committed_cut_records": cut_below_hw,
              "epochs_unknown": unknown, "committed_lost_records": lost, "shrinks": len(shrinks),
              "expands": expands, "committed_lost_min_bytes": lost_bytes[0],
              "committed_lost_max_bytes": lost_bytes[1], "avoidable_lost_records": avoidable}  # fmt: skip
    results = {name: _result(name, names, [_row(values, names)]) for name, names in _COUNTS.items()}
    results["s17"] = _result("s17", ("began_us", "ended_us", "shrinks"), chains)
    under = (3_000_000 if shrinks else 0) if under_replicated_us is None else under_replicated_us
    results["s10"] = _result(
        "s10", ("under_replicated_us",), [_row({"under_replicated_us": under}, ("under_replicated_us",))]
    )
    return Material(
        inputs=["/export"],
        input_hash="abc",
        version="1",
        made_us=BEGIN_US,
        start_us=BEGIN_US,
        end_us=BEGIN_US + 10_000_000,
        step_us=1_000_000,
        events=reported,
        samples=samples(),
        stalls=stalls,
        results=results,
    )


def stall(t0_ms: float, t1_ms: float) -> Stall:
    """An episode of S18 in t-0, held up by replica 3."""
    t0, t1 = BEGIN_US + round(t0_ms * 1000), BEGIN_US + round(t1_ms * 1000)
    return Stall(cluster_id="c", topic_id="T", topic="t", partition=0, t0=t0, t1=t1, hw=9, ended_by="advance",
                 blockers=(3,), is_under_min=False)  # fmt: skip


def _row(values: dict[str, int | None], names: tuple[str, ...]) -> dict[str, Any]:
    row = {"cluster_id": "c", "topic_id": "T", "topic": "t", "partition": 0, "coverage": 1.0}
    return row | {name: values[name] for name in names}


def _result(name: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Result:
    declared = [
        Declared(
            name=c, unit="us" if c.endswith("_us") else "records", meaning=f"what {c} means", is_extra=c == "began_us"
        )
        for c in columns
    ]
    steps = [{"window_start": BEGIN_US, "cluster_id": "c"} | dict.fromkeys(columns, 1)]
    return Result(
        id=name,
        title=f"Title of {name}",
        headline=next(each.name for each in declared if not each.is_extra),
        definition="First.\n\nSecond.",
        declared=declared,
        rows=rows,
        steps=steps,
    )
