"""All effects of a data node's core, with the ordering contract.

The effects of one step are performed in list order, and the order is the contract: what must be on
disk comes before what may be answered. File effects (`OpenLog`, `Append`, `Truncate`, `SaveEpochs` ...) are
performed at once and in full; one that fails ends the process, so the core may count on them from the
moment it asked. `Flush` and the `Send...` effects are asynchronous: each ends in exactly one event.
Some performed effects answer with an event of their own (named below); it is stepped before any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from strandline.core import messages
from strandline.core.state_events import StateEvent
from strandline.core.transactions.messages import TxnMarker
from strandline.core.types import (
    NO_TRANSACTIONS,
    BatchHeader,
    EpochEntry,
    LeaderEpoch,
    NodeId,
    Offset,
    ProducerBatch,
    TopicPartition,
    TransactionState,
    value,
)


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Open or make the log. Answers with `LogOpened`."""

    tp: TopicPartition
    topic: str


@dataclass(frozen=True, slots=True)
class DeleteLog:
    """Remove a log for good: its topic was deleted."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class SetLogAside:
    """Never use a log again: its replica was moved to another node, so it is kept for a while only (C78)."""

    tp: TopicPartition


@value
class Append:
    """Write a batch as leader: stamp base offset and epoch (both outside the CRC), append."""

    tp: TopicPartition
    base_offset: Offset
    leader_epoch: LeaderEpoch
    header: BatchHeader
    payload: object


@value
class AppendReplicated:
    """Write the very bytes the leader sent; ``base_offset`` equals the LEO (M4)."""

    tp: TopicPartition
    base_offset: Offset
    batches: tuple[BatchHeader, ...]
    payload: object


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log to ``offset``; durable before the next append under ``fsync`` (M55). Answers with `LogTruncated`."""

    tp: TopicPartition
    offset: Offset
    durable: bool


@dataclass(frozen=True, slots=True)
class RestartLog:
    """Delete the log and start an empty one at ``offset``, the leader's higher log start (M30), with the producer state
    below it: durable together with the log's new start (C43)."""

    tp: TopicPartition
    offset: Offset
    producers: tuple[ProducerBatch, ...] = ()
    transactions: TransactionState = NO_TRANSACTIONS


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Move the log start up; whole segments below it may go (M10)."""

    tp: TopicPartition
    offset: Offset


@dataclass(frozen=True, slots=True)
class ApplyRetention:
    """Find how far size and time retention allow the log start to move, never above ``high_watermark``.
    Answers with `RetentionFound` if it may move."""

    tp: TopicPartition
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class SaveEpochs:
    """Write `leader-epoch-checkpoint`, durably (M36)."""

    tp: TopicPartition
    entries: tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True)
class SaveHighWatermarks:
    """Write `replication-offset-checkpoint`. ``durable`` means before the next effect (M41); else soon."""

    high_watermarks: Mapping[TopicPartition, Offset]
    durable: bool


@dataclass(frozen=True, slots=True)
class SaveReconciledEpochs:
    """Write `reconciled-epoch-checkpoint`, durably: these logs agree with the leaders of these epochs (M66)."""

    epochs: Mapping[TopicPartition, LeaderEpoch]


@dataclass(frozen=True, slots=True)
class SaveProducers:
    """Write the producer state as of ``offset`` (the LEO), so that recovery need not read far (M61)."""

    tp: TopicPartition
    offset: Offset
    rows: tuple[ProducerBatch, ...]
    transactions: TransactionState = NO_TRANSACTIONS


@dataclass(frozen=True, slots=True)
class NoteDurable:
    """Recovery may trust the log up to ``offset``: a commit covered it, and no cut since took it away (M55)."""

    tp: TopicPartition
    offset: Offset


@dataclass(frozen=True, slots=True)
class BelieveMetadata:
    """Apply an image's topic names, settings and endpoints, as the core does."""

    image: messages.MetadataImage


@dataclass(frozen=True, slots=True)
class IgnoreMetadata:
    """An image that was addressed to this process contradicts itself; none of it is applied."""

    reason: str


@dataclass(frozen=True, slots=True)
class SaveMetadata:
    """Keep the newest metadata durably: what this node has seen (TR18)."""

    image: messages.MetadataImage


@value
class Flush:
    """Make what was appended up to now durable. Ends in `LogFlushed`; at most one per log is under way."""

    tp: TopicPartition


@value
class SendFetch:
    """Ask ``leader``. Ends in one or more `FetchAnswered` (a stream may answer in parts) or `FetchFailed`."""

    leader: NodeId
    correlation_id: int
    request: messages.FetchRequest


@dataclass(frozen=True, slots=True)
class SendForget:
    """Inform ``leader`` that these partitions are no longer fetched from it (forgotten_topics_data)."""

    leader: NodeId
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SendEpochEnds:
    """OffsetForLeaderEpoch to ``leader``. Ends in `EpochEndsAnswered` or `EpochEndsFailed`."""

    leader: NodeId
    correlation_id: int
    questions: tuple[messages.EpochEndQuestion, ...]


@dataclass(frozen=True, slots=True)
class SendListOffsets:
    """ListOffsets to ``leader``. Ends in `OffsetsAnswered` or `OffsetsFailed`."""

    leader: NodeId
    correlation_id: int
    questions: tuple[messages.OffsetQuestion, ...]


@dataclass(frozen=True, slots=True)
class SendProducerSnapshot:
    """FetchProducerSnapshot to ``leader``. Ends in `ProducerSnapshotAnswered` or `ProducerSnapshotFailed`."""

    leader: NodeId
    correlation_id: int
    question: messages.ProducerSnapshotQuestion


@dataclass(frozen=True, slots=True)
class SendAddPartitions:
    """Ask the coordinator of ``transactional_id`` to add the partition to the transaction that this producer has open
    (X9). Ends in `AddPartitionsAnswered`."""

    correlation_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class SendTxnMarkers:
    """Have each marker written by the leader of its partition, for the coordinator whose partition is ``tp`` (X8). Each
    marker ends in exactly one answer; answers come in one or several `TxnMarkersAnswered`. A partition without a leader
    that this node knows is a refusal."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    """The coordinator epoch, which every marker carries."""
    markers: tuple[TxnMarker, ...]


@dataclass(frozen=True, slots=True)
class SendAlterPartition:
    """Propose ISRs to the controller. Ends in `AlterPartitionAnswered` or `AlterPartitionFailed`."""

    request: messages.AlterPartitionRequest


@dataclass(frozen=True, slots=True)
class SendReplicaLogs:
    """Report logs to the controller (M65). Ends in `ReplicaLogsAnswered`."""

    report_id: int
    request: messages.ReportReplicaLogs


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Reopen the metadata watch: the controller is not the incarnation that this node knew."""


@value
class AnswerProduce:
    """Complete a produce call."""

    request_id: int
    results: tuple[messages.ProduceResult, ...]


@value
class AnswerFetch:
    """Complete a fetch call, or part of a stream's fetch: read the ranges now, then send. For a replica's fetch the
    performer reports what it really sent with `FetchServed`. ``done``: no further answer follows under this
    ``request_id`` (a stream's fetch may be answered in parts, and is closed by an empty answer when its last partition
    was named again or forgotten)."""

    request_id: int
    results: tuple[messages.FetchResult, ...]
    max_bytes: int
    replica: NodeId | None
    done: bool = True


@dataclass(frozen=True, slots=True)
class AnswerEpochEnds:
    """Complete an OffsetForLeaderEpoch call."""

    request_id: int
    answers: tuple[messages.EpochEndAnswer, ...]


@dataclass(frozen=True, slots=True)
class AnswerOffsets:
    """Complete a ListOffsets call; answers with a ``lookup`` are looked up in the log now."""

    request_id: int
    answers: tuple[messages.OffsetAnswer, ...]


@dataclass(frozen=True, slots=True)
class ReadCoordinatorLog:
    """Read whole batches from ``start`` on, none that ends above ``end``, about ``max_bytes`` and at least one batch.
    Ends in `CoordinatorLogRead`, never within the same step: other partitions go on in between (G7)."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    start: Offset
    end: Offset
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Call ``work``, a pure function, in a worker: it would hold the event loop for too long. Ends in
    `Computed`."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    work: Callable[[], object]


@value
class AnswerCoordinator:
    """Complete a request to a coordinator: with a value of the classes of its machine, or with a refusal."""

    request_id: int
    answer: object


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """Complete a call of the method ``call`` whose answers need nothing but what the core says. A new method of
    LeaderService that reads no files for its answer uses this effect, so that performers need no change for it."""

    request_id: int
    call: str
    answers: tuple[messages.PartitionAnswer, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Export a replication decision as data."""

    tp: TopicPartition | None
    event: StateEvent


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop this process for good: it is fenced by a newer incarnation of itself."""

    reason: str


Effect = (
    OpenLog
    | DeleteLog
    | SetLogAside
    | Append
    | AppendReplicated
    | Truncate
    | RestartLog
    | AdvanceLogStart
    | ApplyRetention
    | SaveEpochs
    | SaveHighWatermarks
    | SaveReconciledEpochs
    | SaveProducers
    | NoteDurable
    | BelieveMetadata
    | IgnoreMetadata
    | SaveMetadata
    | Flush
    | SendFetch
    | SendForget
    | SendEpochEnds
    | SendListOffsets
    | SendProducerSnapshot
    | SendAddPartitions
    | SendTxnMarkers
    | SendAlterPartition
    | SendReplicaLogs
    | RefreshMetadata
    | AnswerProduce
    | AnswerFetch
    | AnswerEpochEnds
    | AnswerOffsets
    | AnswerCall
    | ReadCoordinatorLog
    | Compute
    | AnswerCoordinator
    | Emit
    | Halt
)
