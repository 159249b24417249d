"""The interface between a coordinator shard and the state machine that it drives.

Invariant: `Machine.apply` is the only way in which state that a failover keeps is changed, live and at load alike (G3).
The shard calls `apply` for each record as soon as it was appended, so a machine sees its own decisions at once;
what leaves the node waits until they are committed (G5).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from strandline.core.errors import Refusal
from strandline.core.log.effects import Effect, Emit
from strandline.core.state_events import StateEvent
from strandline.core.types import BatchHeader, LeaderEpoch, TopicPartition, value

# ---- records
# What a coordinator's log holds: keys with a value, or with none, which deletes the key (G4).
#
# Invariant: keys and values are frozen, so that a record that was applied, and is held by the table, never changes.
# Each machine has key and value classes of its own (`core/groups/records.py`); `coordinator_record.proto` encodes them.


class Key(Hashable, Protocol):
    """What a record is of: a frozen dataclass that names the group or transactional id it belongs to."""


class Record(NamedTuple):
    """A key and its new value; ``value`` None deletes the key. Deleting a key that does not exist is no error (G4)."""

    key: Key
    value: object | None = None


Batch = tuple[Record, ...]
"""Records that are appended as one record batch: all of them are in the log, or none."""


class EncodedBatch(NamedTuple):
    """A batch as a log takes it, and how many bytes each of its records has, in their order."""

    header: BatchHeader
    payload: object
    sizes: tuple[int, ...]


class DecodedRecord(NamedTuple):
    """A record from a log, and its size in bytes."""

    record: Record
    size_bytes: int


class RecordCodec(Protocol):
    """Turns records into the bytes of a batch, and back. Pure; in the simulator it is the identity."""

    def encode(self, records: Batch, unix_ms: int) -> EncodedBatch:
        """One batch of ``records``, in order, each with the timestamp ``unix_ms``."""
        ...

    def decode(self, payload: object) -> tuple[DecodedRecord, ...]:
        """The records of the whole batches in ``payload``, in order. Raises `Refused` for bytes that nothing here
        writes."""
        ...


# ---- reports
# What the machine of a coordinator reports as state events, kept until the step that produced it is left.
#
# Invariant: a machine never reads its own reports, so no decision depends on them.


class Reports:
    """The reports of one shard; ``tp`` is the coordinator's own partition, ``leader_epoch`` its coordinator epoch."""

    def __init__(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        self.leader_epoch = leader_epoch
        self.tp = tp
        self._waiting: list[Effect] = []

    def add(self, event: StateEvent, place: TopicPartition | None = None) -> None:
        """Report ``event``; ``place`` is the partition it is about, None for the coordinator's own."""
        self._waiting.append(Emit(place or self.tp, event))

    def leave(self, out: list[Effect]) -> None:
        """Emit everything that was reported."""
        if self._waiting:
            out += self._waiting
            self._waiting.clear()


class TopicEntry(NamedTuple):
    """One topic of the cluster, as the newest metadata has it."""

    topic_id: str
    name: str
    racks: tuple[frozenset[str], ...]
    """Of each partition, the racks of its replicas; its length is the number of partitions."""
    internal: bool = False

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""
        return len(self.racks)


class TopicDirectory(Protocol):
    """All topics of the cluster, from the metadata that every data node holds."""

    @property
    def version(self) -> int:
        """Rises whenever a topic appears, goes, or gains partitions; equal versions mean equal topics."""
        ...

    def by_name(self, name: str) -> TopicEntry | None:
        """The topic that is called ``name`` now."""
        ...

    def by_id(self, topic_id: str) -> TopicEntry | None:
        """The topic with this id; None once it is deleted."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics, internal ones included."""
        ...


@value
class Context:
    """What a decision may depend on, besides the machine's own state and the request."""

    now_ms: int
    """Monotonic time of this process; sessions and rebalance time-outs run on it and do not survive a failover."""
    unix_ms: int
    """Wall clock, for what is written into records (commit times, retention)."""
    coordinator_epoch: LeaderEpoch
    """The leader epoch of this partition (G2)."""
    topics: TopicDirectory
    is_verified: bool = False
    """Whether the coordinator of the request's transaction has just said that this partition takes part in it (X9)."""


class VerifyTransaction(NamedTuple):
    """The transaction of which a coordinator must know that this partition takes part in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@value
class Decision:
    """The outcome of one request, or of a tick."""

    batches: tuple[Batch, ...] = ()
    """Appended and applied in order, each atomic. Almost always one; several only for what exceeds a batch (G4). One
    that is too large is refused if a caller waits, and otherwise split between two of its records."""
    answer: object | Refusal | None = None
    """For the caller: a value of the machine's own classes, or a refusal; None for a decision without a caller."""
    scope: str | None = None
    """The group or transactional id whose writes the answer waits for, and in whose order it leaves; every decision
    with records names it, or `writes`. None: the answer depends on all writes of this shard (a list of groups)."""
    writes: tuple[str, ...] | None = None
    """The groups or transactional ids whose answers depend on these records, where that is not ``scope`` alone; empty:
    only answers that depend on all writes."""
    verify: VerifyTransaction | None = None
    """The request is not decided: it is given to `Machine.decide` again, with `Context.is_verified`, when the
    transaction's coordinator has said that this partition takes part in it (X9). Comes with nothing but ``scope``."""
    postponed: bool = False
    """The request cannot be decided yet: it is given to `Machine.decide` again when a record of ``scope`` is written.
    ``answer`` is the refusal if none is for too long. Comes with nothing else."""
    barrier: bool = False
    """Whether the answer also waits for a read barrier that begins from now on (G10)."""
    taken: object | None = None
    """State outside of the log that changes with this decision (a session, a sequence): given to `Machine.taken`,
    unless the shard refuses the decision because it cannot write (G8)."""
    answered: object | None = None
    """Passed to `Machine.answered` when the answer is sent as decided, not when a refusal replaces it."""
    work: Callable[[], object] | None = None
    """A pure function that takes too long for the event loop: called in a worker, on arguments that do not
    change, and what it returns is given to `Machine.computed`."""
    committed: object | None = None
    """Passed to `Machine.committed` when the records of this decision are committed, to start what must not be visible
    elsewhere before. Dropped if the leadership is lost first."""
    effects: tuple[Effect, ...] = ()
    """Requests to other nodes; each answer is passed to `Machine.heard`."""


class Machine(Protocol):
    """A pure state machine on one coordinator partition."""

    def apply(self, record: Record) -> None:
        """Apply one record to the state. The state must not depend on the order of records with different keys, because
        a sweep rewrites keys in another order (G9)."""
        ...

    def decide(self, request: object, context: Context) -> Decision:
        """Decide a request. Changes nothing, because the shard may still refuse the decision."""
        ...

    def tick(self, context: Context) -> Sequence[Decision]:
        """Decide what is due, at most one decision for each scope, taken one after the other. Called only while
        the shard serves and can write."""
        ...

    def computed(self, result: object, context: Context) -> Decision:
        """What the result of a `Decision.work` leads to; nothing if the state has moved on since."""
        ...

    def committed(self, note: object, context: Context) -> Sequence[Effect]:
        """The records of a decision with this `Decision.committed` are committed; returns requests to other nodes."""
        ...

    def heard(self, answer: object, context: Context) -> Sequence[Decision]:
        """What an answer to one of `Decision.effects` leads to; nothing if the state has moved on since. What cannot
        be taken because the shard cannot write is decided again by `tick`."""
        ...

    def taken(self, note: object, now_ms: int) -> None:
        """A decision with this `Decision.taken` was taken."""
        ...

    def answered(self, note: object, now_ms: int) -> None:
        """The answer of a decision with this `Decision.answered` was sent."""
        ...

    def excuse(self, context: Context) -> None:
        """The shard begins to serve, or could not write for a while, which is no member's fault: every deadline that
        members must meet begins again from now (G8, M59)."""
        ...


MakeMachine = Callable[[Reports], Machine]
"""Creates the empty machine of one shard, which sends its reports to the given `Reports`."""
