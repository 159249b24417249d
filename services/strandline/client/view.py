"""What the client believes of the cluster: which topics there are, who leads what, where nodes are.

Invariant: belief never goes back to an older reign of the controller, nor to an older leader epoch of a
partition; a leader that a node named in a refusal counts until the controller names one at least as new.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from strandline.core.messages import Endpoint, MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition


class Leader(NamedTuple):
    """Who leads a partition, since which epoch, and where clients reach it."""

    node_id: NodeId
    epoch: LeaderEpoch
    endpoint: Endpoint


class ClusterView:
    """The newest state that the controller sent, in the forms that are looked up."""

    def __init__(self) -> None:
        self.image: MetadataImage | None = None
        self._by_name: dict[str, TopicImage] = {}
        self._by_id: dict[str, TopicImage] = {}
        self._nodes: dict[NodeId, NodeImage] = {}
        self._hints: dict[TopicPartition, Leader] = {}

    def apply(self, image: MetadataImage) -> bool:
        """Believe a snapshot or a change; False if it is of an older reign, another cluster, or without a base."""
        known = self.image
        if known is not None:
            if image.controller_epoch < known.controller_epoch or image.cluster_id != known.cluster_id:
                return False
            if not image.is_snapshot:
                image = _merge(known, image)
        elif not image.is_snapshot:
            return False
        self._believe(image)
        return True

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
        """Note the leader that a refusing node named (KIP-951); whether that is news."""
        endpoint = endpoint or self.endpoint_of(node_id)
        known = self._hints.get(tp)
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
        """Where clients reach a node."""
        node = self._nodes.get(node_id)
        return node.client_endpoint if node is not None else None

    def leader_of(self, tp: TopicPartition) -> Leader | None:
        """Who leads the partition; None if nobody is known to, or its address is not known."""
        hinted = self._hints.get(tp)
        if hinted is not None:
            return hinted
        partition = self.partition(tp)
        if partition is None or partition.leader is None:
            return None
        endpoint = self.endpoint_of(partition.leader)
        return Leader(partition.leader, partition.leader_epoch, endpoint) if endpoint is not None else None


def _merge(known: MetadataImage, change: MetadataImage) -> MetadataImage:
    nodes = {node.node_id: node for node in known.nodes if node.node_id not in change.removed_node_ids}
    nodes |= {node.node_id: node for node in change.nodes}
    removed = {*known.removed_node_ids, *change.removed_node_ids} - nodes.keys()
    topics = {topic.topic_id: topic for topic in known.topics if topic.topic_id not in change.deleted_topic_ids}
    topics |= {topic.topic_id: topic for topic in change.topics}
    return replace(
        change,
        is_snapshot=True,
        nodes=tuple(nodes.values()),
        topics=tuple(topics.values()),
        deleted_topic_ids=(),
        removed_node_ids=tuple(sorted(removed)),
    )
