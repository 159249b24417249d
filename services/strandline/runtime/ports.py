"""What the runtime needs from the packages it must not import: the core's shape, storage, peers, controller.

Invariant: the runtime sees files and network only through these protocols, so that a test performs against
fakes exactly what a node performs against a disk.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from strandline.core import messages
from strandline.core.errors import Refusal
from strandline.core.log import effects
from strandline.core.log.events import Event
from strandline.core.transactions.messages import AddPartitions, MarkerQuestion
from strandline.core.types import (
    NO_TRANSACTIONS,
    ActiveProducer,
    EpochEntry,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    Payload,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)


class Steps(Protocol):
    """Any core, as its driver sees it."""

    def step(self, event: Any) -> Sequence[Any]:
        """Decide; what it wants done comes back in order."""
        ...

    @property
    def purgatory_full(self) -> bool:
        """Whether streams must not be read further."""
        ...


class Core(Steps, Protocol):
    """A data node's core: `core.node.NodeCore`, or a script in a test."""

    @property
    def due_ms(self) -> int:
        """When a tick next has something to do if nothing else happens, by the monotonic clock."""
        ...

    def step(self, event: Event) -> Sequence[effects.Effect]:
        """Bookkeeping only; what it wants done comes back."""
        ...

    def coordinator_partition(self, topic: str, key: str) -> TopicPartition | None:
        """Which partition of an internal topic coordinates ``key``; None while there is no such topic."""
        ...

    def coordinated(self, topic: str) -> Sequence[TopicPartition]:
        """The partitions of an internal topic whose coordinator this node is."""
        ...

    def describe_partition(self, tp: TopicPartition, now_ms: int) -> messages.PartitionView | None:
        """A led partition as this node sees it."""
        ...

    def describe_replica(self, tp: TopicPartition) -> messages.ReplicaStateView | None:
        """A replica as it sees itself."""
        ...

    def describe_producers(self, tp: TopicPartition) -> tuple[ActiveProducer, ...] | None:
        """What a led log remembers of producers; None if this node does not lead it."""
        ...


class Opened(NamedTuple):
    """What opening a log found; everything in it is durable."""

    log_start_offset: Offset
    leo: Offset
    high_watermark: Offset
    epochs: tuple[EpochEntry, ...]
    producers: tuple[ProducerBatch, ...]
    reconciled_epoch: LeaderEpoch | None = None
    stopped_cleanly: bool = False
    transactions: TransactionState = NO_TRANSACTIONS


class Cut(NamedTuple):
    """What is left of a log that was cut."""

    leo: Offset
    producers: tuple[ProducerBatch, ...]
    transactions: TransactionState = NO_TRANSACTIONS


class Chunk(NamedTuple):
    """Whole batches that were read, and the exclusive end of the last one."""

    payload: Payload
    end: Offset


class FlushToken(Protocol):
    """A commit that was issued; ``sync`` belongs to a worker thread."""

    @property
    def leo_at_issue(self) -> Offset:
        """What the commit covers."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether a sync is needed at all."""
        ...

    def sync(self) -> None:
        """Make it durable, or raise."""
        ...


class Threads(Protocol):
    """Where work is done that would block the event loop."""

    def run(self, work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        """Do ``work`` in a thread, and then call ``ended`` on the event loop, with the error if there was one."""
        ...

    def close(self) -> None:
        """Begin nothing more, also of what waits; what is under way ends by itself."""
        ...


class Logs(Protocol):
    """All logs of one data directory, by partition. Every method is done when it returns, but for what is saved: that
    is durable when `sync_saves` returns, all of it or nothing."""

    saves_wait: bool
    """Whether something was saved since `sync_saves` was called last."""

    def sync_saves(self) -> None:
        """Make everything durable that was saved."""
        ...

    def open(self, tp: TopicPartition, topic: str) -> Opened:
        """Open or make a log."""
        ...

    def delete(self, tp: TopicPartition) -> None:
        """Remove a log for good."""
        ...

    def set_aside(self, tp: TopicPartition) -> None:
        """Never use a log again, and keep it for a while only (C78)."""
        ...

    def append(self, effect: effects.Append) -> bool:
        """Write a batch as leader; returns whether it began a new segment."""
        ...

    def append_replicated(self, effect: effects.AppendReplicated) -> bool:
        """Write the leader's bytes; returns whether they began a new segment."""
        ...

    def truncate(self, tp: TopicPartition, offset: Offset, *, durable: bool) -> Cut:
        """Cut a log; returns its LEO and the producer state of what is left."""
        ...

    def restart(
        self,
        tp: TopicPartition,
        offset: Offset,
        producers: Sequence[ProducerBatch],
        transactions: TransactionState = NO_TRANSACTIONS,
    ) -> None:
        """Throw a log's records away and begin at ``offset``, with the producer state below it; durable together."""
        ...

    def advance_log_start(self, effect: effects.AdvanceLogStart) -> None:
        """Move a log's start up."""
        ...

    def expired(self, tp: TopicPartition, high_watermark: Offset) -> Offset | None:
        """Where retention allows the log start to move."""
        ...

    def save_epochs(self, tp: TopicPartition, entries: Sequence[EpochEntry]) -> None:
        """Save the epochs."""
        ...

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset], *, durable: bool) -> None:
        """Save HWs."""
        ...

    def save_reconciled_epochs(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> None:
        """Save with which leader epochs these logs agree."""
        ...

    def save_producers(
        self, tp: TopicPartition, offset: Offset, rows: Sequence[ProducerBatch], transactions: TransactionState
    ) -> None:
        """Write the producer state."""
        ...

    def save_metadata(self, image: messages.MetadataImage) -> None:
        """Save the newest metadata."""
        ...

    def issue_flush(self, tp: TopicPartition) -> FlushToken:
        """A commit over all that was appended."""
        ...

    def note_durable(self, tp: TopicPartition, offset: Offset) -> None:
        """A commit is complete: recovery may trust the log up to ``offset``."""
        ...

    def read(self, tp: TopicPartition, start: Offset, end: Offset, max_bytes: int, *, at_least_one: bool) -> Chunk:
        """Whole batches from the one that holds ``start``, none that ends above ``end``."""
        ...

    def look_up(self, answer: messages.OffsetAnswer) -> Callable[[], messages.OffsetAnswer]:
        """Read where the offset lies for the time that ``answer.lookup`` names; what is returned finds it there.

        The function touches no log, takes a while, and may run in any thread.
        """
        ...


class Peers(Protocol):
    """The other data nodes. Each request ends in exactly one event, raised later, never inside the call."""

    def send_fetch(self, effect: effects.SendFetch) -> None:
        """Put a fetch on the leader's stream."""
        ...

    def send_forget(self, effect: effects.SendForget) -> None:
        """End parked fetches on the leader's stream; no answer comes."""
        ...

    def send_epoch_ends(self, effect: effects.SendEpochEnds) -> None:
        """Ask where epochs ended."""
        ...

    def send_list_offsets(self, effect: effects.SendListOffsets) -> None:
        """Ask for the leader's first or last offset."""
        ...

    def send_producer_snapshot(self, effect: effects.SendProducerSnapshot) -> None:
        """Ask for the producer state below the leader's log start."""
        ...


class FetchReply(NamedTuple):
    """One answer on a FetchStream: partitions, or why the whole message was refused."""

    correlation_id: int
    partitions: tuple[messages.FetchedPartition, ...]
    refusal: Refusal | None = None
    is_another: bool = False
    """Whether the process that answers is not the node that was dialled."""


class FetchConversation(Protocol):
    """One FetchStream in progress."""

    async def write(self, message: effects.SendFetch | effects.SendForget) -> None:
        """Send a fetch, or the end of parked ones."""
        ...

    async def read(self) -> FetchReply | None:
        """The next answer; None when the leader ended the stream.

        Raises:
            Refused: the stream broke.
        """
        ...

    def cancel(self) -> None:
        """End the stream."""
        ...


class Leaders(Protocol):
    """How a follower reaches leaders."""

    def open_stream(self, leader: NodeId) -> FetchConversation:
        """Begin a FetchStream.

        Raises:
            Refused: the leader cannot be dialled.
        """
        ...

    async def epoch_ends(self, effect: effects.SendEpochEnds) -> tuple[messages.EpochEndAnswer, ...]:
        """Ask where epochs ended.

        Raises:
            Refused: the leader's refusal, or the one that reports its absence.
        """
        ...

    async def list_offsets(self, effect: effects.SendListOffsets) -> tuple[messages.OffsetAnswer, ...]:
        """Ask for the leader's first and last offset.

        Raises:
            Refused: as `epoch_ends`.
        """
        ...

    async def producer_snapshot(self, effect: effects.SendProducerSnapshot) -> messages.ProducerSnapshotAnswer:
        """Ask for the producer state below the leader's log start.

        Raises:
            Refused: as `epoch_ends`.
        """
        ...

    def renew(self, leader: NodeId) -> None:
        """Look the leader's address up again when it is next dialled."""
        ...

    def drop_stale(self) -> Coroutine[Any, Any, None] | None:
        """The work of closing connections to addresses that no node has any more; None if there is none."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Controller(Protocol):
    """The controller, at whichever bootstrap address answers.

    Every method raises `Refused`; NETWORK_EXCEPTION and REQUEST_TIMED_OUT mean that nothing is known.
    """

    async def register(self, request: messages.RegisterNode) -> messages.NodeRegistered:
        """Ask for a node epoch."""
        ...

    async def heartbeat(self, request: messages.Heartbeat, deadline_ms: int) -> messages.HeartbeatAnswer:
        """Say that this node lives."""
        ...

    def watch(
        self, cluster_id: str, node_id: NodeId, node_epoch: NodeEpoch, position: messages.PositionProof | None
    ) -> AsyncGenerator[messages.MetadataImage | None, None]:
        """Metadata as it changes, a snapshot first; None only says that the controller lives.

        ``position``, the newest that this node was sent, is checked before anything is sent to it (C36).
        """
        ...

    async def alter_partition(self, request: messages.AlterPartitionRequest) -> messages.AlterPartitionAnswer:
        """Propose ISRs."""
        ...

    async def report_logs(self, request: messages.ReportReplicaLogs) -> messages.ReplicaLogsReported:
        """Report what logs hold."""
        ...


class Backoff(Protocol):
    """Waits between tries: doubling, jittered, reset by success."""

    def next_s(self) -> float:
        """The next wait in seconds."""
        ...

    def reset(self) -> None:
        """Something worked."""
        ...


class Transactions(Protocol):
    """What a node asks of other nodes about transactions; every question ends in its event, also within the step."""

    def send_add_partitions(self, effect: effects.SendAddPartitions) -> Event | None:
        """Ask the coordinator of a transaction."""
        ...

    def send_txn_markers(self, effect: effects.SendTxnMarkers) -> Event | None:
        """Have markers written by the leaders of their partitions."""
        ...


class TransactionPlaces(Protocol):
    """Who is asked about transactions, from the newest metadata of this node."""

    def coordinator_of(self, transactional_id: str) -> NodeId | Refusal:
        """The node of the coordinator of a transactional id, or why none can be asked now."""
        ...

    def leader_of(self, tp: TopicPartition) -> NodeId | Refusal:
        """The node that leads a partition, likewise."""
        ...


class TransactionPeers(Protocol):
    """Nodes that are asked about transactions, this one included."""

    async def add_partitions(self, node: NodeId, questions: Sequence[AddPartitions]) -> Sequence[Refusal | None]:
        """Ask the coordinators on one node, each transactional id once; one answer for each question, in order.

        Raises:
            Refused: the request as a whole, or the node is away.
        """
        ...

    async def write_markers(self, node: NodeId, questions: Sequence[MarkerQuestion]) -> Sequence[Refusal | None]:
        """Have markers written by the leaders on one node; otherwise as `add_partitions`."""
        ...

    async def close(self) -> None:
        """End every connection."""
        ...


class Reporter(Protocol):
    """Where state events go; never blocks, may drop."""

    def emit(self, effect: effects.Emit) -> None:
        """Take one event."""
        ...


class Log(Protocol):
    """Where a process logs: an event, and what belongs to it by name."""

    def info(self, event: str, **fields: Any) -> object:
        """Something an operator may want to read later."""
        ...

    def warning(self, event: str, **fields: Any) -> object:
        """Something is wrong that may pass."""
        ...

    def error(self, event: str, **fields: Any) -> object:
        """Something is wrong that an operator must look at."""
        ...
