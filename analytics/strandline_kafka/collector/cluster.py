"""Reads a cluster from an answer to Metadata: its brokers, and the state of each partition at one moment.

Kafka gives a client no partition epoch, so two states with one leader epoch cannot be ordered: one broker, whose view
does not go back, is asked for all of them as long as it answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline_kafka.metadata.wire import Message, Unreadable

_NO_LEADER = -1
UNKNOWN_TOPIC = 3
"""Kafka's error for a topic that does not exist or is not visible."""


class Broker(NamedTuple):
    """A broker with its advertised address."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSample:
    """The state of one partition. The ISR is a set; the replicas are in order of preference."""

    tp: TopicPartition
    topic: str
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: frozenset[NodeId]
    offline: frozenset[NodeId]
    """Replicas whose broker or directory does not serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSample:
    """One look at the whole cluster. ``refused``: topics that are not shown, with Kafka's error."""

    cluster_id: str
    brokers: Mapping[NodeId, Broker]
    partitions: Mapping[TopicPartition, PartitionSample]
    refused: Mapping[str, int]

    def led(self) -> Iterator[PartitionSample]:
        """The partitions whose leader can be asked."""
        return (each for each in self.partitions.values() if each.leader in self.brokers)

    @property
    def topics(self) -> dict[str, str]:
        """Names by topic id."""
        return {tp.topic_id: each.topic for tp, each in self.partitions.items()}


def cluster_of(message: Message) -> ClusterSample:
    """The cluster that an answer to Metadata shows.

    Raises:
        Unreadable: the answer names no cluster, or contradicts itself.
    """
    if not message["cluster_id"]:
        raise Unreadable("the answer to Metadata names no cluster")
    partitions: dict[TopicPartition, PartitionSample] = {}
    refused: dict[str, int] = {}
    for topic in message["topics"]:
        if topic["error"] or topic["name"] is None:
            refused[topic["name"] or topic["topic_id"]] = topic["error"]
            continue
        for each in topic["partitions"]:
            # A partition with an error, such as having no leader, is still shown completely.
            found = _partition(topic, each)
            partitions[found.tp] = found
    return ClusterSample(
        cluster_id=message["cluster_id"],
        brokers={NodeId(each["node_id"]): Broker(each["host"], each["port"]) for each in message["brokers"]},
        partitions=partitions,
        refused=refused,
    )


def _partition(topic: Message, given: Message) -> PartitionSample:
    nodes = (*given["replicas"], *given["isr"])
    if given["index"] < 0 or any(node < 0 for node in nodes):
        raise Unreadable(
            f"the answer to Metadata has a negative number in partition {given['index']} of {topic['name']}"
        )
    return PartitionSample(
        tp=TopicPartition(topic["topic_id"], given["index"]),
        topic=topic["name"],
        leader=None if given["leader"] == _NO_LEADER else NodeId(given["leader"]),
        leader_epoch=LeaderEpoch(given["leader_epoch"]),
        replicas=tuple(map(NodeId, given["replicas"])),
        isr=frozenset(map(NodeId, given["isr"])),
        offline=frozenset(map(NodeId, given["offline"])),
    )
