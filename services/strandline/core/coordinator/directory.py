"""The topics of the cluster as a node's newest metadata has them, for the machines of its coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.core.coordinator.internal_topics import is_internal
from strandline.core.coordinator.machine import TopicEntry
from strandline.core.messages import NodeImage, TopicImage
from strandline.core.types import NodeId


class NodeTopics:
    """A view of the topics and nodes that `MetadataFollower` keeps; code that changes them calls `changed`."""

    def __init__(self, topics: Mapping[str, TopicImage], nodes: Mapping[NodeId, NodeImage]) -> None:
        self._topics = topics
        self._nodes = nodes
        self._version = 0
        self._names: dict[str, str] | None = None
        self._entries: dict[str, TopicEntry] = {}

    @property
    def version(self) -> int:
        """Rises with every change of a topic."""
        return self._version

    def changed(self) -> None:
        """Topics changed."""
        self._version += 1
        self._names = None
        self._entries.clear()

    def by_name(self, name: str) -> TopicEntry | None:
        """The topic that is called ``name`` now."""
        topic_id = self._ids().get(name)
        return self.by_id(topic_id) if topic_id is not None else None

    def by_id(self, topic_id: str) -> TopicEntry | None:
        """The topic with this id; None once it is deleted."""
        entry = self._entries.get(topic_id)
        if entry is None and (topic := self._topics.get(topic_id)) is not None:
            entry = self._entries[topic_id] = self._entry(topic)
        return entry

    def names(self) -> Iterable[str]:
        """The names of all topics, internal ones included."""
        return self._ids().keys()

    def _ids(self) -> dict[str, str]:
        if self._names is None:
            self._names = {topic.name: topic_id for topic_id, topic in self._topics.items()}
        return self._names

    def _entry(self, topic: TopicImage) -> TopicEntry:
        racks = {node_id: node.rack for node_id, node in self._nodes.items() if node.rack is not None}
        of_partitions = tuple(
            frozenset(racks[n] for n in partition.replicas if n in racks) for partition in topic.partitions
        )
        return TopicEntry(topic.topic_id, topic.name, of_partitions, is_internal(topic.name))
