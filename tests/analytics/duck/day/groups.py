"""Consumer groups and transactions of a generated day: what their coordinators and the leaders reported of them.

Twenty groups read the hot partition, and one more reads each topic. Groups commit what the HW was a while before, which
some do not for half an hour; they rebalance every few hours. Transactions hold back the LSO of every fifth partition,
and end in every way. Coordinators change once, at noon.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from day.looks import _APART, Columns
from day.shape import CONTROLLER, HOT, HOUR, PARTITIONS_PER_TOPIC, SECOND, Shape

Row = dict[str, Any]
HOT_GROUPS = 20
COORDINATING = 4
"""Partitions of each topic of coordinators."""
_COMMITS, _TRANSACTIONS = 0.06, 0.03
"""Of all events: reports of committed offsets, and reports of transactions."""
_GROUPS, _IDS = "__group_state", "__transaction_state"
_ENDS = ("committed", "committed", "aborted", "timeout", "fenced", "completed", "marker_refused")


def room(shape: Shape) -> int:
    """How many rows `commits` and `transactions` make."""
    return _n_commits(shape) + 4 * _n_transactions(shape)


def _n_commits(shape: Shape) -> int:
    return int(shape.events * _COMMITS)


def _n_transactions(shape: Shape) -> int:
    return int(shape.events * _TRANSACTIONS) // 4


def coordinators(shape: Shape, rng: np.random.Generator) -> list[Row]:
    """Who coordinates, and what became of groups and their members."""
    rows = [row for topic in (_GROUPS, _IDS) for n in range(COORDINATING) for row in _decided(shape, topic, n)]
    for number, (name, partitions) in enumerate(_groups(shape)):
        rows += _course(shape, number, name, partitions, rng)
    return rows


def commits(shape: Shape, replicas: Columns, rng: np.random.Generator) -> Columns:
    """GROUP_OFFSETS: most of them of the hot partition, in as many groups as read it."""
    groups = _groups(shape)
    read = [(number, partition) for number, (_, partitions) in enumerate(groups) for partition in partitions]
    weight = np.array([30.0 if number < HOT_GROUPS else 1.0 for number, _ in read])
    n = _n_commits(shape)
    chosen = np.array(read)[rng.choice(len(read), n, p=weight / weight.sum())]
    t = rng.integers(2 * SECOND, shape.end - SECOND, n)
    order = np.lexsort((t, chosen[:, 1], chosen[:, 0]))
    number, p, t = chosen[order, 0], chosen[order, 1], t[order]
    # Every seventh group does not move on for half an hour.
    stuck = (number % 7 == 0) & (t % (4 * HOUR) < HOUR // 2)
    seen_at = np.where(stuck, t - t % (4 * HOUR), t - rng.integers(0, 5 * SECOND, n))
    own = np.flatnonzero(replicas["replica_id"] == replicas["node_id"])
    own = own[np.argsort(replicas["p"][own] * _APART + replicas["t"][own], kind="stable")]
    at = np.searchsorted(replicas["p"][own] * _APART + replicas["t"][own], p * _APART + np.maximum(seen_at, 0)) - 1
    before = own[np.maximum(at, 0)]
    committed = np.where((at >= 0) & (replicas["p"][before] == p), replicas["hw"][before], 0)
    epoch = (t >= shape.end // 2).astype(np.int64)
    errors = np.empty(n, object)
    errors[:] = [[] for _ in range(n)]
    for place in np.flatnonzero(rng.random(n) < 0.02).tolist():
        errors[place] = [("STALE_MEMBER_EPOCH", 1 + place % 3)]
    return {
        "p": p, "t": t, "node_id": (number % COORDINATING + epoch) % shape.nodes, "coordinator_epoch": epoch,
        "group_id": np.array([groups[n][0] for n in number.tolist()]), "committed": committed, "commit_us": t,
        "n_commits": rng.integers(0, 4, n), "n_error": errors,
    }  # fmt: skip


def transactions(shape: Shape, replicas: Columns, rng: np.random.Generator) -> list[Row]:
    """What leaders reported of transactions, and what their coordinators decided."""
    n = _n_transactions(shape)
    led = np.flatnonzero((replicas["replica_id"] == replicas["node_id"]) & (replicas["p"] % 5 == 1))
    if not len(led):
        led = np.flatnonzero(replicas["replica_id"] == replicas["node_id"])
    rows: list[Row] = []
    for index, held_s in zip(rng.choice(led, n).tolist(), rng.integers(2, 90, n).tolist(), strict=True):
        row = {name: int(replicas[name][index]) for name in ("p", "t", "node_id", "leader_epoch", "partition_epoch")}
        hw, since, producer = int(replicas["hw"][index]), row["t"], int(rng.integers(0, 20))
        ended = min(since + held_s * SECOND, shape.end - 1)
        end = _ENDS[int(rng.integers(len(_ENDS)))]
        own = {"producer_id": producer, "producer_epoch": 0, "first_offset": hw}
        opened = {"event_type": "TRANSACTION_OPEN", "t": min(since + SECOND, shape.end - 1), "cause": "open"}
        rows.append(row | own | opened | {"held_since_us": since, "txn_start_us": since, "hw": hw + 9})
        outcome = {"event_type": "TRANSACTION_DECIDED", "outcome": "commit" if end == "committed" else "abort"}
        rows.append(row | own | outcome | _sum(ended, 1, (ended - since) // 1_000, hw))
        rows.append(row | outcome | _sum(since, int(rng.integers(1, 90)), int(rng.integers(0, 5_000)), hw))
        place = _at(shape, _IDS, producer % COORDINATING, ended)
        said = {"event_type": "TRANSACTION_CHANGE", "cause": end, "transactional_id": f"id-{producer}",
                "txn_start_us": since, "n_coalesced": 1, "coordinator_epoch": place["leader_epoch"]}  # fmt: skip
        rows.append(place | said)
    return rows


def _sum(last: int, n_coalesced: int, held_ms: int, offset: int) -> Row:
    return {"t": last, "first_us": last, "last_us": last, "n_coalesced": n_coalesced, "held_ms": held_ms,
            "marker_offset": offset + 1}  # fmt: skip


def _groups(shape: Shape) -> list[tuple[str, list[int]]]:
    topics = range(-(-shape.partitions // PARTITIONS_PER_TOPIC))
    of_topic = [
        [p for p in range(t * PARTITIONS_PER_TOPIC, (t + 1) * PARTITIONS_PER_TOPIC) if p < shape.partitions]
        for t in topics
    ]
    return [(f"hot-{n:02}", [HOT]) for n in range(HOT_GROUPS)] + [(f"of-topic-{t}", of_topic[t]) for t in topics]


def _at(shape: Shape, topic: str, partition: int, t: int) -> Row:
    """Where a coordinator reports, and which one does at that time."""
    epoch = int(t >= shape.end // 2)
    return {"topic": topic, "topic_id": topic.strip("_"), "partition": partition, "t": t, "leader_epoch": epoch,
            "node_id": (partition + epoch) % shape.nodes, "partition_epoch": epoch}  # fmt: skip


def _decided(shape: Shape, topic: str, partition: int) -> list[Row]:
    """What the controller decided about a partition of coordinators."""
    first, second = partition % shape.nodes, (partition + 1) % shape.nodes
    state = {"replicas": sorted({first, second}), "min_isr": 1, "node_id": CONTROLLER}
    rows = [_at(shape, topic, partition, 10_000) | state | {"event_type": "CONFIG_CHANGE", "topic_created": True}]
    for t in range(10_000, shape.end, HOUR):
        leader = first if t < shape.end // 2 else second
        snapshot = {"event_type": "STATE_SNAPSHOT", "new_isr": state["replicas"], "new_leader": leader}
        rows.append(_at(shape, topic, partition, t) | state | snapshot)
    moved = {"event_type": "LEADER_CHANGE", "old_leader": first, "new_leader": second, "old_leader_epoch": 0,
             "new_leader_epoch": 1, "reason": "preferred", "election_type": "preferred"}  # fmt: skip
    return [*rows, _at(shape, topic, partition, shape.end // 2) | moved | {"node_id": CONTROLLER}]


def _course(shape: Shape, number: int, name: str, partitions: list[int], rng: np.random.Generator) -> list[Row]:
    """A group forms, rebalances every few hours, and is repeated at the start of each hour."""
    assigned = [f"{shape.topic_id(p)}:{p}" for p in partitions]
    shares = [assigned[::2], assigned[1::2]]
    rows: list[Row] = []

    def member(t: int, which: int, phase: str, held: list[str], **more: Any) -> None:
        said = {"event_type": "MEMBER_CHANGE", "group_id": name, "member_id": f"{name}-m{which}", "phase": phase,
                "member_epoch": 1, "assigned": held, "revoking": []}  # fmt: skip
        rows.append(_at(shape, _GROUPS, number % COORDINATING, t) | said | more)

    def group(t: int, old: str, new: str, cause: str = "join") -> None:
        said = {"event_type": "GROUP_CHANGE", "group_id": name, "old_state": old, "new_state": new, "group_epoch": 1,
                "target_epoch": 1, "n_members": 0 if new == "Empty" else 2, "cause": cause}  # fmt: skip
        rows.append(_at(shape, _GROUPS, number % COORDINATING, t) | said)

    t, state = SECOND + int(rng.integers(SECOND)), "Empty"
    while t < shape.end - 60 * SECOND:
        group(t, state, "Assigning")
        for which, held in enumerate(shares):
            member(t + 100_000, which, "revoking" if state == "Stable" else "joined", held[1:])
            member(t + SECOND + int(rng.integers(20 * SECOND)), which, "assigned", held)
        group(t + 500_000, "Assigning", "Reconciling")
        group(t + 22 * SECOND, "Reconciling", "Stable")
        state, t = "Stable", t + int(rng.integers(2 * HOUR, 8 * HOUR))
    for hour in range(HOUR + 2 * SECOND, shape.end, HOUR):
        for which, held in enumerate(shares):
            member(hour, which, "assigned", held, cause="repeated")
        group(hour, "Stable", "Stable", "repeated")
    return rows
