"""Everything that can happen to a data node, in past tense. Each carries ``now_ms``, a monotonic clock.

Invariant: an asynchronous effect ends in exactly one event, success or a named failure, so nothing the
core waits for can be lost inside the process.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core import messages
from strandline.core.errors import Refusal
from strandline.core.transactions.messages import TxnMarkerAnswer
from strandline.core.types import (
    NO_TRANSACTIONS,
    Acks,
    EpochEntry,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    ProducerBatch,
    TopicPartition,
    TransactionState,
    value,
)


@value
class Ticked:
    """Time passed. Deadlines come due by this event and by no other."""

    now_ms: int
    unix_ms: int = 0
    """The wall clock at the same moment, for what coordinators write down; nothing of replication depends on it."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller gave this process its node epoch."""

    now_ms: int
    cluster_id: str
    node_epoch: NodeEpoch
    controller_epoch: int
    position: messages.PositionProof | None = None


@dataclass(frozen=True, slots=True)
class MetadataArrived:
    """A snapshot or a change from the controller this node watches."""

    now_ms: int
    image: messages.MetadataImage


@dataclass(frozen=True, slots=True)
class LogOpened:
    """A log is open and recovered: everything in it is durable (TR17)."""

    now_ms: int
    tp: TopicPartition
    log_start_offset: Offset
    leo: Offset
    high_watermark: Offset
    """The checkpointed one, 0 if there was none; the core clamps it."""
    epochs: tuple[EpochEntry, ...] = ()
    producers: tuple[ProducerBatch, ...] = ()
    reconciled_epoch: LeaderEpoch | None = None
    """The last leader epoch in which this log led or passed the divergence check; None if no file says (M66)."""
    stopped_cleanly: bool = False
    """Whether the high watermark was written when the last process stopped; else it may be of some time before."""
    transactions: TransactionState = NO_TRANSACTIONS


@value
class LogFlushed:
    """A commit that was issued when the log ended at ``issued_leo`` is complete (M55)."""

    now_ms: int
    tp: TopicPartition
    issued_leo: Offset


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """A truncation was performed; the producer state was rebuilt from what is left (M61, X13)."""

    now_ms: int
    tp: TopicPartition
    leo: Offset
    producers: tuple[ProducerBatch, ...]
    transactions: TransactionState = NO_TRANSACTIONS


@dataclass(frozen=True, slots=True)
class LogRolled:
    """An append began a new segment: a good moment to save the producer state."""

    now_ms: int
    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class RetentionFound:
    """Retention allows the log start to move to ``offset``."""

    now_ms: int
    tp: TopicPartition
    offset: Offset


@value
class ProduceArrived:
    """A client wants records appended. ``request_id`` is the driver's own and unique in the process."""

    now_ms: int
    request_id: int
    acks: Acks
    timeout_ms: int
    partitions: tuple[messages.ProducePartition, ...]
    size_bytes: int = 0
    """Memory that the caller's message uses while it waits, if that is more than the batches."""
    transactional_id: str | None = None
    """The transactional id of its transactional batches (X3)."""


@dataclass(frozen=True, slots=True)
class AddPartitionsAnswered:
    """The coordinator of a transaction has added the partition, or refused, or did not answer (X9)."""

    now_ms: int
    correlation_id: int
    refusal: Refusal | None = None


@value
class FetchArrived:
    """A replica or a consumer fetches. ``stream_id`` marks a fetch that came on a FetchStream: its partitions are
    answered one by one, and a partition that is named again replaces its parked fetch. ``at_follower`` marks a call of
    FollowerService, which is the caller's consent to read up to this replica's own HW (M1)."""

    now_ms: int
    request_id: int
    request: messages.FetchRequest
    stream_id: int | None = None
    at_follower: bool = False


@dataclass(frozen=True, slots=True)
class FetchForgotten:
    """A stream no longer wants these partitions; an empty tuple means the stream ended."""

    now_ms: int
    stream_id: int
    partitions: tuple[TopicPartition, ...] = ()


@value
class FetchServed:
    """What an answer to a replica really carried: per partition the exclusive end sent, and the bytes up to it."""

    now_ms: int
    replica: NodeId
    ends: tuple[tuple[TopicPartition, Offset, int], ...]


@dataclass(frozen=True, slots=True)
class CallGone:
    """The caller of a parked request went away; the answer is no longer needed."""

    now_ms: int
    request_id: int


@dataclass(frozen=True, slots=True)
class EpochEndsAsked:
    """OffsetForLeaderEpoch arrived."""

    now_ms: int
    request_id: int
    questions: tuple[messages.EpochEndQuestion, ...]
    replica: messages.ReplicaState | None = None


@dataclass(frozen=True, slots=True)
class OffsetsAsked:
    """ListOffsets arrived."""

    now_ms: int
    request_id: int
    questions: tuple[messages.OffsetQuestion, ...]
    replica: messages.ReplicaState | None = None


@dataclass(frozen=True, slots=True)
class ProducerSnapshotAsked:
    """FetchProducerSnapshot arrived."""

    now_ms: int
    request_id: int
    question: messages.ProducerSnapshotQuestion
    replica: messages.ReplicaState | None = None


@dataclass(frozen=True, slots=True)
class DeleteRecordsAsked:
    """DeleteRecords arrived; each partition is named once."""

    now_ms: int
    request_id: int
    timeout_ms: int
    partitions: tuple[messages.DeletePartition, ...]


@value
class CoordinatorAsked:
    """A request for the coordinator of one internal partition; ``request`` is of the classes of its machine."""

    now_ms: int
    request_id: int
    tp: TopicPartition
    timeout_ms: int
    request: object


@dataclass(frozen=True, slots=True)
class CoordinatorLogRead:
    """Whole batches were read for a coordinator that loads, from ``start`` up to ``end``, exclusive."""

    now_ms: int
    tp: TopicPartition
    leader_epoch: LeaderEpoch
    start: Offset
    end: Offset
    payload: object
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Computed:
    """A worker is done with what a coordinator wanted computed."""

    now_ms: int
    tp: TopicPartition
    leader_epoch: LeaderEpoch
    result: object


@dataclass(frozen=True, slots=True)
class TxnMarkersAnswered:
    """Leaders answered markers of the coordinator of ``tp``, or did not answer, which counts as a refusal (X8)."""

    now_ms: int
    tp: TopicPartition
    leader_epoch: LeaderEpoch
    answers: tuple[TxnMarkerAnswer, ...]


@value
class FetchAnswered:
    """The leader answered some or all partitions of a fetch."""

    now_ms: int
    leader: NodeId
    correlation_id: int
    partitions: tuple[messages.FetchedPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A fetch had no answer; nothing is known and nothing is cut (M39). ``correlation_id`` None: all of them."""

    now_ms: int
    leader: NodeId
    correlation_id: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class EpochEndsAnswered:
    """The leader answered OffsetForLeaderEpoch."""

    now_ms: int
    leader: NodeId
    correlation_id: int
    answers: tuple[messages.EpochEndAnswer, ...]


@dataclass(frozen=True, slots=True)
class EpochEndsFailed:
    """OffsetForLeaderEpoch had no answer; the follower asks again and cuts nothing (T28)."""

    now_ms: int
    leader: NodeId
    correlation_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class OffsetsAnswered:
    """The leader answered ListOffsets."""

    now_ms: int
    leader: NodeId
    correlation_id: int
    answers: tuple[messages.OffsetAnswer, ...]


@dataclass(frozen=True, slots=True)
class OffsetsFailed:
    """ListOffsets had no answer."""

    now_ms: int
    leader: NodeId
    correlation_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProducerSnapshotAnswered:
    """The leader answered FetchProducerSnapshot."""

    now_ms: int
    leader: NodeId
    correlation_id: int
    answer: messages.ProducerSnapshotAnswer


@dataclass(frozen=True, slots=True)
class ProducerSnapshotFailed:
    """FetchProducerSnapshot had no answer."""

    now_ms: int
    leader: NodeId
    correlation_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class AlterPartitionAnswered:
    """The controller answered the attempt ``request_sequence``."""

    now_ms: int
    request_sequence: int
    answer: messages.AlterPartitionAnswer


@dataclass(frozen=True, slots=True)
class AlterPartitionFailed:
    """The attempt had no answer; it may have been applied."""

    now_ms: int
    request_sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReplicaLogsAnswered:
    """The controller answered the report ``report_id``, or its outcome is unknown (then a refusal says so)."""

    now_ms: int
    report_id: int
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process is about to stop cleanly: save what makes the next start short."""

    now_ms: int


Event = (
    Ticked
    | Registered
    | MetadataArrived
    | LogOpened
    | LogFlushed
    | LogTruncated
    | LogRolled
    | RetentionFound
    | ProduceArrived
    | AddPartitionsAnswered
    | FetchArrived
    | FetchForgotten
    | FetchServed
    | CallGone
    | EpochEndsAsked
    | OffsetsAsked
    | ProducerSnapshotAsked
    | DeleteRecordsAsked
    | CoordinatorAsked
    | CoordinatorLogRead
    | Computed
    | TxnMarkersAnswered
    | FetchAnswered
    | FetchFailed
    | EpochEndsAnswered
    | EpochEndsFailed
    | OffsetsAnswered
    | OffsetsFailed
    | ProducerSnapshotAnswered
    | ProducerSnapshotFailed
    | AlterPartitionAnswered
    | AlterPartitionFailed
    | ReplicaLogsAnswered
    | StopRequested
)
