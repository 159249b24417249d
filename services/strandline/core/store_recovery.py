"""Decides what the controller believes when its store is lost or too old: what the nodes themselves have stored (TR18).

Invariant (I14): every epoch of the recovered state is above every epoch that any given node knows; a partition
of which an assigned node was not given stays without a leader, because that node may know more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from strandline.core.controller_state import ClusterHeader, ClusterState, NodeRecord
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.removed_nodes import recovered_tombstones, still_removed
from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition

NODE_EPOCH_MARGIN = 1_000
"""Node epochs skipped, for those given to nodes whose directory was not given."""

METADATA_OFFSET_MARGIN = 1_000_000
"""Metadata offsets skipped: a node stores a change of the nodes alone with the next one of a topic, and so may hold a
proof of a later position than its directory shows; that must not put the recovered store in doubt again."""

PRODUCER_ID_SHIFT = 40
"""No image holds producer ids; each recovery begins a range of 2**40 ids that no earlier reign reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenNode:
    """What one node's data directory holds: its identity and the newest metadata it received."""

    node_id: NodeId
    directory_id: str
    image: MetadataImage


def recover(given: Sequence[GivenNode], store: ClusterState | None = None) -> ClusterState:
    """The state to go on with, from the nodes' stored images and, for what they lack, an older store.

    Raises:
        Refused: INVALID_REQUEST when nothing was given or two nodes are of different clusters.
    """
    images = [node.image for node in given]
    # A store that no node ever registered at was made by a start without the lost one; it knows nothing.
    store = store if store and (store.nodes or store.removed_nodes) else None
    _check_given(given, store)
    newest = max(images, key=lambda image: (image.controller_epoch, image.metadata_offset))
    directories = {node.node_id: node.directory_id for node in given}
    known = _nodes(images, directories, store)
    removed = still_removed(images, store)
    return ClusterState(
        header=_header(images, newest, known, store),
        nodes={node_id: record for node_id, record in known.items() if node_id not in removed},
        removed_nodes=recovered_tombstones(removed, known, store),
        topics={topic.topic_id: _topic(topic, images, set(directories)) for topic in newest.topics},
        deleted_topic_ids=_deleted(images, newest, store),
    )


def _check_given(given: Sequence[GivenNode], store: ClusterState | None) -> None:
    if not given:
        raise Refused(ErrorCode.INVALID_REQUEST, "no node's data directory was given; name at least one")
    clusters = {node.image.cluster_id for node in given} | ({store.header.cluster_id} if store else set())
    if len(clusters) > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the directories belong to different clusters: {sorted(clusters)}")
    if len({node.node_id for node in given}) < len(given):
        raise Refused(ErrorCode.INVALID_REQUEST, "two directories belong to the same node; give the one in use")


def _header(
    images: Sequence[MetadataImage],
    newest: MetadataImage,
    nodes: Mapping[NodeId, NodeRecord],
    store: ClusterState | None,
) -> ClusterHeader:
    old = store.header if store else ClusterHeader(cluster_id=newest.cluster_id)
    controller_epoch = max(old.controller_epoch, *(image.controller_epoch for image in images), 0) + 1
    highest_offset = max(old.metadata_offset, *(image.metadata_offset for image in images), 0)
    highest_node_epoch = max([old.next_node_epoch, *(record.image.node_epoch for record in nodes.values())])
    return ClusterHeader(
        cluster_id=newest.cluster_id,
        controller_epoch=controller_epoch,
        metadata_offset=highest_offset + METADATA_OFFSET_MARGIN,
        rules=newest.rules,
        feature_level=newest.feature_level,
        next_node_epoch=highest_node_epoch + NODE_EPOCH_MARGIN,
        secret=old.secret,
        next_producer_id=max(old.next_producer_id, controller_epoch << PRODUCER_ID_SHIFT),
    )


def _nodes(
    images: Iterable[MetadataImage], directories: Mapping[NodeId, str], store: ClusterState | None
) -> dict[NodeId, NodeRecord]:
    latest: dict[NodeId, NodeImage] = {}
    # In the order of age, so that of two images of one incarnation the newer one stays.
    for image in sorted(images, key=lambda image: (image.controller_epoch, image.metadata_offset)):
        for node in image.nodes:
            known = latest.get(node.node_id)
            if known is None or node.node_epoch >= known.node_epoch:
                latest[node.node_id] = node
    # No node's latest incarnation is known until it registers again.
    records = {node_id: replace(old, incarnation_id="") for node_id, old in store.nodes.items()} if store else {}
    for node_id, node in latest.items():
        old = records.get(node_id)
        directory_id = directories.get(node_id) or (old.directory_id if old else "")
        records[node_id] = NodeRecord(image=node, incarnation_id="", directory_id=directory_id)
    return dict(sorted(records.items()))


def _topic(topic: TopicImage, images: Iterable[MetadataImage], given: set[NodeId]) -> TopicImage:
    candidates: dict[TopicPartition, list[PartitionImage]] = {}
    for image in images:
        for partition in (p for t in image.topics if t.topic_id == topic.topic_id for p in t.partitions):
            candidates.setdefault(partition.tp, []).append(partition)
    partitions = (_partition(candidates[partition.tp], given) for partition in topic.partitions)
    return replace(topic, partitions=tuple(partitions))


def _partition(known: Sequence[PartitionImage], given: set[NodeId]) -> PartitionImage:
    highest = max(known, key=lambda partition: partition.partition_epoch)
    restored = replace(
        highest,
        leader_epoch=LeaderEpoch(max(partition.leader_epoch for partition in known) + 1),
        partition_epoch=PartitionEpoch(highest.partition_epoch + 1),
    )
    if set(highest.replicas) <= given:
        return restored
    # An absent node may know a later ISR; only an operator may decide that it does not matter.
    return replace(restored, leader=None, isr=(), elr=())


def _deleted(images: Iterable[MetadataImage], newest: MetadataImage, store: ClusterState | None) -> frozenset[str]:
    living = {topic.topic_id for topic in newest.topics}
    ever = {topic.topic_id for image in images for topic in image.topics}
    if store is not None:
        ever |= set(store.topics) | store.deleted_topic_ids
    return frozenset(ever - living)
