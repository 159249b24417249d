"""Decides whether metadata can be true at all, whichever process sent it.

Invariant: what passes here breaks no assertion of a node: the leader is in the ISR (I7), the ISR among the replicas,
nothing is named twice or numbered below 0, and settings that nodes count with are numbers. What does not is ignored
as a whole: the node keeps what it knew, for a part of a contradiction is no better than all of it.
"""

from __future__ import annotations

from strandline.core.messages import MetadataImage, PartitionImage, TopicImage
from strandline.core.topic_configs import check_name

_NUMBERS = {
    "index.interval.bytes": range(1, 1 << 31),
    "max.decompressed.bytes": range(1, 1 << 63),
    "max.message.bytes": range(1, 1 << 31),
    "message.timestamp.after.max.ms": range(1 << 63),
    "message.timestamp.before.max.ms": range(1 << 63),
    "retention.bytes": range(-1, 1 << 63),
    "retention.ms": range(-1, 1 << 63),
    "segment.bytes": range(1, (1 << 31) - 1),
    "segment.ms": range(1, 1 << 63),
}
"""Settings that nodes count with, and what a file can hold of them. Wider than what a controller of this release
accepts, so that a later one may allow more."""


def metadata_fault(image: MetadataImage) -> str | None:
    """Why the image contradicts itself; None if it does not."""
    topic_ids = [*(topic.topic_id for topic in image.topics), *image.deleted_topic_ids]
    if len(set(topic_ids)) < len(topic_ids):
        return "a topic is named twice, or is there and deleted"
    if {node.node_id for node in image.nodes} & set(image.removed_node_ids):
        return "a node is there and removed"
    return next((fault for topic in image.topics if (fault := _topic_fault(topic))), None)


def _topic_fault(topic: TopicImage) -> str | None:
    refusal = check_name(topic.name)
    if refusal is not None:
        return refusal.message
    wrong = [name for name, value in topic.configs if name in _NUMBERS and not _is_number(value, _NUMBERS[name])]
    if wrong:
        return f"setting {wrong[0]} of topic '{topic.name}' is no number, or out of range"
    indexes = {partition.tp.partition for partition in topic.partitions}
    if len(indexes) < len(topic.partitions) or min(indexes, default=0) < 0:
        return f"partitions of topic '{topic.name}' are named twice or numbered below 0"
    return next((fault for partition in topic.partitions if (fault := partition_fault(partition))), None)


def partition_fault(partition: PartitionImage) -> str | None:
    """Why one partition's state contradicts itself; None if it does not."""
    replicas, isr = partition.replicas, partition.isr
    if len(set(replicas)) < len(replicas) or len(set(isr)) < len(isr) or not set(isr) <= set(replicas):
        return f"the ISR {isr} of {partition.tp} is not among the replicas {replicas}, or names a node twice"
    if partition.leader is not None and partition.leader not in isr:
        return f"the leader {partition.leader} of {partition.tp} is not in the ISR {isr}"
    if partition.leader_epoch < 0 or partition.partition_epoch < 0:
        return f"an epoch of {partition.tp} is below 0"
    return None


def _is_number(value: str, allowed: range) -> bool:
    return value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 20 and int(value) in allowed
