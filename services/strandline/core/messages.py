"""The protocol between nodes, controller and clients as frozen values, independent of the wire format.

`rpc/convert.py` is the only place that turns them into protobuf and back. Names are Kafka's
(PROTOCOL.md#the-wire), absence is ``None``. The hot ones are NamedTuples because they are built per batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Protocol

from strandline.core import types
from strandline.core.errors import Outcome, Refusal
from strandline.core.permissions import Rule
from strandline.core.quotas import Quota
from strandline.core.types import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    BatchHeader,
    EpochEnd,
    EpochEntry,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    Payload,
    ProducerBatch,
    Role,
    Rules,
    TopicPartition,
    TransactionState,
)


class ReplicaState(NamedTuple):
    """The requesting replica and its incarnation (KIP-903); absent on a client's request."""

    node_id: NodeId
    node_epoch: NodeEpoch


class LeaderHint(NamedTuple):
    """The leader that a refusing node knows of, so that the caller need not search for it (KIP-951)."""

    leader: NodeId | None
    leader_epoch: LeaderEpoch


class PartitionAnswer(Protocol):
    """The answer for one partition: a refusal, or else the fields of the subclass."""

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        ...

    @property
    def refusal(self) -> Refusal | None:
        """Why the partition was refused; None if it was not."""
        ...


class ProducePartition(NamedTuple):
    """One partition's part of a produce request: exactly one record batch, as opaque bytes. ``invalid`` is set when it
    failed the shape checks of `records.batch`; header and payload are then meaningless."""

    tp: TopicPartition
    header: BatchHeader
    payload: object
    invalid: Refusal | None = None


class ProduceResult(NamedTuple):
    """One partition's answer: where the batch lies, or why it does not."""

    tp: TopicPartition
    base_offset: Offset | None = None
    log_start_offset: Offset | None = None
    refusal: Refusal | None = None
    leader_hint: LeaderHint | None = None

    @property
    def outcome(self) -> Outcome | None:
        """NOT_APPENDED or MAY_APPEAR for an error, None for success (P2)."""
        return self.refusal.outcome if self.refusal else None


class FetchPartition(NamedTuple):
    """One partition's part of a fetch request (M26)."""

    tp: TopicPartition
    fetch_offset: Offset
    # Without it a follower of an older epoch, which will still truncate, would be counted (TR4, TR5).
    current_leader_epoch: LeaderEpoch | None = None
    # With the offset it is what the leader compares with its own lineage (M31).
    last_fetched_epoch: LeaderEpoch | None = None
    log_start_offset: Offset | None = None
    max_bytes: int = 1 << 20
    barrier_seen: int | None = None
    """The newest read barrier that this follower was sent in this leader epoch (G10)."""


class FetchRequest(NamedTuple):
    """A Fetch over many partitions, by a replica or (``replica`` absent) by a consumer."""

    partitions: tuple[FetchPartition, ...]
    replica: ReplicaState | None = None
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    read_committed: bool = False
    """Whether a consumer reads up to the last stable offset; ignored in a replica's fetch (X14)."""


class ReadRange(NamedTuple):
    """The bytes that an answer returns: whole batches from ``start``, none that crosses ``end``."""

    start: Offset
    end: Offset
    max_bytes: int


class FetchResult(NamedTuple):
    """One partition's answer, before its bytes are read: the performer reads ``read`` when it answers."""

    tp: TopicPartition
    high_watermark: Offset | None = None
    log_start_offset: Offset | None = None
    read: ReadRange | None = None
    diverging: EpochEnd | None = None
    refusal: Refusal | None = None
    leader_hint: LeaderHint | None = None
    # Answered at once, even without records: the replica counts only once it knows that its log agrees (M66).
    confirms_lineage: bool = False
    barrier: int | None = None
    """The newest read barrier of a coordinator's partition, which a replica repeats in its next fetch (G10)."""
    last_stable_offset: Offset | None = None
    """Given to consumers only."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """For a read-committed fetch: the aborted transactions that overlap ``read``, in the order of their markers; the
    performer leaves out those that begin above what it read."""


class ServedPartition(NamedTuple):
    """One partition's answer with the bytes that were read for it."""

    result: FetchResult
    payload: Payload


class Served(NamedTuple):
    """An answer to a fetch with its bytes. ``done``: the last one for this request (`AnswerFetch`)."""

    partitions: Sequence[ServedPartition]
    done: bool


class FetchedPartition(NamedTuple):
    """One partition's answer as the follower received it. ``batches`` are the headers of ``payload``, whose CRCs were
    checked on arrival; if a check failed, ``corrupt`` says what was wrong and both are empty."""

    tp: TopicPartition
    error: Refusal | None = None
    high_watermark: Offset | None = None
    log_start_offset: Offset | None = None
    diverging: EpochEnd | None = None
    batches: tuple[BatchHeader, ...] = ()
    payload: object = b""
    corrupt: str | None = None
    barrier: int | None = None

    @property
    def says_that_logs_agree(self) -> bool:
        """Whether the leader compared the lineage and found no divergence."""
        return self.error is None and self.diverging is None and self.corrupt is None


class EpochEndQuestion(NamedTuple):
    """Asks where ``leader_epoch`` ended (None asks for an undefined epoch, answered undefined)."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch | None
    current_leader_epoch: LeaderEpoch | None = None


class EpochEndAnswer(NamedTuple):
    """Where an epoch ended on the leader; ``end`` is None when the leader cannot say (Kafka's -1, -1)."""

    tp: TopicPartition
    end: EpochEnd | None = None
    refusal: Refusal | None = None


LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Kafka's special timestamps of ListOffsets; any value >= 0 is a time in ms since the Unix epoch."""


class OffsetQuestion(NamedTuple):
    """Asks for an offset by LATEST, EARLIEST, MAX_TIMESTAMP or by time in ms."""

    tp: TopicPartition
    timestamp: int
    current_leader_epoch: LeaderEpoch | None = None
    read_committed: bool = False
    """Whether LATEST means the last stable offset to a client (X14)."""


class OffsetLookup(NamedTuple):
    """Asks the performer to find the first record at or after ``timestamp`` below ``end``."""

    timestamp: int
    end: Offset
    settled_end: Offset
    # While HW < LESO: the leader does not know yet whether a hit at or beyond ``settled_end`` is committed, and must
    # refuse it with OFFSET_NOT_AVAILABLE (KIP-207).
    unsettled: bool


class OffsetAnswer(NamedTuple):
    """An offset, its timestamp where one was looked up, and the epoch that wrote it."""

    tp: TopicPartition
    offset: Offset | None = None
    timestamp: int | None = None
    leader_epoch: LeaderEpoch | None = None
    refusal: Refusal | None = None
    lookup: OffsetLookup | None = None


class ProducerSnapshotQuestion(NamedTuple):
    """Asks a leader for the producer state below its log start (C43)."""

    tp: TopicPartition
    current_leader_epoch: LeaderEpoch


class ProducerSnapshotAnswer(NamedTuple):
    """What a leader remembers of producers below ``log_start_offset``, each producer's oldest batch first, and which
    transactions were open there."""

    tp: TopicPartition
    log_start_offset: Offset | None = None
    producers: tuple[ProducerBatch, ...] = ()
    refusal: Refusal | None = None
    transactions: TransactionState = NO_TRANSACTIONS


class DeletePartition(NamedTuple):
    """Asks to delete the records of one partition below ``offset``; None: below the high watermark."""

    tp: TopicPartition
    offset: Offset | None


class DeletedPartition(NamedTuple):
    """One partition's answer: ``low_watermark`` is the lowest log start among the leader and its in-sync replicas, None
    until each of them has reported its own in this leader epoch."""

    tp: TopicPartition
    low_watermark: Offset | None = None
    refusal: Refusal | None = None


class IsrMember(NamedTuple):
    """A proposed member with the incarnation that earned its place (KIP-903)."""

    node_id: NodeId
    # Frozen with the fetch that proved it, never refreshed on a re-send (TR10). Without one the member stays as it is,
    # proven or not (M64).
    node_epoch: NodeEpoch | None


class ProposedIsr(NamedTuple):
    """One partition's compare-and-set: replace the ISR if ``partition_epoch`` is still current."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[IsrMember, ...]
    recovering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest:
    """A leader's proposals."""

    cluster_id: str
    controller_epoch: int
    node_id: NodeId
    node_epoch: NodeEpoch
    # Rises with every attempt of this node epoch, so that a late copy of an abandoned one is refused (TR16).
    request_sequence: int
    partitions: tuple[ProposedIsr, ...]
    position: PositionProof | None = None
    """The newest position that this process can prove it was sent (C34)."""


class IsrDecision(NamedTuple):
    """The controller's decision on one proposal, with the partition's current state."""

    tp: TopicPartition
    refusal: Refusal | None = None
    leader: NodeId | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    isr: tuple[NodeId, ...] = ()
    partition_epoch: PartitionEpoch = PartitionEpoch(0)
    recovering: bool = False
    unproven: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionAnswer:
    """``refusal`` refuses the whole request; otherwise one decision for each proposal."""

    refusal: Refusal | None = None
    partitions: tuple[IsrDecision, ...] = ()
    last_sequence: int | None = None
    """The sequence that the next attempt must exceed, where the request's own did not (M71)."""
    # A leader acts on an answer as it does on metadata, so it keeps the position of the answer, too (C34).
    position: PositionProof | None = None


class Endpoint(NamedTuple):
    """An advertised address, which may differ from the address a server binds."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeImage:
    """What all nodes and clients know of a registered node."""

    node_id: NodeId
    node_epoch: NodeEpoch
    roles: frozenset[Role] = frozenset({Role.LEADER, Role.FOLLOWER})
    client_endpoint: Endpoint | None = None
    internal_endpoint: Endpoint | None = None
    rack: str | None = None
    fenced: bool = True
    shutting_down: bool = False
    disk_nearly_full: bool = False
    """It rejects appends for lack of space, so it leads only what no other member of the ISR can lead (ours)."""
    draining: bool = False
    """It gets no new replicas, and leads only what no other member of the ISR can lead (C86)."""

    @property
    def is_observer(self) -> bool:
        """An observer replicates everything and is never elected (M60)."""
        return Role.LEADER not in self.roles


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """A partition as the controller committed it (Kafka: PartitionRecord)."""

    tp: TopicPartition
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    # A part of the partition's state: a change of it alone could leave a replica in the ELR that lacks what is
    # committed next (M57, TR19).
    min_isr: int
    """Effective: min(min.insync.replicas, RF); during a reassignment RF is the number of replicas before it (C74)."""
    recovering: bool = False
    # Only this explains why a follower must cut committed records, and only of earlier epochs (M41).
    last_unclean_leader_epoch: LeaderEpoch | None = None
    observers: tuple[NodeId, ...] = ()
    unproven: tuple[NodeId, ...] = ()
    """Members of ISR and ELR whose current process no leader has counted yet: their disk may lack records (M64)."""
    adding: tuple[NodeId, ...] = ()
    """The members of ``replicas`` that the running reassignment adds (C70)."""
    removing: tuple[NodeId, ...] = ()
    """The members of ``replicas`` that the running reassignment removes."""
    original: tuple[NodeId, ...] = ()
    """The replicas before the first of a chain of reassignments; a cancel returns to them. Empty if none is running."""
    queued_target: tuple[NodeId, ...] = ()
    """The replicas after a reassignment that waits for its turn; empty if none is waiting."""
    queue_number: int = 0
    """Its place among the reassignments that wait; known to controllers only."""
    throttle_bytes_per_s: int | None = None
    """The rate limit of the running or waiting reassignment (C80); None: no limit, or no reassignment."""

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas after the running reassignment, or the current ones if there is none."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.removing)

    @property
    def settled_replicas(self) -> tuple[NodeId, ...]:
        """The replicas without those that a running reassignment adds; min ISR counts only these (C74)."""
        return self.original or self.replicas


class ConfigSource(Enum):
    """Where the value of a setting comes from."""

    TOPIC = "topic"
    NODE = "node"
    """Each node uses the value that it was started with."""
    DEFAULT = "default"


class TopicConfig(NamedTuple):
    """A setting as it applies now; ``value`` is None if each node has its own."""

    name: str
    value: str | None
    source: ConfigSource
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic: its name, its id, its settings, its partitions in index order."""

    name: str
    topic_id: str
    configs: tuple[tuple[str, str], ...] = ()
    partitions: tuple[PartitionImage, ...] = ()
    created_by: str = ""
    """Id of the request that created it; known to controllers only (C32)."""
    grown_by: tuple[str, ...] = ()
    """Ids of the latest requests that added partitions; known to controllers only."""


class Reign(NamedTuple):
    """One reign of a controller, which begins whenever a controller becomes active (C34)."""

    # Random, so that a store that forgot a reign cannot give its id again.
    reign_id: str
    controller_epoch: int
    first_offset: int
    previous_reign_id: str = ""
    """The reign that this one continues; empty for the first."""


class Position(NamedTuple):
    """A place in the history of the cluster's state (C34)."""

    reign_id: str
    metadata_offset: int


class PositionProof(NamedTuple):
    """A position that the controller sent to one process of a node, with the controller's MAC (M72)."""

    node_epoch: NodeEpoch
    controller_epoch: int
    metadata_offset: int
    mac: bytes
    """Computed and verified in `core/positions.py`."""
    reign_id: str = ""
    """Empty if sent by a release without reign ids."""


class AsOf(NamedTuple):
    """A position in the history of the metadata, and how current its sender was (C61, C62)."""

    controller_epoch: int
    metadata_offset: int
    reign_id: str = ""
    """Empty if the controller is of an earlier release."""
    age_ms: int = 0
    """Milliseconds since the sender last heard of the controller."""
    node_id: NodeId | None = None
    """The data node that sent it; None if a controller did."""

    def is_before(self, other: AsOf) -> bool:
        """Whether this position is older (C63)."""
        return self[:2] < other[:2]

    def is_same_reign(self, other: AsOf) -> bool:
        """Whether both positions belong to the same reign."""
        return (self.controller_epoch, self.reign_id) == (other.controller_epoch, other.reign_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One message of a subscriber: topics as (name, id), one of the two empty."""

    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[tuple[str, str], ...] = ()
    all_topics: bool = False
    since: AsOf | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """A snapshot (``is_snapshot``) or what changed since ``metadata_offset`` before it: whole topics (every partition
    of a topic that changed in any way) and whole nodes."""

    cluster_id: str
    controller_epoch: int
    metadata_offset: int
    is_snapshot: bool
    rules: Rules
    feature_level: int = 1
    nodes: tuple[NodeImage, ...] = ()
    topics: tuple[TopicImage, ...] = ()
    deleted_topic_ids: tuple[str, ...] = ()
    removed_node_ids: tuple[NodeId, ...] = ()
    """In a change: the nodes that it removed. In a snapshot: all removed nodes that have not registered again (C85)."""
    # Any other process ignores the image: it would act in epochs that ended before it started (TR15).
    to_node_epoch: NodeEpoch | None = None
    position: PositionProof | None = None
    """The proof that this position was sent to that process; None for a client (M72)."""
    reigns: tuple[Reign, ...] = ()
    """The reigns that led to this state, the latest last; a change names only the latest (C34)."""
    acls: tuple[Rule, ...] | None = None
    """All access rules; None in a change that leaves them as they are, and in a snapshot without rules (C105)."""
    quotas: tuple[Quota, ...] | None = None
    """All client quotas; None as for ``acls`` (C102)."""
    registered: PositionProof | None = None
    """Only in a stored image: the position in the answer to the node's registration, until a newer position arrives."""

    def for_clients(self) -> MetadataImage:
        """A copy without what only nodes may see."""
        return self if self.acls is None and self.quotas is None else replace(self, acls=None, quotas=None)

    @property
    def reign(self) -> Reign | None:
        """The reign that produced this state; None from a release without reign ids."""
        return self.reigns[-1] if self.reigns else None

    @property
    def is_about_topics(self) -> bool:
        """Whether a node stores this image on disk: it has topics, or removes nodes."""
        return bool(self.topics or self.deleted_topic_ids or self.removed_node_ids)

    @property
    def place(self) -> Position | None:
        """The position of this state in the cluster's history; None from a release without reign ids."""
        return Position(self.reigns[-1].reign_id, self.metadata_offset) if self.reigns else None


class EpochsSeen(NamedTuple):
    """The highest epochs a node knows of one partition; the controller must never be behind (TR18)."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


class ReplicaLogInfo(NamedTuple):
    """What one replica's log holds, reported while its partition waits for an election (M65; in Kafka the controller
    asks for it by KIP-966's GetReplicaLogInfo). Everything below ``leo`` is durable on the reporter."""

    tp: TopicPartition
    # Of another leader epoch a report says nothing: the log may have been cut or have grown since.
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    leo: Offset
    epochs: tuple[EpochEntry, ...] = ()
    reconciled_epoch: LeaderEpoch | None = None
    """The last leader epoch in which this log led or passed the divergence check; None if unknown."""
    high_watermark: Offset = Offset(0)
    # Where the replica refused to cut, below its own HW: its leader lacks committed records (M69).
    refused_cut_to: Offset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReplicaLogs:
    """A node reports some of its logs to the controller."""

    cluster_id: str
    node_id: NodeId
    node_epoch: NodeEpoch
    logs: tuple[ReplicaLogInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLogsReported:
    """The controller's answer to a report; ``refusal`` refuses it as a whole."""

    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterNode:
    """A process asks for a node epoch; sent after recovery, never before (M56)."""

    node_id: NodeId
    cluster_id: str | None
    # A registration that comes again, because its answer was lost, is recognized by it and gets the same answer.
    incarnation_id: str
    directory_id: str
    roles: frozenset[Role]
    rules: Rules
    client_endpoint: Endpoint
    internal_endpoint: Endpoint
    rack: str | None = None
    feature_min: int = types.LOWEST
    feature_max: int = types.HIGHEST
    unclean: bool = False
    # With the next field: a store that knows less than what a node has seen went back in time (TR18).
    controller_epoch_seen: int | None = None
    epochs_seen: tuple[EpochsSeen, ...] = ()
    known_incarnations: tuple[str, ...] = ()
    """Incarnations that this directory remembers, including the current one; empty from an older release, which keeps
    no such list (M67)."""
    position: PositionProof | None = None
    """The newest position that this directory can prove it was sent (M72)."""
    topics_position: Position | None = None
    """The position of the last topic change that this directory holds (C39)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistered:
    """The controller's answer to a registration."""

    refusal: Refusal | None = None
    node_epoch: NodeEpoch | None = None
    controller_epoch: int = 0
    cluster_id: str = ""
    feature_level: int = 0
    # The position of the registration, or a later one: it shows later if the store lost the registration (C34).
    position: PositionProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A node reports that it is alive, and what it wants."""

    cluster_id: str
    node_id: NodeId
    node_epoch: NodeEpoch
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    clock_offset_us: int | None = None
    """The node's time of day minus the controller's, measured on the last answer; only for the export."""
    clock_err_us: int | None = None
    position: PositionProof | None = None
    """The newest position that this process can prove it was sent (M72)."""
    topics_position: Position | None = None
    """The position of the last topic change that this process was sent (C39)."""
    disk_nearly_full: bool = False
    """Less than ``low_space_bytes`` are free, so it rejects appends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The controller's view of the node. A node stays fenced until an answer says otherwise."""

    refusal: Refusal | None = None
    controller_epoch: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    session_timeout_ms: int = 9000
    heartbeat_interval_ms: int = 2000
    # Set by the service that answers, because the core has no time of day.
    controller_wall_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica as its leader sees it. Ages are in ms; None means never in this leader epoch."""

    node_id: NodeId
    node_epoch: NodeEpoch | None
    remote_leo: Offset | None
    last_fetch_age_ms: int | None
    last_caught_up_age_ms: int | None
    in_isr: bool
    is_observer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as its leader sees it (DescribePartitions)."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    epoch_start_offset: Offset
    leo: Offset
    durable_leo: Offset
    high_watermark: Offset
    log_start_offset: Offset
    isr: tuple[NodeId, ...]
    maximal_isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    min_isr: int
    replicas: tuple[ReplicaView, ...] = field(default_factory=tuple)
    last_stable_offset: Offset
    oldest_open_producer_id: int | None = None
    """The producer whose open transaction has the lowest first offset; None if none is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStateView:
    """One replica as it sees itself (DescribeReplicas)."""

    tp: TopicPartition
    leo: Offset
    durable_leo: Offset
    high_watermark: Offset
    log_start_offset: Offset
    fetch_state: str
    """`leading`, `truncating`, `fetching`, `waiting` (no leader) or `failed`."""
    reason: str
    """Why the state is `failed`; otherwise empty."""
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    epochs: tuple[tuple[LeaderEpoch, Offset], ...]
    last_stable_offset: Offset
