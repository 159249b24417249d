"""The metadata of one process for its subscribers: images come in, changes go out, at most one per window.

Invariant: the served position only moves forward. Images that arrive within ``merge_ms`` of the last change are merged
into one change, so that a burst costs each subscriber one message (C67); the first image after a pause is served at
once. Subscribers are served a few at a time, in turn, so that a thousand of them do not block anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any

import grpc

from strandline.core.control.messages import InitProducerId, ProducerIdGiven
from strandline.core.control.subscriptions import ChangedTopic, MetadataHistory, Portion, StateChange
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import AsOf, MetadataImage, TopicImage
from strandline.core.types import NodeId
from strandline.rpc.channels import target
from strandline.rpc.convert.admin import INIT_PRODUCER_ID, PRODUCER_ID
from strandline.rpc.convert.metadata import write_node, write_partition, write_rules, write_topic
from strandline.rpc.convert.subscription import KnownController, write_as_of, write_controllers
from strandline.rpc.wire_fields import tag, varint
from strandline.runtime.clock import Clock
from strandline.v1 import controller_service_pb2, metadata_pb2, metadata_service_pb2 as pb

# ---- elsewhere
# ControllerService at a data node: assigns producer ids, and refuses all other calls with the controllers' addresses.
#
# Invariant: nothing is decided at a data node. A client of a release without MetadataService that was configured with a
# data node's address learns from the refusal which addresses to use instead (C60).

_DESCRIBED = controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"]
SERVICE = _DESCRIBED.full_name

GiveProducerId = Callable[[InitProducerId], Awaitable[ProducerIdGiven]]


class ControllerElsewhere:
    """ControllerService of a data node."""

    def __init__(self, controllers: Callable[[], tuple[KnownController, ...]], give: GiveProducerId) -> None:
        self._controllers = controllers
        self._give = give

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        handlers = {method.name: self._handler(method) for method in _DESCRIBED.methods}
        handlers["InitProducerId"] = grpc.unary_unary_rpc_method_handler(
            self._init_producer_id,
            request_deserializer=controller_service_pb2.InitProducerIdRequest.FromString,
            response_serializer=controller_service_pb2.InitProducerIdResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def _handler(self, method: Any) -> Any:
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        # The generated messages are needed, because permissions read their fields.
        decode = getattr(controller_service_pb2, method.input_type.name).FromString
        return make(self._refuse, request_deserializer=decode, response_serializer=bytes)

    async def _init_producer_id(
        self, request: controller_service_pb2.InitProducerIdRequest, _context: object
    ) -> controller_service_pb2.InitProducerIdResponse:
        return PRODUCER_ID.write(await self._give(INIT_PRODUCER_ID.read(request)))

    async def _refuse(self, _request: object, _context: object) -> None:
        raise Refused(ErrorCode.NOT_CONTROLLER, sentence(self._controllers()))


def sentence(controllers: tuple[KnownController, ...]) -> str:
    """The message of the refusal, with the controllers' addresses."""
    found = [one.client or one.internal for one in controllers]
    listed = ", ".join(target(endpoint) for endpoint in found if endpoint is not None)
    return f"this is a data node, and a controller is asked for; controllers are at {listed}"


# ---- encoded
# The metadata as bytes, encoded once for all subscribers.
#
# Invariant: each state of a topic, and each change of one, is encoded once, whatever the number of streams;
# `rpc.convert.subscription` can read the bytes.

_TOPICS = tag(pb.SubscribeResponse, "topics")
_CHANGED_TOPICS = tag(pb.SubscribeResponse, "changed_topics")
_TOPICS_OF_CLUSTER = tag(metadata_pb2.ClusterMetadata, "topics")
_METADATA = tag(pb.MetadataServiceGetMetadataResponse, "metadata")


class EncodedMetadata:
    """The encoded parts of one history."""

    def __init__(self, history: MetadataHistory) -> None:
        self._history = history
        # Together with the image that was encoded: another object means another state.
        self._whole: dict[str, tuple[TopicImage, bytes]] = {}
        self._parts: dict[tuple[str, int], bytes] = {}
        self._nodes: dict[int, bytes] = {}
        self._forgotten = 0

    def forget(self) -> None:
        """Drop parts that will never be sent again."""
        first = self._history.first_number
        if first == self._forgotten:
            return
        self._forgotten = first
        self._parts = {key: part for key, part in self._parts.items() if key[1] >= first}
        self._nodes = {number: nodes for number, nodes in self._nodes.items() if number >= first}

    def snapshot(self, as_of: AsOf, portion: Portion, controllers: tuple[KnownController, ...]) -> bytes:
        """The first message to a subscriber that has no state."""
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
        """The first message to a subscriber that already has a state."""
        image = self._history.image
        assert image is not None, "a subscription begins once there is a state"
        head = pb.SubscribeResponse(as_of=write_as_of(as_of), cluster_id=image.cluster_id)
        head.controllers.extend(write_controllers(controllers))
        return head.SerializeToString()

    def change(self, as_of: AsOf, change: StateChange, portion: Portion) -> bytes:
        """The portion of a change for one subscriber."""
        head = pb.SubscribeResponse(
            as_of=write_as_of(as_of), rules=None if change.rules is None else write_rules(change.rules)
        )
        if change.feature_level is not None:
            head.feature_level = change.feature_level
        return b"".join([head.SerializeToString(), self._changed_nodes(change), *self._pieces(portion, change.number)])

    def added(self, as_of: AsOf, portion: Portion) -> bytes:
        """The answer to a subscriber that subscribes to more topics."""
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
        whole, topics = self._whole, self._history.topics
        known = whole.get(topic.topic_id)
        if known is None or known[0] is not topic:
            if len(whole) > len(topics):
                # At least one of them is deleted.
                self._whole = whole = {topic_id: whole[topic_id] for topic_id in whole.keys() & topics.keys()}
            known = whole[topic.topic_id] = (topic, write_topic(topic).SerializeToString())
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


MERGE_MS = 20
"""The default window."""
WOKEN_PER_TURN = 32
"""Subscribers that are served in one turn of the event loop; the others follow in the next turns, in order."""


class MetadataFeed:
    """The state of the cluster, its changes, and the subscribers that wait for them."""

    def __init__(
        self,
        *,
        age_ms: Callable[[], int],
        controllers: Callable[[], tuple[KnownController, ...]],
        clock: Clock,
        merge_ms: int = MERGE_MS,
        node_id: NodeId | None = None,
        history: MetadataHistory | None = None,
    ) -> None:
        """``age_ms`` returns the age of the metadata; ``controllers`` returns the known ones, the active one first."""
        self.history = history or MetadataHistory()
        self.encoded = EncodedMetadata(self.history)
        self.controllers = controllers
        self._age_ms = age_ms
        self._clock = clock
        self._merge_ms = merge_ms
        self._node_id = node_id
        self._waiting: list[MetadataImage] = []
        self._served_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        # A dict, because it keeps the order of arrival.
        self._followers: dict[Callable[[], None], None] = {}
        # The followers that were not yet woken for the last change, in the order in which they will be.
        self._unwoken: dict[Callable[[], None], None] = {}
        self._is_waking = False

    @property
    def follower_count(self) -> int:
        """The number of open subscriptions."""
        return len(self._followers)

    def follow(self, woken: Callable[[], None]) -> None:
        """Call ``woken`` after every change, until `leave`."""
        self._followers[woken] = None

    def leave(self, woken: Callable[[], None]) -> None:
        """Forget a subscriber that is gone."""
        self._followers.pop(woken, None)
        self._unwoken.pop(woken, None)

    def as_of(self) -> AsOf:
        """The served position, and how current it is now."""
        return self.stamped(self.history.as_of)

    def stamped(self, position: AsOf) -> AsOf:
        """A position with this process's present age and id."""
        return position._replace(age_ms=self._age_ms(), node_id=self._node_id)

    def take(self, image: MetadataImage) -> None:
        """Take an image that arrived: the whole state, or a change."""
        self._waiting.append(image)
        if self._timer is not None:
            return
        left_ms = 0 if self._served_ms is None else self._served_ms + self._merge_ms - self._clock()
        if left_ms <= 0:
            self.catch_up()
        else:
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self.catch_up)

    def catch_up(self) -> None:
        """Serve all waiting images now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        images, self._waiting = self._waiting, []
        self.history.take(images)
        self.encoded.forget()
        self._served_ms = self._clock()
        # A stream that still waits for an earlier change keeps its turn.
        self._unwoken.update(self._followers)
        if not self._is_waking:
            self._wake_some()

    def _wake_some(self) -> None:
        """Wake some subscribers, and the rest in later turns of the event loop."""
        for woken in list(islice(self._unwoken, WOKEN_PER_TURN)):
            del self._unwoken[woken]
            woken()
        self._is_waking = bool(self._unwoken)
        if self._is_waking:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def close(self) -> None:
        """Stop serving changes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
