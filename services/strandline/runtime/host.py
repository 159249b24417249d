"""The parts that both roles of a data node share: one driver, one directory of topics, one set of logs.

Invariant: a promoted follower keeps its log and its core; role is state, not process
(ARCHITECTURE.md#roles-and-processes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import Endpoint, MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import NodeEpoch, NodeId, Offset, TopicPartition
from strandline.runtime.driver import Driver
from strandline.runtime.outbox import Backlog
from strandline.runtime.ports import Core
from strandline.runtime.threads import Aside

# ---- topics
# The id of each topic's name, and the address of each node, from the newest metadata.
#
# Invariant: a name maps to at most one id, the one of the newest image; ids are never reused (M63).


class TopicDirectory:
    """Topics and nodes of the cluster in the newest metadata this node has received."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.metadata_offset = -1
        """Position of the newest image; -1 before the first."""
        self._ids: dict[str, str] = {}
        self._topics: dict[str, TopicImage] = {}
        self._nodes: dict[NodeId, NodeImage] = {}

    def apply(self, image: MetadataImage) -> None:
        """Apply a snapshot, or a change that holds whole topics and nodes."""
        if image.is_snapshot:
            self._ids, self._topics, self._nodes = {}, {}, {}
        for topic_id in image.deleted_topic_ids:
            self._forget(topic_id)
        for topic in image.topics:
            self._topics[topic.topic_id] = topic
            self._ids[topic.name] = topic.topic_id
        for node_id in image.removed_node_ids:
            self._nodes.pop(node_id, None)
        for node in image.nodes:
            self._nodes[node.node_id] = node
        self.cluster_id = image.cluster_id
        self.metadata_offset = image.metadata_offset

    def _forget(self, topic_id: str) -> None:
        gone = self._topics.pop(topic_id, None)
        if gone is not None and self._ids.get(gone.name) == topic_id:
            del self._ids[gone.name]

    def resolve(self, name: str, topic_id: str) -> str | Refusal:
        """The id of a topic given by name, by id, or by both; or why there is none."""
        if topic_id:
            return topic_id if not name else self._agreeing(name, topic_id)
        known = self._ids.get(name)
        if known is not None:
            return known
        if not name:
            return _refusal(ErrorCode.INVALID_REQUEST, "a topic is named neither by name nor by id")
        return _refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic is named '{name}'; create it, or refresh")

    def _agreeing(self, name: str, topic_id: str) -> str | Refusal:
        topic = self._topics.get(topic_id)
        if topic is not None and topic.name != name:
            return _refusal(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"topic_id '{topic_id}' belongs to '{topic.name}', not to '{name}'"
            )
        return topic_id

    def name_of(self, topic_id: str) -> str:
        """The topic's name, empty if unknown."""
        topic = self._topics.get(topic_id)
        return topic.name if topic is not None else ""

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        """The partition in the newest metadata; None if there is none."""
        topic = self._topics.get(tp.topic_id)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        # A topic is always whole, with its partitions in the order of their indexes.
        return topic.partitions[tp.partition]

    def configs_of(self, topic_id: str) -> Mapping[str, str]:
        """The topic's own settings."""
        topic = self._topics.get(topic_id)
        return dict(topic.configs) if topic is not None else {}

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """A node's address for clients; None if unknown."""
        node = self._nodes.get(node_id)
        return node.client_endpoint if node is not None else None

    def internal_endpoints(self) -> frozenset[Endpoint]:
        """The addresses of all nodes for other nodes."""
        found = (node.internal_endpoint for node in self._nodes.values())
        return frozenset(endpoint for endpoint in found if endpoint is not None)

    def internal_endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """A node's address for other nodes; None if unknown."""
        node = self._nodes.get(node_id)
        return node.internal_endpoint if node is not None else None


def _refusal(code: ErrorCode, message: str) -> Refusal:
    return Refusal(code, message, Outcome.NOT_APPENDED)


class LogSizes(Protocol):
    """The figures in a description of a log that come from its files."""

    def held(self) -> Iterable[TopicPartition]:
        """Every partition with an open log."""
        ...

    def size_bytes(self, tp: TopicPartition) -> int:
        """Bytes of a log's segments; 0 if there is no log."""
        ...

    def retention_waits_until_ms(self, tp: TopicPartition) -> int | None:
        """The future time, by the wall clock, until which a log's retention waits; None if it does not wait."""
        ...

    def bytes_between(self, tp: TopicPartition, start: Offset, end: Offset) -> int:
        """Bytes of the batches between two offsets."""
        ...


@dataclass(slots=True, kw_only=True)
class Host:
    """The parts of a node that a role's servicer uses."""

    node_id: NodeId
    driver: Driver[Core]
    topics: TopicDirectory
    sizes: LogSizes
    low_space: Callable[[int], str | None]
    """A message about free space if produce must be refused to avoid ENOSPC, else None; takes monotonic ms."""
    node_epoch: NodeEpoch | None = None
    """None until this process is registered."""
    expanding: Aside = field(default_factory=lambda: Aside("expanding"))
    """The thread that decompresses producers' batches to check them."""
    unpacking: Aside = field(default_factory=lambda: Aside("unpacking"))
    """The thread that encodes and decodes single records, and finds offsets by time."""
    backlog: Backlog = field(default_factory=Backlog)
    """The answers that wait on fetch streams."""

    def close(self) -> None:
        """Start no more work in the threads."""
        self.expanding.close()
        self.unpacking.close()
