"""Builders of cluster images for tests of the command line's output."""

from __future__ import annotations

from strandline.client import DescribedReplica
from strandline.core.messages import (
    Endpoint,
    MetadataImage,
    NodeImage,
    PartitionImage,
    PartitionView,
    ReplicaStateView,
    ReplicaView,
    TopicImage,
)
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, Rules, TopicPartition

TOPIC_ID = "7f8a0c44-0000-4000-8000-000000000001"


def node(node_id: int, **changes: object) -> NodeImage:
    """A node that serves."""
    base: dict[str, object] = {
        "node_id": NodeId(node_id),
        "node_epoch": NodeEpoch(10 + node_id),
        "client_endpoint": Endpoint("127.0.0.1", 9000 + node_id),
        "internal_endpoint": Endpoint("127.0.0.1", 9500 + node_id),
        "fenced": False,
    }
    return NodeImage(**(base | changes))  # type: ignore[arg-type]


def partition(
    index: int, leader: int | None = 1, isr: tuple[int, ...] = (1, 2, 3), **changes: object
) -> PartitionImage:
    """A partition of three replicas."""
    base: dict[str, object] = {
        "tp": TopicPartition(TOPIC_ID, index),
        "replicas": (NodeId(1), NodeId(2), NodeId(3)),
        "isr": tuple(NodeId(member) for member in isr),
        "leader": None if leader is None else NodeId(leader),
        "leader_epoch": LeaderEpoch(4),
        "partition_epoch": PartitionEpoch(7),
        "min_isr": 2,
    }
    return PartitionImage(**(base | changes))  # type: ignore[arg-type]


def image(
    *partitions: PartitionImage, nodes: tuple[NodeImage, ...] | None = None, name: str = "orders"
) -> MetadataImage:
    """A cluster of one topic."""
    topics = (TopicImage(name=name, topic_id=TOPIC_ID, partitions=partitions),) if partitions else ()
    return MetadataImage(
        cluster_id="c-1",
        controller_epoch=2,
        metadata_offset=30,
        is_snapshot=True,
        rules=Rules(),
        nodes=(node(1), node(2), node(3)) if nodes is None else nodes,
        topics=topics,
    )


def view(index: int, leo: int, hw: int, remote: dict[int, int | None]) -> PartitionView:
    """A partition as its leader reports it."""
    members = tuple(NodeId(node_id) for node_id in remote)
    return PartitionView(
        tp=TopicPartition(TOPIC_ID, index),
        leader_epoch=LeaderEpoch(4),
        partition_epoch=PartitionEpoch(7),
        epoch_start_offset=Offset(0),
        leo=Offset(leo),
        durable_leo=Offset(leo),
        high_watermark=Offset(hw),
        log_start_offset=Offset(0),
        isr=members,
        maximal_isr=members,
        elr=(),
        min_isr=2,
        replicas=tuple(
            ReplicaView(
                node_id=NodeId(node_id),
                node_epoch=None,
                remote_leo=None if known is None else Offset(known),
                last_fetch_age_ms=1,
                last_caught_up_age_ms=1,
                in_isr=True,
            )
            for node_id, known in remote.items()
        ),
    )


def held(index: int, node_id: int, reason: str) -> DescribedReplica:
    """A replica as its own node reports it; a reason says why it stopped."""
    tp = TopicPartition(TOPIC_ID, index)
    own = ReplicaStateView(
        tp=tp,
        leo=Offset(9),
        durable_leo=Offset(9),
        high_watermark=Offset(9),
        log_start_offset=Offset(0),
        fetch_state="failed" if reason else "fetching",
        reason=reason,
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(4),
        epochs=(),
    )
    return DescribedReplica(NodeId(node_id), "orders", tp, 1_000, own, None)
