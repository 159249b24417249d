"""Decides which metadata a node believes, and which partitions it concerns.

Invariants: nothing that is addressed to another incarnation is believed (TR15), nothing from an older
controller, nothing of a reign that began without what this node knows (C36), nothing that contradicts itself, and for
each partition nothing of a lower leader or partition epoch than was seen (TR18), nor a second leader or another ISR in
the same one; what is believed is kept durably before it is acted upon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.core import messages
from strandline.core.control.election import elr_after
from strandline.core.control.topic_configs import check_name
from strandline.core.coordinator.internal_topics import is_internal
from strandline.core.log.effects import BelieveMetadata, Effect, IgnoreMetadata, SaveMetadata
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.state import NOTHING, NodeState
from strandline.core.positions import later_of
from strandline.core.types import NodeId, TopicPartition

# ---- sound_metadata
# Decides whether metadata can be true at all, whichever process sent it.
#
# Invariant: what passes here breaks no assertion of a node: the leader is in the ISR (I7), the ISR among the replicas,
# nothing is named twice or numbered below 0, and settings that nodes count with are numbers. What does not is ignored
# as a whole: the node keeps what it knew, for a part of a contradiction is no better than all of it.

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


def metadata_fault(image: messages.MetadataImage) -> str | None:
    """Why the image contradicts itself; None if it does not."""
    topic_ids = [*(topic.topic_id for topic in image.topics), *image.deleted_topic_ids]
    if len(set(topic_ids)) < len(topic_ids):
        return "a topic is named twice, or is there and deleted"
    if {node.node_id for node in image.nodes} & set(image.removed_node_ids):
        return "a node is there and removed"
    return next((fault for topic in image.topics if (fault := _topic_fault(topic))), None)


def _topic_fault(topic: messages.TopicImage) -> str | None:
    refusal = check_name(topic.name)
    if refusal is not None:
        return refusal.message
    wrong = [name for name, value in topic.configs if name in _NUMBERS and not _is_number(value, _NUMBERS[name])]
    if wrong:
        return f"setting {wrong[0]} of topic '{topic.name}' is not a number, or out of range"
    indexes = {partition.tp.partition for partition in topic.partitions}
    if len(indexes) < len(topic.partitions) or min(indexes, default=0) < 0:
        return f"partitions of topic '{topic.name}' are named twice or numbered below 0"
    return next((fault for partition in topic.partitions if (fault := partition_fault(partition))), None)


def partition_fault(partition: messages.PartitionImage) -> str | None:
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


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """What a believed image changes for this node."""

    changed: tuple[TopicPartition, ...]
    gone: tuple[TopicPartition, ...]
    shapes: bool
    """Whether a topic of the cluster appeared, went, or has other partitions or replicas, or a node another rack."""


MAX_MESSAGE_BYTES = "max.message.bytes"
"""The topic setting that bounds a batch, header included (Kafka's name)."""


class MetadataFollower:
    """Keeps ``state.nodes``, ``state.images`` and ``state.topic_names`` current."""

    def __init__(self, state: NodeState, seen: messages.MetadataImage | None) -> None:
        self._state = state
        self._nodes: dict[NodeId, messages.NodeImage] = state.nodes
        self._removed_nodes: set[NodeId] = set()
        # Of the whole cluster: what is kept durably.
        self._topics: dict[str, messages.TopicImage] = state.topics
        # The newest state ever seen of each partition; what is stored never falls behind it.
        self._newest: dict[TopicPartition, messages.PartitionImage] = {}
        # The latest position that was ever proven to this node: an older store must not make it forget (TR18).
        self._position: messages.PositionProof | None = None
        # The reigns that led to the newest image, also one that an earlier process of this node was sent.
        self._reigns: tuple[messages.Reign, ...] = ()
        # Of that image; -1 before the first.
        self._metadata_offset = -1
        # Access rules and quotas, as far as this node knows them.
        self._acls, self._quotas = (seen.acls, seen.quotas) if seen is not None else (None, None)
        # What an earlier process of this node stored; what this one is sent takes its place.
        self._seen = seen
        # Whether the image being taken changes which topics there are, how they are placed, or a rack.
        self._reshaped = False
        # The last image that was believed, as saved: what an answer of the controller adds to it is saved with it.
        self._last: messages.MetadataImage | None = None
        if seen is not None:
            self._position = seen.position
            self._reigns = seen.reigns
            self._metadata_offset = seen.metadata_offset if seen.reigns else -1
            state.controller_epoch = seen.controller_epoch
            for topic in seen.topics:
                self._newest.update({image.tp: image for image in topic.partitions})

    def registered(self, position: messages.PositionProof | None, out: list[Effect]) -> None:
        """The controller answered the registration; stored, so that a store that lost it is noticed (C34)."""
        # A directory without metadata keeps nothing: it had no places that the registration could take from it. Apart
        # from the image's own position, because the image shows nothing of what came between the two.
        if self._seen is not None and position is not None:
            self._seen = replace(self._seen, registered=position)
            out.append(SaveMetadata(self._seen))

    def take(self, image: messages.MetadataImage, out: list[Effect]) -> MetadataChange | None:
        """Believe ``image`` or ignore it (None)."""
        state = self._state
        # A late message for the process before this one would make it lead in an epoch that has ended (TR15).
        if state.node_epoch is None or image.to_node_epoch != state.node_epoch:
            return None
        if image.controller_epoch < state.controller_epoch or image.metadata_offset < self._metadata_offset:
            # From an older store, perhaps (TR18): the next heartbeat names the position that was seen.
            return None
        if fault := self._branches_off(image) or metadata_fault(image):
            out.append(IgnoreMetadata(fault))
            return None
        out.append(BelieveMetadata(image))
        state.controller_epoch = image.controller_epoch
        self._metadata_offset = image.metadata_offset
        if image.is_snapshot or not self._reigns:
            self._reigns = image.reigns
        acls = self._acls if image.acls is None and not image.is_snapshot else image.acls
        quotas = self._quotas if image.quotas is None and not image.is_snapshot else image.quotas
        other_rules = (acls or (), quotas or ()) != (self._acls or (), self._quotas or ())
        self._acls, self._quotas = acls, quotas
        self._position = later_of(self._position, image.position)
        self._last = image
        if image.is_snapshot:
            state.nodes.clear()
            self._removed_nodes.clear()
            gone_ids = set(self._topics) - {t.topic_id for t in image.topics}
        else:
            gone_ids = set(image.deleted_topic_ids)
        self._reshaped = bool(gone_ids) or bool(image.nodes and self._racks_change(image))
        self._take_nodes(image)
        changed = [tp for topic in image.topics for tp in self._take_topic(topic)]
        gone = [tp for topic_id in gone_ids for tp in self._drop_topic(topic_id)]
        gone += [tp for tp in changed if not self._concerns(state.images[tp])]
        for tp in gone:
            state.images.pop(tp, None)
        if image.is_about_topics or gone_ids or other_rules:
            out.append(SaveMetadata(self._merged(image)))
        return MetadataChange(
            tuple(tp for tp in changed if tp in state.images),
            tuple(g for g in gone if g in state.logs),
            self._reshaped,
        )

    def _branches_off(self, image: messages.MetadataImage) -> str:
        """Why this is no continuation of what this node was sent; empty if it is one, or if nothing shows that."""
        # A store that forgot its end begins its next reign at an offset that the forgotten one had given already.
        ours, theirs = (self._reigns[-1] if self._reigns else None), image.reign
        if ours is None or theirs is None or theirs.reign_id == ours.reign_id:
            return ""
        sent = self._position.metadata_offset if self._position and self._position.reign_id == ours.reign_id else -1
        known = max(sent, self._metadata_offset)
        if theirs.controller_epoch > ours.controller_epoch and theirs.first_offset > known:
            return ""
        return (
            f"reign {theirs.reign_id} of controller epoch {theirs.controller_epoch} began at metadata offset "
            f"{theirs.first_offset}, but this node was sent offset {known} of reign {ours.reign_id} of controller "
            f"epoch {ours.controller_epoch}: the controller's store forgot something"
        )

    def decided(
        self, decision: messages.IsrDecision, position: messages.PositionProof | None, out: list[Effect]
    ) -> None:
        """The controller answered a proposal of this node, which acts on it: kept as if the metadata had come (C34)."""
        # Usually the metadata has come already. If not, a restart would forget what the leader acted on, and a store
        # that lost that change would not be noticed.
        image = self._newest.get(decision.tp)
        is_known = position is None or self._last is None or position.metadata_offset <= self._metadata_offset
        if is_known or image is None or decision.partition_epoch <= image.partition_epoch:
            return
        assert self._last is not None
        self._position = later_of(self._position, position)
        changed = replace(
            image,
            isr=decision.isr,
            elr=elr_after(image, decision.isr),
            unproven=decision.unproven,
            recovering=decision.recovering,
            leader_epoch=decision.leader_epoch,
            partition_epoch=decision.partition_epoch,
        )
        topic = self._topics[decision.tp.topic_id]
        self._newest[decision.tp] = changed
        partitions = tuple(changed if each.tp == decision.tp else each for each in topic.partitions)
        self._topics[topic.topic_id] = replace(topic, partitions=partitions)
        out.append(SaveMetadata(self._merged(self._last)))

    def _racks_change(self, image: messages.MetadataImage) -> bool:
        known = self._state.nodes if not image.is_snapshot else {}
        return any(node.node_id not in known or known[node.node_id].rack != node.rack for node in image.nodes)

    def _take_nodes(self, image: messages.MetadataImage) -> None:
        nodes = self._state.nodes
        for node_id in image.removed_node_ids:
            nodes.pop(node_id, None)
        nodes.update({n.node_id: n for n in image.nodes})
        self._removed_nodes = (self._removed_nodes | set(image.removed_node_ids)) - nodes.keys()

    def _take_topic(self, topic: messages.TopicImage) -> list[TopicPartition]:
        """The partitions of ``topic`` whose newer state concerns this node, or no longer does."""
        known = self._topics.get(topic.topic_id)
        self._reshaped |= known is None or _shape(known) != _shape(topic)
        self._state.topic_names[topic.topic_id] = topic.name
        self._take_limit(topic)
        changed = [image.tp for image in topic.partitions if self._take_partition(image)]
        newest = tuple(self._newest[image.tp] for image in topic.partitions)
        self._topics[topic.topic_id] = replace(topic, partitions=newest)
        return changed

    def _take_limit(self, topic: messages.TopicImage) -> None:
        limit = dict(topic.configs).get(MAX_MESSAGE_BYTES)
        if is_internal(topic.name):
            self._state.batch_limits[topic.topic_id] = NOTHING
        elif limit is None:
            self._state.batch_limits.pop(topic.topic_id, None)
        else:
            self._state.batch_limits[topic.topic_id] = int(limit)

    def _take_partition(self, image: messages.PartitionImage) -> bool:
        seen = self._newest.get(image.tp)
        known = self._state.images.get(image.tp)
        if seen is not None and (
            image.leader_epoch < seen.leader_epoch
            or image.partition_epoch < seen.partition_epoch
            or _is_second_leader(image, seen)
            or _is_second_state(image, seen)
        ):
            return False
        self._newest[image.tp] = image
        if known is None and not self._concerns(image):
            return False
        if known == image:
            return False
        self._state.images[image.tp] = image
        return True

    def _concerns(self, image: messages.PartitionImage) -> bool:
        return self._state.node_id in image.replicas or self._state.node_id in image.observers

    def _drop_topic(self, topic_id: str) -> list[TopicPartition]:
        self._topics.pop(topic_id, None)
        self._state.topic_names.pop(topic_id, None)
        self._state.batch_limits.pop(topic_id, None)
        for tp in [tp for tp in self._newest if tp.topic_id == topic_id]:
            del self._newest[tp]
        return [tp for tp in self._state.images if tp.topic_id == topic_id]

    def _merged(self, image: messages.MetadataImage) -> messages.MetadataImage:
        return messages.MetadataImage(
            cluster_id=image.cluster_id,
            controller_epoch=image.controller_epoch,
            metadata_offset=image.metadata_offset,
            is_snapshot=True,
            rules=image.rules,
            feature_level=image.feature_level,
            nodes=tuple(self._state.nodes.values()),
            topics=tuple(self._topics.values()),
            removed_node_ids=tuple(sorted(self._removed_nodes)),
            to_node_epoch=image.to_node_epoch,
            position=self._position,
            reigns=self._reigns,
            acls=self._acls,
            quotas=self._quotas,
        )

    def begin_following(self, tp: TopicPartition, now_ms: int, out: list[Effect]) -> None:
        """Follow the leader that the metadata names."""
        state = self._state
        follower = FollowerReplica(state.images[tp], state.logs[tp], state.rules, state.timings, now_ms)
        state.followers[tp] = follower
        follower.begin(out)


def _shape(topic: messages.TopicImage) -> tuple[str, tuple[tuple[NodeId, ...], ...]]:
    """What coordinators go by: neither leaders nor ISRs."""
    return topic.name, tuple(partition.replicas for partition in topic.partitions)


def _is_second_state(image: messages.PartitionImage, seen: messages.PartitionImage) -> bool:
    """Whether ``image`` says something else in a partition epoch that is known."""
    # Every change has an epoch of its own. A leader that believed a second one would count its HW over members whose
    # progress it had thrown away.
    if (image.leader_epoch, image.partition_epoch) != (seen.leader_epoch, seen.partition_epoch):
        return False
    return (image.replicas, image.isr, image.elr) != (seen.replicas, seen.isr, seen.elr)


def _is_second_leader(image: messages.PartitionImage, seen: messages.PartitionImage) -> bool:
    """Whether ``image`` names another leader in an epoch that has one (I1)."""
    same_epoch = image.leader_epoch == seen.leader_epoch
    return same_epoch and None not in (image.leader, seen.leader) and image.leader != seen.leader
