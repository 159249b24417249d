"""Small images of a cluster's metadata, for tests of what changes between them."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Role, Rules, TopicPartition


def partition(topic: str, index: int, *, epoch: int = 1, leader: int | None = 1) -> PartitionImage:
    return PartitionImage(
        tp=TopicPartition(f"id-{topic}", index),
        replicas=(NodeId(1), NodeId(2)),
        isr=(NodeId(1), NodeId(2)),
        elr=(),
        leader=None if leader is None else NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(epoch),
        min_isr=1,
    )


def topic(name: str, *partitions: PartitionImage, configs: tuple[tuple[str, str], ...] = ()) -> TopicImage:
    return TopicImage(name=name, topic_id=f"id-{name}", configs=configs, partitions=partitions or (partition(name, 0),))


def node(node_id: int, *, fenced: bool = False) -> NodeImage:
    return NodeImage(
        node_id=NodeId(node_id),
        node_epoch=NodeEpoch(1),
        roles=frozenset({Role.LEADER}),
        client_endpoint=None,
        internal_endpoint=None,
        rack=None,
        fenced=fenced,
    )


def image(offset: int, *topics: TopicImage, whole: bool = True, epoch: int = 1, **more: object) -> MetadataImage:
    return replace(
        MetadataImage(
            cluster_id="c",
            controller_epoch=epoch,
            metadata_offset=offset,
            is_snapshot=whole,
            rules=Rules(),
            topics=topics,
        ),
        **more,  # type: ignore[arg-type]
    )
