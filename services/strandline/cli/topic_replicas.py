"""`strandline topic describe --replicas`: how far every replica of a partition is.

Invariant: what a replica says of itself (LEO, HW, state) comes from its own node, what it lacks (lag) from the leader;
a node that does not answer leaves its columns empty and hides no replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from strandline.cli.output import Column
from strandline.units import duration_text

if TYPE_CHECKING:
    from strandline.client import (
        DescribedCluster,
        DescribedFollower,
        DescribedLeader,
        DescribedPartition,
        DescribedReplica,
    )

COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("node", "node", number=True),
    Column("role", "role"),
    Column("state", "state"),
    Column("log_start_offset", "log start", number=True),
    Column("leo", "LEO", number=True),
    Column("high_watermark", "HW", number=True),
    Column("lag_records", "lag", number=True),
    Column("caught_up_text", "caught up", number=True),
]


def replica_rows(
    image: DescribedCluster,
    led: Iterable[DescribedLeader],
    held: Iterable[DescribedReplica],
    is_wanted: Callable[[str, DescribedPartition], bool],
) -> Iterator[dict[str, Any]]:
    """One row per replica and observer of the partitions that are wanted, the preferred leader first."""
    views = {(view.topic, view.partition): view for view in led}
    selves = {(replica.topic, replica.partition, replica.node_id): replica for replica in held}
    for topic in sorted(image.topics, key=lambda topic: topic.name):
        for partition in topic.partitions:
            if not is_wanted(topic.name, partition):
                continue
            for node_id in (*partition.replicas, *partition.observers):
                name = topic.name, partition.partition
                yield _row(topic.name, partition, node_id, views.get(name), selves.get((*name, node_id)))


def _row(
    topic: str, partition: DescribedPartition, node_id: int, led: DescribedLeader | None, held: DescribedReplica | None
) -> dict[str, Any]:
    own = held.view if held is not None else None
    remote: DescribedFollower | None = None
    if led is not None:
        remote = next((replica for replica in led.replicas if replica.node_id == node_id), None)
    caught_up_ms = remote.last_caught_up_age_ms if remote is not None else None
    lag = _lag(partition, node_id, led, remote)
    return {
        "topic": topic,
        "partition": partition.partition,
        "node": node_id,
        "role": _role(partition, node_id),
        "state": _state(held),
        "log_start_offset": own.log_start_offset if own else None,
        "leo": own.leo if own else None,
        "durable_leo": own.durable_leo if own else None,
        "high_watermark": own.high_watermark if own else None,
        "lag_records": lag,
        "caught_up_age_ms": caught_up_ms,
        # A fetch of an idle partition is parked for long: of a replica that lacks nothing the age says nothing.
        "caught_up_text": f"{duration_text(caught_up_ms)} ago" if lag and caught_up_ms is not None else None,
        "size_bytes": held.size_bytes if held is not None else None,
    }


def _role(partition: DescribedPartition, node_id: int) -> str:
    if node_id == partition.leader:
        return "leader"
    if node_id in partition.isr:
        return "in sync"
    return "out of sync" if node_id in partition.replicas else "observer"


def _state(held: DescribedReplica | None) -> str:
    if held is None:
        return "no answer"
    if held.view is None:
        return str(held.refusal)
    return f"failed: {held.view.reason}" if held.view.reason else held.view.fetch_state


def _lag(
    partition: DescribedPartition, node_id: int, led: DescribedLeader | None, remote: DescribedFollower | None
) -> int | None:
    """Records that the leader has and the replica has not fetched; None: its leader does not know."""
    if led is None:
        return None
    if node_id == partition.leader:
        return 0
    return None if remote is None or remote.remote_leo is None else max(0, led.leo - remote.remote_leo)
