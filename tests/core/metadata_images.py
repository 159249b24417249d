"""Small images of a cluster's metadata by the names of topics, for tests of what changes between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.core.core_builders import node_image as node, partition_image

from strandline.core.messages import MetadataImage, PartitionImage, TopicImage
from strandline.core.types import Rules, TopicPartition

__all__ = ["image", "node", "partition", "topic"]


def partition(topic: str, index: int, *, epoch: int = 1, leader: int | None = 1) -> PartitionImage:
    return partition_image(TopicPartition(f"id-{topic}", index), leader=leader, epoch=epoch, version=epoch)


def topic(name: str, *partitions: PartitionImage, configs: tuple[tuple[str, str], ...] = ()) -> TopicImage:
    return TopicImage(name=name, topic_id=f"id-{name}", configs=configs, partitions=partitions or (partition(name, 0),))


def image(offset: int, *topics: TopicImage, whole: bool = True, epoch: int = 1, **more: Any) -> MetadataImage:
    made = MetadataImage(
        cluster_id="c", controller_epoch=epoch, metadata_offset=offset, is_snapshot=whole, rules=Rules()
    )
    return replace(made, topics=topics, **more)
