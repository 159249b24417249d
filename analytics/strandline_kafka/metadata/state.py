"""The state of a Kafka controller at one offset: topics, partitions, brokers, and the settings that affect them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition

K = TypeVar("K")


class Partition(NamedTuple):
    """One partition. Lists of members are sets, except for the replicas."""

    tp: TopicPartition
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    last_known_elr: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    recovering: bool

    def compared(self) -> tuple[object, ...]:
        """The values in which two states of one partition must agree."""
        sets = (frozenset(one) for one in (self.isr, self.elr, self.last_known_elr, self.adding, self.removing))
        return (self.replicas, *sets, self.leader, self.leader_epoch, self.partition_epoch, self.recovering)


@dataclass(slots=True, kw_only=True)
class Broker:
    """One registration of a broker."""

    broker_id: NodeId
    broker_epoch: int
    rack: str | None
    fenced: bool
    shutting_down: bool

    @property
    def is_active(self) -> bool:
        """Whether it may be elected."""
        return not self.fenced and not self.shutting_down


@dataclass(slots=True)
class ClusterState:
    """The whole replayed state. ``is_whole``: it began at offset 0 or at a snapshot, so that nothing is missing."""

    is_whole: bool = True
    topics: dict[str, str] = field(default_factory=dict)
    """Names by topic id."""
    gone: dict[str, str] = field(default_factory=dict)
    """Names of topics that the current batch deletes: its earlier records become events after it."""
    ids: dict[str, str] = field(default_factory=dict)
    """Topic ids by name."""
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    of_topic: dict[str, list[TopicPartition]] = field(default_factory=dict)
    brokers: dict[NodeId, Broker] = field(default_factory=dict)
    min_isr_of_topic: dict[str, int] = field(default_factory=dict)
    """Settings by the topic's name."""
    min_isr_default: int | None = None
    min_isr_assumed: int | None = None
    features: dict[str, int] = field(default_factory=dict)

    def name_of(self, topic_id: str) -> str | None:
        """The name of a topic, also of one that ends in the current batch."""
        return self.topics.get(topic_id, self.gone.get(topic_id))

    def put(self, partition: Partition) -> None:
        """Add or replace a partition."""
        if partition.tp not in self.partitions:
            self.of_topic.setdefault(partition.tp.topic_id, []).append(partition.tp)
        self.partitions[partition.tp] = partition

    def partitions_of(self, topic_id: str) -> list[Partition]:
        """The partitions of a topic that are known."""
        return [self.partitions[tp] for tp in self.of_topic.get(topic_id, ())]

    def min_isr(self, topic_id: str) -> int | None:
        """The setting in effect for a topic; None if the log does not have it."""
        own = self.min_isr_of_topic.get(self.topics.get(topic_id, ""))
        return (
            own
            if own is not None
            else self.min_isr_default
            if self.min_isr_default is not None
            else self.min_isr_assumed
        )

    def active(self) -> tuple[NodeId, ...]:
        """The brokers that may be elected."""
        return tuple(sorted(broker.broker_id for broker in self.brokers.values() if broker.is_active))

    def fenced(self) -> tuple[NodeId, ...]:
        """The brokers that are fenced."""
        return tuple(sorted(broker.broker_id for broker in self.brokers.values() if broker.fenced))

    def differences(self, other: ClusterState) -> Iterator[str]:
        """The differences from another state, in words."""
        yield from _differ("topic", self.topics, other.topics)
        yield from _differ(
            "partition",
            {tp: one.compared() for tp, one in self.partitions.items()},
            {tp: one.compared() for tp, one in other.partitions.items()},
        )
        yield from _differ("broker", _compared(self.brokers.values()), _compared(other.brokers.values()))
        yield from _differ("min.insync.replicas of topic", self.min_isr_of_topic, other.min_isr_of_topic)
        yield from _differ("min.insync.replicas of", {"": self.min_isr_default}, {"": other.min_isr_default})


def _compared(brokers: Iterable[Broker]) -> dict[NodeId, tuple[object, ...]]:
    return {one.broker_id: (one.broker_epoch, one.rack, one.fenced, one.shutting_down) for one in brokers}


def _differ(what: str, own: Mapping[K, object], other: Mapping[K, object]) -> Iterator[str]:
    for key in sorted({*own, *other}, key=str):
        if own.get(key) != other.get(key):
            yield f"{what} {key}: {own.get(key)} by the log, {other.get(key)} by the snapshot"


# ---- facts
# The facts of the metadata log: what one record changed, with the state before it.


class Created(NamedTuple):
    """A partition begins."""

    partition: Partition
    min_isr: int | None
    eligible: tuple[NodeId, ...]


class Changed(NamedTuple):
    """A partition is at its next epoch."""

    before: Partition
    after: Partition
    names_leader: bool
    """Whether the record names a leader: then the leader epoch rose, even if the leader is the same."""
    names_replicas: bool
    """Whether the record names the current or future placement of the partition."""
    min_isr: int | None
    eligible: tuple[NodeId, ...]
    """The live members of ISR and ELR before it."""


class Restated(NamedTuple):
    """The state of a partition changed without a new epoch: its ELR was cleared."""

    partition: Partition
    min_isr: int | None


class Configured(NamedTuple):
    """Another min ISR is in effect for a partition."""

    partition: Partition
    min_isr: int | None


class Deleted(NamedTuple):
    """A partition was deleted with its topic."""

    partition: Partition
    min_isr: int | None
    topic: str | None


class Registered(NamedTuple):
    """A process of a broker registered."""

    broker_id: NodeId
    rack: str | None
    is_first: bool
    is_fast_restart: bool
    """Whether the process before it had neither been fenced nor shut down cleanly."""


class Fenced(NamedTuple):
    """A broker is fenced."""

    broker_id: NodeId
    rack: str | None
    live: tuple[NodeId, ...]
    fenced: tuple[NodeId, ...]


class Unfenced(NamedTuple):
    """A broker is unfenced."""

    broker_id: NodeId
    rack: str | None


class ShutdownBegan(NamedTuple):
    """A broker began a controlled shutdown."""

    broker_id: NodeId
    live: tuple[NodeId, ...]
    fenced: tuple[NodeId, ...]


class Unregistered(NamedTuple):
    """A broker was removed from the cluster."""

    broker_id: NodeId
    rack: str | None


class DirectoriesNamed(NamedTuple):
    """A broker reported its log directories; directly before it, offline directories caused removals."""

    broker_id: NodeId


class RegistrationRepeated(NamedTuple):
    """A registration was written that changes nothing, such as a second fence."""

    broker_id: NodeId


class ControllerElected(NamedTuple):
    """A controller begins its reign; a text of Kafka before 4.1 does not name it."""

    leader_id: NodeId | None
    live: tuple[NodeId, ...]
    fenced: tuple[NodeId, ...]


class Unknown(NamedTuple):
    """A record that cannot be taken into account: its kind or version, or the partition's state before it."""

    name: str


Registration = Registered | Fenced | Unfenced | ShutdownBegan | Unregistered | DirectoriesNamed | RegistrationRepeated

Fact = Created | Changed | Restated | Configured | Deleted | Registration | ControllerElected | Unknown
