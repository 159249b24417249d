"""What the runtime needs from packages that it must not import: core, storage, peers, controller.

Invariant: the runtime reaches files and the network only through these protocols, so that a test with fakes runs the
same code that a node runs with a disk.
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
        """Process an event; return the effects to perform, in order."""
        ...

    @property
    def purgatory_full(self) -> bool:
        """Whether streams must not be read further."""
        ...


class Core(Steps, Protocol):
    """A data node's core: `core.log.node.NodeCore`, or a script in a test."""

    @property
    def due_ms(self) -> int:
        """The monotonic time at which a tick is next needed if nothing else happens."""
        ...

    def step(self, event: Event) -> Sequence[effects.Effect]:
        """Process an event without input or output; return the effects to perform, in order."""
        ...

    def coordinator_partition(self, topic: str, key: str) -> TopicPartition | None:
        """The partition of an internal topic that coordinates ``key``; None while the topic does not exist."""
        ...

    def coordinated(self, topic: str) -> Sequence[TopicPartition]:
        """The partitions of an internal topic whose coordinator this node is."""
        ...

    def describe_partition(self, tp: TopicPartition, now_ms: int) -> messages.PartitionView | None:
        """A partition's state as its leader sees it; None if this node does not lead it."""
        ...

    def describe_replica(self, tp: TopicPartition) -> messages.ReplicaStateView | None:
        """A replica's own state; None if this node does not hold it."""
        ...

    def describe_producers(self, tp: TopicPartition) -> tuple[ActiveProducer, ...] | None:
        """The producer state of a led log; None if this node does not lead it."""
        ...


class Opened(NamedTuple):
    """The state found when a log was opened; all of it is durable."""

    log_start_offset: Offset
    leo: Offset
    high_watermark: Offset
    epochs: tuple[EpochEntry, ...]
    producers: tuple[ProducerBatch, ...]
    reconciled_epoch: LeaderEpoch | None = None
    stopped_cleanly: bool = False
    transactions: TransactionState = NO_TRANSACTIONS


class Cut(NamedTuple):
    """What is left of a log after truncation."""

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
        """The log end offset that the commit covers."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether a sync is needed at all."""
        ...

    def sync(self) -> None:
        """Make the log durable up to `leo_at_issue`, or raise."""
        ...


class Threads(Protocol):
    """Threads for work that would block the event loop."""

    def run(self, work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        """Do ``work`` in a thread, and then call ``ended`` on the event loop, with the error or None."""
        ...

    def close(self) -> None:
        """Start no more work, not even what is queued; work under way is not interrupted."""
        ...


class Logs(Protocol):
    """All logs of one data directory, by partition. Every method is complete when it returns, except the ``save_...``
    methods: their data is durable when `sync_saves` returns, all of it or nothing."""

    saves_wait: bool
    """Whether something was saved since the last `sync_saves`."""

    def sync_saves(self) -> None:
        """Make all saved data durable."""
        ...

    def open(self, tp: TopicPartition, topic: str) -> Opened:
        """Open a log, or create it."""
        ...

    def delete(self, tp: TopicPartition) -> None:
        """Delete a log permanently."""
        ...

    def set_aside(self, tp: TopicPartition) -> None:
        """Stop using a log for good, but keep its files for a while (C78)."""
        ...

    def append(self, effect: effects.Append) -> bool:
        """Write a batch as leader; return whether it began a new segment."""
        ...

    def append_replicated(self, effect: effects.AppendReplicated) -> bool:
        """Write the leader's bytes; return whether they began a new segment."""
        ...

    def truncate(self, tp: TopicPartition, offset: Offset, *, durable: bool) -> Cut:
        """Truncate a log; return its LEO and the producer state of what is left."""
        ...

    def restart(
        self,
        tp: TopicPartition,
        offset: Offset,
        producers: Sequence[ProducerBatch],
        transactions: TransactionState = NO_TRANSACTIONS,
    ) -> None:
        """Drop all records and begin at ``offset``, with the producer state below it; durable together."""
        ...

    def advance_log_start(self, effect: effects.AdvanceLogStart) -> None:
        """Advance a log's start offset."""
        ...

    def expired(self, tp: TopicPartition, high_watermark: Offset) -> Offset | None:
        """The offset to which retention can move the log start; None if it stays."""
        ...

    def save_epochs(self, tp: TopicPartition, entries: Sequence[EpochEntry]) -> None:
        """Save the epochs."""
        ...

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset], *, durable: bool) -> None:
        """Save HWs."""
        ...

    def save_reconciled_epochs(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> None:
        """Save the leader epochs with which these logs have been reconciled."""
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
        """Issue a commit that covers everything appended so far."""
        ...

    def note_durable(self, tp: TopicPartition, offset: Offset) -> None:
        """Note a completed commit: recovery may trust the log up to ``offset``."""
        ...

    def read(self, tp: TopicPartition, start: Offset, end: Offset, max_bytes: int, *, at_least_one: bool) -> Chunk:
        """Whole batches from the one that holds ``start``, none that ends above ``end``."""
        ...

    def look_up(self, answer: messages.OffsetAnswer) -> Callable[[], messages.OffsetAnswer]:
        """Find the bytes in which to look for the time in ``answer.lookup``; return a function that finds the offset.

        That function touches no log, may take long, and may run in any thread.
        """
        ...


class Peers(Protocol):
    """The other data nodes. Each request ends in exactly one event, raised later, never inside the call."""

    def send_fetch(self, effect: effects.SendFetch) -> None:
        """Send a fetch on the leader's stream."""
        ...

    def send_forget(self, effect: effects.SendForget) -> None:
        """End parked fetches on the leader's stream; no answer comes."""
        ...

    def send_epoch_ends(self, effect: effects.SendEpochEnds) -> None:
        """Ask for the end offsets of epochs."""
        ...

    def send_list_offsets(self, effect: effects.SendListOffsets) -> None:
        """Ask for the leader's first or last offset."""
        ...

    def send_producer_snapshot(self, effect: effects.SendProducerSnapshot) -> None:
        """Ask for the producer state below the leader's log start."""
        ...


class FetchReply(NamedTuple):
    """One answer on a FetchStream: the partitions, or why the whole message was refused."""

    correlation_id: int
    partitions: tuple[messages.FetchedPartition, ...]
    refusal: Refusal | None = None
    is_another: bool = False
    """Whether another process answered than the node that was dialled."""


class FetchConversation(Protocol):
    """An open FetchStream."""

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
    """The leaders, for a follower."""

    def open_stream(self, leader: NodeId) -> FetchConversation:
        """Open a FetchStream.

        Raises:
            Refused: the leader cannot be dialled.
        """
        ...

    async def epoch_ends(self, effect: effects.SendEpochEnds) -> tuple[messages.EpochEndAnswer, ...]:
        """Ask for the end offsets of epochs.

        Raises:
            Refused: by the leader, or because it does not answer.
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
        """Resolve the leader's address again when it is next dialled."""
        ...

    def drop_stale(self) -> Coroutine[Any, Any, None] | None:
        """A coroutine that closes connections to addresses that no node has any more; None if there are none."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Controller(Protocol):
    """The controller, at the first bootstrap address that answers.

    Every method raises `Refused`; after NETWORK_EXCEPTION and REQUEST_TIMED_OUT the outcome is unknown.
    """

    async def register(self, request: messages.RegisterNode) -> messages.NodeRegistered:
        """Register this node, which gives it a node epoch."""
        ...

    async def heartbeat(self, request: messages.Heartbeat, deadline_ms: int) -> messages.HeartbeatAnswer:
        """Send a heartbeat."""
        ...

    def watch(
        self, cluster_id: str, node_id: NodeId, node_epoch: NodeEpoch, position: messages.PositionProof | None
    ) -> AsyncGenerator[messages.MetadataImage | None, None]:
        """Yield metadata as it changes, a snapshot first; None is only a sign of life of the controller.

        The controller checks ``position``, the newest that this node received, before it sends anything (C36).
        """
        ...

    async def alter_partition(self, request: messages.AlterPartitionRequest) -> messages.AlterPartitionAnswer:
        """Propose ISRs."""
        ...

    async def report_logs(self, request: messages.ReportReplicaLogs) -> messages.ReplicaLogsReported:
        """Report the state of this node's logs."""
        ...


class Backoff(Protocol):
    """Waits between tries: doubling, jittered, reset by success."""

    def next_s(self) -> float:
        """The next wait in seconds."""
        ...

    def reset(self) -> None:
        """Start again with the shortest wait, after a success."""
        ...


class Transactions(Protocol):
    """Questions to other nodes about transactions; each ends in its event, which may be returned within the step."""

    def send_add_partitions(self, effect: effects.SendAddPartitions) -> Event | None:
        """Ask the coordinator of a transaction."""
        ...

    def send_txn_markers(self, effect: effects.SendTxnMarkers) -> Event | None:
        """Ask the leaders of the partitions to write markers."""
        ...


class TransactionPlaces(Protocol):
    """The nodes to ask about transactions, from the newest metadata of this node."""

    def coordinator_of(self, transactional_id: str) -> NodeId | Refusal:
        """The node that coordinates a transactional id, or why none can be asked now."""
        ...

    def leader_of(self, tp: TopicPartition) -> NodeId | Refusal:
        """The node that leads a partition, or why none can be asked now."""
        ...


class TransactionPeers(Protocol):
    """Sends questions about transactions to nodes, this one included."""

    async def add_partitions(self, node: NodeId, questions: Sequence[AddPartitions]) -> Sequence[Refusal | None]:
        """Ask the coordinators on one node, each transactional id once; one answer for each question, in order.

        Raises:
            Refused: the node refuses the request as a whole, or does not answer.
        """
        ...

    async def write_markers(self, node: NodeId, questions: Sequence[MarkerQuestion]) -> Sequence[Refusal | None]:
        """Ask the leaders on one node to write markers; otherwise as `add_partitions`."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Reporter(Protocol):
    """Takes state events; never blocks, may drop events."""

    def emit(self, effect: effects.Emit) -> None:
        """Take one event."""
        ...


class Log(Protocol):
    """A process's log; each line has an event and named fields."""

    def info(self, event: str, **fields: Any) -> object:
        """Log something that an operator may want to read later."""
        ...

    def warning(self, event: str, **fields: Any) -> object:
        """Log a problem that may pass without action."""
        ...

    def error(self, event: str, **fields: Any) -> object:
        """Log a problem that needs an operator."""
        ...
