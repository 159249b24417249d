"""The client's view of the cluster: its topics, leaders, and the addresses of its nodes.

Invariant: the view never goes back to an older position, from any sender (C63), nor to an older leader epoch of a
partition; a leader that a node named in a refusal is used until metadata names one that is at least as new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from strandline.core.messages import AsOf, Endpoint, MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeId, Rules, TopicPartition
from strandline.rpc.convert.subscription import MetadataUpdate


class Leader(NamedTuple):
    """The leader of a partition, its epoch, and its address for clients."""

    node_id: NodeId
    epoch: LeaderEpoch
    endpoint: Endpoint


class UpdateTaken(Enum):
    """The result of an update."""

    NEWS = "news"
    NOTHING = "nothing"
    """It had only a position and its age."""
    OLDER = "older"
    """Its position is older than one already seen, so it is ignored."""
    UNUSABLE = "unusable"
    """It is from another cluster, or a change without the state that it changes."""


class ClusterView:
    """The newest state of the wanted topics, indexed for look-ups."""

    def __init__(self) -> None:
        self.image: MetadataImage | None = None
        self.newest = AsOf(-1, -1)
        """The newest position ever seen."""
        self._by_name: dict[str, TopicImage] = {}
        self._by_id: dict[str, TopicImage] = {}
        self._nodes: dict[NodeId, NodeImage] = {}
        self._hints: dict[TopicPartition, Leader] = {}

    def apply(self, update: MetadataUpdate) -> UpdateTaken:
        """Apply an update, unless something newer was seen."""
        if update.is_sign_of_life:
            if self.image is not None and self.newest.is_before(update.as_of):
                self._reach(update.as_of)
            return UpdateTaken.NOTHING
        known = self.image
        # An address may belong to another cluster by now.
        if known is not None and update.cluster_id not in ("", known.cluster_id):
            return UpdateTaken.UNUSABLE
        # From a node that is behind: it would turn the client back to leaders that were replaced (C63, TR35).
        if update.as_of.is_before(self.newest):
            return UpdateTaken.OLDER
        if known is None and not update.is_snapshot:
            return UpdateTaken.UNUSABLE
        self._reach(update.as_of)
        self._believe(_snapshot(update) if known is None or update.is_snapshot else _merge(known, update))
        return UpdateTaken.NEWS

    def _reach(self, position: AsOf) -> None:
        self.newest = position
        if self.image is not None:
            self.image = replace(
                self.image, controller_epoch=position.controller_epoch, metadata_offset=position.metadata_offset
            )

    def _believe(self, image: MetadataImage) -> None:
        self.image = image
        self._by_name = {topic.name: topic for topic in image.topics}
        self._by_id = {topic.topic_id: topic for topic in image.topics}
        self._nodes = {node.node_id: node for node in image.nodes}
        self._hints = {tp: hint for tp, hint in self._hints.items() if self._is_newer(tp, hint.epoch)}

    def _is_newer(self, tp: TopicPartition, epoch: LeaderEpoch) -> bool:
        partition = self.partition(tp)
        return partition is not None and epoch > partition.leader_epoch

    def hint(self, tp: TopicPartition, node_id: NodeId, epoch: LeaderEpoch, endpoint: Endpoint | None) -> bool:
        """Record the leader that a refusing node named (KIP-951); returns whether it is new."""
        endpoint = endpoint or self.endpoint_of(node_id)
        known = self._hints.get(tp)
        # The node that refuses may itself be behind, and name a leader that was replaced.
        if endpoint is None or not self._is_newer(tp, epoch) or (known is not None and known.epoch >= epoch):
            return False
        self._hints[tp] = Leader(node_id, epoch, endpoint)
        return True

    def topic(self, name: str) -> TopicImage | None:
        """The topic of this name."""
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: str) -> TopicImage | None:
        """The topic of this id."""
        return self._by_id.get(topic_id)

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        """A partition as the controller committed it."""
        topic = self._by_id.get(tp.topic_id)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def node(self, node_id: NodeId) -> NodeImage | None:
        """A registered node."""
        return self._nodes.get(node_id)

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """The address of a node for clients."""
        node = self._nodes.get(node_id)
        return node.client_endpoint if node is not None else None

    def leader_of(self, tp: TopicPartition) -> Leader | None:
        """The leader of the partition; None if there is none, or its address is not known."""
        hinted = self._hints.get(tp)
        if hinted is not None:
            return hinted
        partition = self.partition(tp)
        if partition is None or partition.leader is None:
            return None
        endpoint = self.endpoint_of(partition.leader)
        return Leader(partition.leader, partition.leader_epoch, endpoint) if endpoint is not None else None

    def may_be_led_at(self, endpoint: Endpoint, partitions: Iterable[TopicPartition]) -> bool:
        """Whether no partition of these is known to be led elsewhere."""
        return all(leader is None or leader.endpoint == endpoint for leader in map(self.leader_of, partitions))


def _snapshot(update: MetadataUpdate) -> MetadataImage:
    return MetadataImage(
        cluster_id=update.cluster_id,
        controller_epoch=update.as_of.controller_epoch,
        metadata_offset=update.as_of.metadata_offset,
        is_snapshot=True,
        rules=update.rules or Rules(),
        feature_level=update.feature_level or 1,
        nodes=update.nodes,
        topics=update.topics,
        removed_node_ids=tuple(sorted(update.removed_node_ids)),
    )


def _merge(known: MetadataImage, update: MetadataUpdate) -> MetadataImage:
    nodes = {node.node_id: node for node in known.nodes if node.node_id not in update.removed_node_ids}
    nodes |= {node.node_id: node for node in update.nodes}
    removed = {*known.removed_node_ids, *update.removed_node_ids} - nodes.keys()
    topics = {topic.topic_id: topic for topic in known.topics if topic.topic_id not in update.deleted_topic_ids}
    topics |= {topic.topic_id: topic for topic in update.topics}
    for topic_id, partitions in update.changed:
        topic = topics.get(topic_id)
        if topic is not None:
            by_index = {partition.tp.partition: partition for partition in partitions}
            merged = tuple(by_index.get(partition.tp.partition, partition) for partition in topic.partitions)
            topics[topic_id] = replace(topic, partitions=merged)
    return replace(
        known,
        controller_epoch=update.as_of.controller_epoch,
        metadata_offset=update.as_of.metadata_offset,
        rules=update.rules or known.rules,
        feature_level=update.feature_level or known.feature_level,
        nodes=tuple(nodes.values()),
        topics=tuple(topics.values()),
        removed_node_ids=tuple(sorted(removed)),
    )
