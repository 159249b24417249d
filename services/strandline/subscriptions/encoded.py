"""The metadata as bytes, encoded once for all subscribers.

Invariant: a topic is encoded once for each state of it, and what changed of a topic once for each change, whatever the
number of streams; the bytes decode to what `rpc.convert_subscription` reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.messages import AsOf, TopicImage
from strandline.core.metadata_history import ChangedTopic, MetadataHistory, StateChange
from strandline.core.subscription import Portion
from strandline.rpc.convert_metadata import write_node, write_partition, write_rules, write_topic
from strandline.rpc.convert_subscription import KnownController, write_as_of, write_controllers
from strandline.rpc.wire_fields import tag, varint
from strandline.v1 import metadata_pb2
from strandline.v1 import metadata_service_pb2 as pb

_TOPICS = tag(pb.SubscribeResponse, "topics")
_CHANGED_TOPICS = tag(pb.SubscribeResponse, "changed_topics")
_TOPICS_OF_CLUSTER = tag(metadata_pb2.ClusterMetadata, "topics")
_METADATA = tag(pb.MetadataServiceGetMetadataResponse, "metadata")


class EncodedMetadata:
    """What was encoded of one history."""

    def __init__(self, history: MetadataHistory) -> None:
        self._history = history
        # With the image that was encoded: another object is another state.
        self._whole: dict[str, tuple[TopicImage, bytes]] = {}
        self._parts: dict[tuple[str, int], bytes] = {}
        self._nodes: dict[int, bytes] = {}
        self._forgotten = 0

    def forget(self) -> None:
        """Drop what no subscriber can be sent any more."""
        first = self._history.first_number
        if first == self._forgotten:
            return
        self._forgotten = first
        self._parts = {key: part for key, part in self._parts.items() if key[1] >= first}
        self._nodes = {number: nodes for number, nodes in self._nodes.items() if number >= first}

    def snapshot(self, as_of: AsOf, portion: Portion, controllers: tuple[KnownController, ...]) -> bytes:
        """The first message to a subscriber that has nothing."""
        history = self._history
        image = history.image
        assert image is not None, "a subscription begins once there is a state"
        head = pb.SubscribeResponse(
            as_of=write_as_of(as_of),
            is_snapshot=True,
            cluster_id=image.cluster_id,
            rules=write_rules(image.rules),
            feature_level=image.feature_level,
            removed_node_ids=sorted(history.removed_node_ids),
            controllers=write_controllers(controllers),
            active=controllers[0].controller_id if controllers else None,
        )
        return b"".join([head.SerializeToString(), self._all_nodes(), *self._pieces(portion, 0)])

    def resumed(self, as_of: AsOf, controllers: tuple[KnownController, ...]) -> bytes:
        """The first message to a subscriber that has a state."""
        image = self._history.image
        assert image is not None, "a subscription begins once there is a state"
        head = pb.SubscribeResponse(as_of=write_as_of(as_of), cluster_id=image.cluster_id)
        head.controllers.extend(write_controllers(controllers))
        return head.SerializeToString()

    def change(self, as_of: AsOf, change: StateChange, portion: Portion) -> bytes:
        """One change, as far as a subscriber wants it."""
        head = pb.SubscribeResponse(
            as_of=write_as_of(as_of), rules=None if change.rules is None else write_rules(change.rules)
        )
        if change.feature_level is not None:
            head.feature_level = change.feature_level
        return b"".join([head.SerializeToString(), self._changed_nodes(change), *self._pieces(portion, change.number)])

    def added(self, as_of: AsOf, portion: Portion) -> bytes:
        """The answer to a subscriber that wants more topics."""
        head = pb.SubscribeResponse(as_of=write_as_of(as_of))
        return b"".join([head.SerializeToString(), *self._pieces(portion, 0)])

    def sign_of_life(self, as_of: AsOf) -> bytes:
        """How current this process is, and nothing else."""
        return pb.SubscribeResponse(as_of=write_as_of(as_of)).SerializeToString()

    def whole_state(self, as_of: AsOf, portion: Portion) -> bytes:
        """The answer to GetMetadata."""
        history = self._history
        image = history.image
        assert image is not None, "a question is answered once there is a state"
        cluster = metadata_pb2.ClusterMetadata(
            cluster_id=image.cluster_id,
            controller_id=0,
            controller_epoch=image.controller_epoch,
            metadata_offset=image.metadata_offset,
            rules=write_rules(image.rules),
            feature_level=image.feature_level,
            nodes=[write_node(node) for node in history.nodes.values()],
            removed_node_ids=sorted(history.removed_node_ids),
        )
        pieces = [cluster.SerializeToString()]
        for topic in portion.topics:
            encoded = self._topic(topic)
            pieces += (_TOPICS_OF_CLUSTER, varint(len(encoded)), encoded)
        head = pb.MetadataServiceGetMetadataResponse(as_of=write_as_of(as_of))
        for name, topic_id in portion.missing:
            head.missing_topics.add(name=name, topic_id=topic_id)
        return b"".join([head.SerializeToString(), _METADATA, varint(sum(map(len, pieces))), *pieces])

    def _pieces(self, portion: Portion, number: int) -> Iterable[bytes]:
        rest = pb.SubscribeResponse(deleted_topic_ids=portion.deleted_topic_ids)
        for name, topic_id in portion.missing:
            rest.missing_topics.add(name=name, topic_id=topic_id)
        yield rest.SerializeToString()
        for topic in portion.topics:
            encoded = self._topic(topic)
            yield from (_TOPICS, varint(len(encoded)), encoded)
        for changed in portion.changed:
            yield self._changed(changed, number)

    def _topic(self, topic: TopicImage) -> bytes:
        known = self._whole.get(topic.topic_id)
        if known is None or known[0] is not topic:
            known = self._whole[topic.topic_id] = (topic, write_topic(topic).SerializeToString())
        return known[1]

    def _changed(self, changed: ChangedTopic, number: int) -> bytes:
        part = self._parts.get((changed.topic_id, number))
        if part is None:
            message = pb.ChangedTopic(
                topic_id=changed.topic_id, partitions=[write_partition(partition) for partition in changed.partitions]
            )
            encoded = message.SerializeToString()
            part = self._parts[changed.topic_id, number] = b"".join((_CHANGED_TOPICS, varint(len(encoded)), encoded))
        return part

    def _all_nodes(self) -> bytes:
        message = pb.SubscribeResponse(nodes=[write_node(node) for node in self._history.nodes.values()])
        return message.SerializeToString()

    def _changed_nodes(self, change: StateChange) -> bytes:
        if not change.nodes and not change.removed_node_ids:
            return b""
        nodes = self._nodes.get(change.number)
        if nodes is None:
            message = pb.SubscribeResponse(
                nodes=[write_node(node) for node in change.nodes], removed_node_ids=change.removed_node_ids
            )
            nodes = self._nodes[change.number] = message.SerializeToString()
        return nodes
