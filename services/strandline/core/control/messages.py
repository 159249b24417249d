"""Requests to the controller other than registration and AlterPartition, and its answers, independent of the wire.

Invariant: a request that may change something can name the cluster that it is meant for, and every answer to a
batch has exactly one entry per element, a refusal or a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from strandline.core import messages
from strandline.core.errors import Refusal
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType, Rule
from strandline.core.quotas import Quota, QuotaChange
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, TopicPartition


class TopicRef(NamedTuple):
    """A topic by name, by id, or by both, which must then agree. Empty means not given."""

    name: str = ""
    topic_id: str = ""


class PartitionsRef(NamedTuple):
    """Partitions of one topic; an empty tuple means all of them."""

    topic: TopicRef
    partitions: tuple[int, ...] = ()


class ElectionKind(StrEnum):
    """The kind of election that an operator requests (Kafka: ElectionType)."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class NewTopic(NamedTuple):
    """One topic to create. ``topic_id`` is drawn by the caller of the core; None counts mean the default."""

    name: str
    topic_id: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    assignments: tuple[tuple[int, tuple[NodeId, ...]], ...] = ()
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics:
    """Topics to create; ``validate_only`` checks and changes nothing."""

    cluster_id: str | None = None
    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    request_id: str | None = None
    """The same one in a repeat (C32)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics:
    """Topics to delete with their records."""

    cluster_id: str | None = None
    topics: tuple[TopicRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopics:
    """Topics to describe, each once however often it is named; empty: all."""

    cluster_id: str | None = None
    topics: tuple[TopicRef, ...] = ()


class ConfigChange(NamedTuple):
    """Settings of one topic to set and to remove; all of them are applied or none."""

    topic: TopicRef
    set_configs: tuple[tuple[str, str], ...] = ()
    delete_configs: tuple[str, ...] = ()
    invalid: Refusal | None = None
    """What the decoder found wrong with it; then none of it is applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopicConfigs:
    """Changes of settings by topic."""

    cluster_id: str | None = None
    topics: tuple[ConfigChange, ...]
    validate_only: bool = False


class ConfigsRef(NamedTuple):
    """Settings of one topic, by name; empty means all."""

    topic: TopicRef
    names: tuple[str, ...] = ()
    invalid: Refusal | None = None
    """What the decoder found wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigs:
    """Settings to describe, by topic (C101)."""

    cluster_id: str | None = None
    topics: tuple[ConfigsRef, ...]


class GrowingTopic(NamedTuple):
    """A topic and its new number of partitions."""

    topic: TopicRef
    total: int
    assignments: tuple[tuple[int, tuple[NodeId, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions:
    """Topics to add partitions to."""

    cluster_id: str | None = None
    topics: tuple[GrowingTopic, ...]
    validate_only: bool = False
    request_id: str | None = None
    """The same one in a repeat (C32)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Elections to hold; without topics, in every partition that needs one."""

    cluster_id: str | None = None
    kind: ElectionKind = ElectionKind.PREFERRED
    partitions: tuple[PartitionsRef, ...] = ()
    seen: tuple[messages.EpochsSeen, ...] = ()
    """No election is held in a partition whose leader epoch has changed since, so a retry changes nothing (C32)."""


class ReassignPartition(NamedTuple):
    """Which nodes are to hold one partition."""

    topic: TopicRef
    partition: int
    target: tuple[NodeId, ...] | None
    """The preferred leader first; None cancels its reassignment."""
    planned_from: tuple[NodeId, ...] | None = None
    """The replicas that the target was planned from; None skips the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignments:
    """Reassignments to begin, to change or to cancel (C72, C77)."""

    cluster_id: str | None = None
    partitions: tuple[ReassignPartition, ...]
    allow_factor_change: bool = True
    throttle_bytes_per_s: int | None = None
    """The rate limit of the reassignments that begin or change (C80); None: no limit."""
    validate_only: bool = False
    force: bool = False
    """Whether a cancel may leave a partition below its min ISR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignments:
    """Asks for the reassignments that have not ended; without topics, all of them."""

    cluster_id: str | None = None
    partitions: tuple[PartitionsRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainNode:
    """Drain a node, or stop draining it (C86)."""

    cluster_id: str | None = None
    node_id: NodeId
    draining: bool


class AclFilter(NamedTuple):
    """Matches the rules that agree with every field; None agrees with anything."""

    resource: ResourceType | None = None
    name: str | None = None
    pattern: Pattern | None = None
    principal: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    speaks_of_name: bool = False
    """Whether to match the rules that apply to ``name``, instead of those that have this name."""

    def among(self, rules: set[Rule]) -> tuple[Rule, ...]:
        """The rules that the filter matches, in order."""
        if not self.speaks_of_name and None not in self[:-1]:
            # The one rule that it can match is not searched for: 10,000 rules may be removed one by one.
            rules = rules.intersection([Rule(**{name: getattr(self, name) for name in Rule.__slots__})])
        return tuple(sorted(filter(self.takes, rules)))

    def takes(self, rule: Rule) -> bool:
        """Whether the filter matches a rule."""
        is_named = self.name is None or (rule.matches(self.name) if self.speaks_of_name else rule.name == self.name)
        wanted = (self.resource, self.pattern, self.principal, self.operation, self.permission)
        found = (rule.resource, rule.pattern, rule.principal, rule.operation, rule.permission)
        return is_named and all(one in (None, other) for one, other in zip(wanted, found, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAcls:
    """Rules to add, and filters of rules to remove; ``force``: even if the caller can change none afterwards."""

    cluster_id: str | None = None
    entries: tuple[Rule | AclFilter | Refusal, ...]
    validate_only: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAcls:
    """Rules to list."""

    cluster_id: str | None = None
    filter: AclFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotas:
    """Quotas to set and to remove, entry by entry, each whole or not at all."""

    cluster_id: str | None = None
    entries: tuple[tuple[QuotaChange, ...] | Refusal, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotas:
    """Lists the quotas of these principals; empty means all."""

    cluster_id: str | None = None
    principals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer's request for an identity, or for the next epoch of the one it has (M61)."""

    cluster_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """A node's request for a block of producer ids (C65, KIP-730)."""

    node_id: NodeId
    node_epoch: NodeEpoch
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNodes:
    """Asks for every registered node."""

    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownNode:
    """Begin a controlled shutdown; ``node_epoch`` None means the current incarnation."""

    cluster_id: str | None = None
    node_id: NodeId
    node_epoch: NodeEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterNode:
    """Remove a node that is gone for good (C85)."""

    cluster_id: str | None = None
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetadata:
    """A client's request for the metadata; without topics, all. Unknown topics are missing in the answer."""

    cluster_id: str | None = None
    topics: tuple[TopicRef, ...] = ()
    linearizable: bool = False
    """Whether the answer must include every change that was acknowledged before (C14b)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchMetadata:
    """A subscription, by a node (both ids) or by a client (neither)."""

    cluster_id: str | None = None
    node_id: NodeId | None = None
    node_epoch: NodeEpoch | None = None
    position: messages.PositionProof | None = None
    """The newest position that the node was sent; checked before anything is sent to it (C36)."""


ControllerRequest = (
    messages.RegisterNode
    | messages.Heartbeat
    | messages.AlterPartitionRequest
    | messages.ReportReplicaLogs
    | CreateTopics
    | DeleteTopics
    | DescribeTopics
    | AlterTopicConfigs
    | DescribeConfigs
    | CreatePartitions
    | ElectLeaders
    | InitProducerId
    | AllocateProducerIds
    | ListNodes
    | ShutdownNode
    | UnregisterNode
    | AlterPartitionReassignments
    | ListPartitionReassignments
    | DrainNode
    | AlterAcls
    | DescribeAcls
    | AlterClientQuotas
    | DescribeClientQuotas
    | GetMetadata
)


class CreatedTopic(NamedTuple):
    """The result for one topic to create; ``topic`` is None with a refusal and with validate_only."""

    name: str
    refusal: Refusal | None = None
    topic: messages.TopicImage | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None


class TopicResult(NamedTuple):
    """The result for one topic."""

    topic: TopicRef
    refusal: Refusal | None = None


class DescribedTopic(NamedTuple):
    """The description of one topic, or a refusal."""

    asked: TopicRef
    refusal: Refusal | None = None
    topic: messages.TopicImage | None = None


class ElectionResult(NamedTuple):
    """The result of one election, with the current leader. ``tp`` is None for an unknown topic."""

    topic: TopicRef
    partition: int
    refusal: Refusal | None = None
    leader: NodeId | None = None
    leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsCreated:
    """Answer to CreateTopics."""

    topics: tuple[CreatedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """Answer to DeleteTopics, AlterTopicConfigs and CreatePartitions."""

    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDescribed:
    """Answer to DescribeTopics."""

    topics: tuple[DescribedTopic, ...]


class DescribedConfigs(NamedTuple):
    """The settings of one topic, by name; none with a refusal."""

    asked: TopicRef
    refusal: Refusal | None = None
    configs: tuple[messages.TopicConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsDescribed:
    """Answer to DescribeConfigs."""

    topics: tuple[DescribedConfigs, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersElected:
    """Answer to ElectLeaders."""

    results: tuple[ElectionResult, ...]


class ReassignmentState(StrEnum):
    """The state of a reassignment."""

    QUEUED = "queued"
    RUNNING = "running"


def state_of(partition: messages.PartitionImage) -> ReassignmentState | None:
    """The state of this partition's reassignment; None if it has none."""
    if partition.original:
        return ReassignmentState.RUNNING
    return ReassignmentState.QUEUED if partition.queued_target else None


class ReassignedPartition(NamedTuple):
    """The result for the reassignment of one partition."""

    topic: TopicRef
    partition: int
    refusal: Refusal | None = None
    state: ReassignmentState | None = None
    """None if it has ended, or was only validated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsReassigned:
    """Answer to AlterPartitionReassignments, one entry per partition unless the whole request is refused."""

    refusal: Refusal | None = None
    results: tuple[ReassignedPartition, ...] = ()


class ReassignmentWait(NamedTuple):
    """What a reassignment waits for at one node, as a phrase."""

    node_id: NodeId
    why: str


class OngoingReassignment(NamedTuple):
    """One reassignment that has not ended."""

    topic: TopicRef
    partition: messages.PartitionImage
    waits: tuple[ReassignmentWait, ...]
    since_ms: int | None
    """Milliseconds in its current state; None if that began before this reign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsListed:
    """Answer to ListPartitionReassignments."""

    refusal: Refusal | None = None
    reassignments: tuple[OngoingReassignment, ...] = ()
    moves_per_node: int = 0
    """How many running reassignments may add a replica to one node, and how many may remove one from it (C73)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrained:
    """Answer to DrainNode, with the replicas that the node still has."""

    refusal: Refusal | None = None
    remaining_replicas: int = 0
    remaining_leaders: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesAltered:
    """Answer to AlterAcls and AlterClientQuotas: for each entry its refusal, or the rules that it added or removed."""

    results: tuple[Refusal | tuple[Rule, ...], ...]

    @property
    def refusals(self) -> tuple[Refusal | None, ...]:
        """Why each entry was refused, None where it was not."""
        return tuple(each if isinstance(each, Refusal) else None for each in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsDescribed:
    """Answer to DescribeAcls."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotasDescribed:
    """Answer to DescribeClientQuotas."""

    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdGiven:
    """Answer to InitProducerId."""

    refusal: Refusal | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAllocated:
    """Answer to AllocateProducerIds: ``length`` ids from ``start`` on."""

    refusal: Refusal | None = None
    start: int = 0
    length: int = 0


class ListedNode(NamedTuple):
    """One registered node and its session; ages are None before a first heartbeat of this reign."""

    node: messages.NodeImage
    directory_id: str
    feature_min: int
    feature_max: int
    last_heartbeat_age_ms: int | None = None
    metadata_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesListed:
    """Answer to ListNodes."""

    cluster_id: str
    controller_epoch: int
    nodes: tuple[ListedNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShutdownBegun:
    """Answer to ShutdownNode, with the partitions the node still leads."""

    refusal: Refusal | None = None
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUnregistered:
    """Answer to UnregisterNode."""

    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataListed:
    """Answer to GetMetadata."""

    image: messages.MetadataImage


ControllerAnswer = (
    messages.NodeRegistered
    | messages.HeartbeatAnswer
    | messages.AlterPartitionAnswer
    | TopicsCreated
    | TopicsChanged
    | TopicsDescribed
    | ConfigsDescribed
    | LeadersElected
    | ProducerIdGiven
    | ProducerIdsAllocated
    | NodesListed
    | NodeShutdownBegun
    | NodeUnregistered
    | PartitionsReassigned
    | ReassignmentsListed
    | NodeDrained
    | EntriesAltered
    | AclsDescribed
    | ClientQuotasDescribed
    | MetadataListed
    | messages.ReplicaLogsReported
)
