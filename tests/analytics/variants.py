"""Variants of the same history: changes of the rows that must not change the statistics, or in a known way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Rows = list[dict[str, Any]]

NODES = ("node_id", "replica_id", "subject_node_id", "old_leader", "new_leader", "fetch_leader_id")
NODE_LISTS = (
    "old_isr", "new_isr", "elr", "replicas", "proposed_isr", "blocking_replicas", "eligible_set", "live_set",
    "fenced_set", "adding_replicas", "removing_replicas", "target_replicas", "original_replicas",
)  # fmt: skip
MOMENTS = (
    "ts_wall_us", "hw_next_append_us", "last_fetch_us", "last_caught_up_us", "first_us", "last_us", "held_since_us",
    "txn_start_us",
)  # fmt: skip
RENAMED_BY = 10
SKEW_US = 7_000_000
MEASURED_SKEWS_S = (-5, 5, 12)
MEASURED_ERR_US = 1_000
LATER_US = 3_600_000_000
BESIDE = 99


def _members(row: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    return {name: [change(member) for member in row[name]] for name in ("removed", "added") if row.get(name)}


def _renamed(rows: Rows) -> Rows:
    """Every node has another id; the order of the ids is kept, because it breaks ties."""

    def other(node: int) -> int:
        return node + RENAMED_BY if node >= 0 else node

    return [
        row
        | {name: other(row[name]) for name in NODES if row.get(name) is not None}
        | {name: [other(node) for node in row[name]] for name in NODE_LISTS if row.get(name) is not None}
        | _members(row, lambda member: member | {"replica_id": other(member["replica_id"])})
        for row in rows
    ]


def _with_another_partition(rows: Rows) -> Rows:
    """A partition of the same topic with a history of its own."""
    topic = next(row for row in rows if row.get("topic"))
    shared = {name: topic[name] for name in ("schema_version", "cluster_id", "topic", "topic_id")} | {
        "partition": BESIDE, "node_id": -1, "incarnation": 77, "leader_epoch": 0, "ts_mono_us": 0,
    }  # fmt: skip
    state = {"new_leader": 1, "new_isr": [1, 2], "replicas": [1, 2], "min_isr": 1}
    change = {"old_isr": [1, 2], "new_isr": [1], "cause": "lag", "initiator": "leader"}
    beside = [
        {"seq": 1, "ts_wall_us": -1_000_000, "event_type": "STATE_SNAPSHOT", "partition_epoch": 1, **state},
        {"seq": 2, "ts_wall_us": 33_000_000, "event_type": "ISR_CHANGE", "partition_epoch": 2, **change},
    ]
    return [*rows, *(shared | row | {"meta_offset": 1_000 + row["seq"]} for row in beside)]


def _with_a_skewed_node(rows: Rows, skew_us: int = SKEW_US) -> Rows:
    """The clock of node 1 is ahead of all others."""

    def later(moments: dict[str, Any]) -> dict[str, Any]:
        return moments | {name: moments[name] + skew_us for name in MOMENTS if moments.get(name) is not None}

    return [later(row) | _members(row, later) if row["node_id"] == 1 else row for row in rows]


def _with_a_measured_node(rows: Rows, skew_us: int) -> Rows:
    """The clock of node 1 is ahead by ``skew_us``, and the controller measured that."""

    def is_measurement(row: dict[str, Any]) -> bool:
        return row["event_type"] == "CLOCK_SAMPLE" and row["subject_node_id"] == 1

    reported = [
        row | {"offset_us": row["offset_us"] + skew_us} if is_measurement(row) else row
        for row in _with_a_skewed_node(rows, skew_us)
    ]
    if any(is_measurement(row) for row in rows):
        return reported
    shared = {name: rows[0][name] for name in ("schema_version", "cluster_id")} | {"node_id": -1, "incarnation": 78}
    measured = {"event_type": "CLOCK_SAMPLE", "subject_node_id": 1, "offset_us": skew_us, "err_us": MEASURED_ERR_US}
    return [*reported, shared | measured | {"seq": 1, "ts_wall_us": -1_000_000, "ts_mono_us": 0}]


def with_a_copy(rows: Rows) -> Rows:
    """Node 1's clock is ahead by the largest measured skew, and its truncation event is there twice."""
    reported = _with_a_measured_node(rows, max(MEASURED_SKEWS_S) * 1_000_000)
    return [*reported, *(row for row in reported if row["event_type"] == "TRUNCATION" and row["node_id"] == 1)]


def _later(rows: Rows) -> Rows:
    """All clocks are ahead by the same time."""

    def later(moments: dict[str, Any]) -> dict[str, Any]:
        names = (*MOMENTS, "last_heartbeat_us")
        return moments | {name: moments[name] + LATER_US for name in names if moments.get(name) is not None}

    return [later(row) | _members(row, later) for row in rows]


def _thinned(rows: Rows) -> Rows:
    """Every second sample is missing."""
    looks = sorted({row["sample_id"] for row in rows if row["event_type"] == "REPLICA_SAMPLE"})
    missing = set(looks[1::2])
    return [row for row in rows if row.get("sample_id") not in missing]


def _with_groups(rows: Rows) -> Rows:
    """Consumer groups read the first partition: events of them, from a node that may not lead it."""
    topic = next(row for row in rows if row.get("topic"))
    shared = {name: topic[name] for name in ("schema_version", "cluster_id")} | {"node_id": 2, "incarnation": 79}
    consumed = {name: topic[name] for name in ("topic", "topic_id", "partition")}
    own = {"topic": "__group_state", "topic_id": "G", "partition": 7, "leader_epoch": 0, "group_id": "g"}
    member = {"event_type": "MEMBER_CHANGE", "member_id": "m", "phase": "assigned", "member_epoch": 1, "revoking": []}
    group = {"event_type": "GROUP_CHANGE", "group_epoch": 1, "target_epoch": 1, "n_members": 1, "cause": "join"}
    offsets = {"event_type": "GROUP_OFFSETS", "group_id": "g", "commit_us": 0, "n_commits": 1, "n_error": {"X": 1}}
    states = [
        own | {"event_type": "COORDINATOR_LOAD", "bytes": 1, "n_keys": 1, "load_ms": 1},
        own | member | {"assigned": [f"{topic['topic_id']}:{topic['partition']}"]},
        own | group | {"old_state": "Empty", "new_state": "Reconciling"},
        consumed | offsets | {"committed": 3},
        consumed | offsets | {"committed": 8},
        own | group | {"old_state": "Reconciling", "new_state": "Stable"},
    ]
    times = [{"seq": n, "ts_wall_us": n * 9_000_000, "ts_mono_us": n * 9_000_000} for n in range(1, len(states) + 1)]
    return [*rows, *(shared | at | row for at, row in zip(times, states, strict=True))]


VARIANTS: dict[str, Callable[[Rows], Rows]] = {
    "shuffled": lambda rows: rows[1::2] + rows[::2][::-1],
    "doubled": lambda rows: [*rows, *rows],
    "renamed": _renamed,
    "beside": _with_another_partition,
    "skewed": _with_a_skewed_node,
    "thinned": _thinned,
    **{
        f"measured {skew_s} s": partial(_with_a_measured_node, skew_us=skew_s * 1_000_000)
        for skew_s in (0, *MEASURED_SKEWS_S)
    },
    "later": _later,
    "groups": _with_groups,
}
"""What is done to every worked history, by name."""
