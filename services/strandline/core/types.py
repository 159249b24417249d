"""The terms of the field as types: offsets, epochs, ids, and values that several packages share.

Invariant: every offset is exclusive ("LEO" and "HW" name the next offset), and absence is ``None``, never -1. Kafka's
-1 exists only on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, NewType, Protocol, TypeVar, dataclass_transform

NEVER_MS = 1 << 62
"""A time of a monotonic clock that never comes."""

Offset = NewType("Offset", int)
"""Position of a record in a partition's log, counted from 0; as a bound it is exclusive."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of a leader's term in one partition; only ever increases."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Version of a partition's state at the controller; the compare-and-set key of AlterPartition."""

NodeId = NewType("NodeId", int)
"""Identity of a data node, >= 0, kept over restarts."""

NodeEpoch = NewType("NodeEpoch", int)
"""Number of one incarnation (process life) of a node, given at registration (Kafka: broker epoch)."""


class Acks(IntEnum):
    """Which replicas a producer waits for (M46)."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Role(StrEnum):
    """A role that a node registered for; ``{FOLLOWER}`` alone is an observer (M60)."""

    LEADER = "leader"
    FOLLOWER = "follower"


class Durability(StrEnum):
    """What an acknowledgement means: fsynced on every in-sync replica, or in their page caches."""

    FSYNC = "fsync"
    PAGE_CACHE = "page-cache"


class Truncation(StrEnum):
    """How a returning follower finds where to cut its log (`replication`, table of settings)."""

    LEADER_EPOCH = "leader-epoch"
    FETCH = "fetch"
    KIP_279 = "kip-279"
    KIP_101 = "kip-101"
    HIGH_WATERMARK = "high-watermark"


class FetchHw(StrEnum):
    """Which HW an immediate answer carries: from before this request's update, or from after it (D1)."""

    SNAPSHOT = "snapshot"
    UPDATED = "updated"


class IsrJoin(StrEnum):
    """When a follower may join the ISR (M44, T42)."""

    CAUGHT_UP = "caught-up"
    HW = "hw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The four cluster-wide settings in which versions of Kafka differ. The controller stores them."""

    truncation: Truncation = Truncation.LEADER_EPOCH
    fetch_hw: FetchHw = FetchHw.SNAPSHOT
    isr_join: IsrJoin = IsrJoin.CAUGHT_UP
    durability: Durability = Durability.FSYNC

    @property
    def loss_warning(self) -> str | None:
        """The cost of ``durability=page-cache``, for logs and screens; None under ``fsync``."""
        if self.durability is Durability.FSYNC:
            return None
        return (
            "durability=page-cache acknowledges records before any disk holds them: a power loss of as many machines "
            "as acknowledged a record loses it; durability=fsync does not"
        )


class TopicPartition(NamedTuple):
    """One log's key: the topic's id (a UUID in hex with dashes) and the partition's index."""

    # Not the name: a topic that is deleted and made again under its old name is another log (M63).
    topic_id: str
    partition: int


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first record it wrote (M33)."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """An epoch and the exclusive end of what it wrote: the answer to OffsetForLeaderEpoch (M37)."""

    epoch: LeaderEpoch
    end_offset: Offset


class ProducerStamp(NamedTuple):
    """Which idempotent producer made a batch, and the sequence number of its first record (KIP-98)."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class Payload(Protocol):
    """The bytes of whole batches, opaque to the core. In files they are bytes; a simulation may use another form."""

    def __len__(self) -> int:
        """How many bytes."""
        ...


class Marker(NamedTuple):
    """The content of a transaction's control batch; its producer stamp identifies the transaction (X11)."""

    committed: bool
    coordinator_epoch: int
    """Leader epoch of the coordinator that decided."""


TRANSACTIONAL_BIT = 0x10
"""Attribute of a batch that is part of a transaction."""
CONTROL_BIT = 0x20
"""Attribute of a batch that holds no user's record."""
OF_TRANSACTIONS = TRANSACTIONAL_BIT | CONTROL_BIT


class BatchHeader(NamedTuple):
    """A record batch without its records, as `records.batch.parse_header` reads it; ``size_bytes`` counts the whole
    batch. A batch without a ``producer`` is not idempotent. The core decides by the fields up to ``attributes``, and by
    ``marker``; the others are for checks of the bytes."""

    # Offset and epoch are what a leader stamps outside the CRC: before that they are the producer's own (0) and absent.
    base_offset: Offset
    leader_epoch: LeaderEpoch | None
    record_count: int
    size_bytes: int
    max_timestamp_ms: int
    producer: ProducerStamp | None = None
    attributes: int = 0
    """Bits of codec, timestamp type, transaction and control."""
    last_offset_delta: int = 0
    base_timestamp_ms: int = -1
    crc: int = 0
    magic: int = 2
    marker: Marker | None = None
    """The content of a control batch's record; None for other batches, and where only the header was read."""

    @property
    def stamped_epoch(self) -> LeaderEpoch:
        """The epoch of the leader that appended it; only for batches from a log."""
        assert self.leader_epoch is not None, f"the batch at {self.base_offset} was not appended by a leader"
        return self.leader_epoch

    @property
    def next_offset(self) -> Offset:
        """Exclusive end of this batch. Batches are dense: one offset per record."""
        return Offset(self.base_offset + self.record_count)


class ProducerBatch(NamedTuple):
    """One remembered batch of an idempotent producer: its sequences and where they lie (M61)."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    """Inclusive, as in Kafka's snapshot files."""
    timestamp_ms: int


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended yet."""

    producer_id: int
    first_offset: Offset


class EndedTransaction(NamedTuple):
    """A transaction whose marker is not known to be below the high watermark, so that it may be lost again."""

    first_offset: Offset
    marker_offset: Offset


class AbortedTransaction(NamedTuple):
    """A transaction whose records must not be returned to read-committed consumers (Kafka: AbortedTxn)."""

    producer_id: int
    first_offset: Offset
    marker_offset: Offset
    """Its last offset, inclusive: where its marker lies."""
    last_stable_offset: Offset
    """Below it every transaction was decided when this one ended."""


class LastMarker(NamedTuple):
    """The newest marker of a producer: it fences the epochs below its own, and coordinators below its own."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    offset: Offset
    timestamp_ms: int


class TransactionState(NamedTuple):
    """The state of the transactions in a log, up to some offset (X12)."""

    open: tuple[OpenTransaction, ...] = ()
    """Open transactions, by first offset."""
    ended: tuple[EndedTransaction, ...] = ()
    """By marker."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """By marker."""
    markers: tuple[LastMarker, ...] = ()


NO_TRANSACTIONS = TransactionState()


class ActiveProducer(NamedTuple):
    """A log's state of one producer (DescribeProducers)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    """None if it sent nothing in this epoch."""
    last_timestamp_ms: int
    coordinator_epoch: int | None
    """The coordinator epoch of its last marker; None without one."""
    open_since: Offset | None
    """First offset of its open transaction; None without one."""


# ---- values
# Value types that are cheap to build, for events and effects made for every record or every fetch.
#
# Invariant: a value never changes once it is made. The type checker refuses it, as for a frozen dataclass; nothing
# guards it at run time, because such a guard makes each of them four to seven times as expensive to build.

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a dataclass with slots, equality and a hash, whose fields are set once, by its constructor."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


# ---- feature_levels
# The feature levels that this release speaks: numbers for what processes of two releases must agree on.
#
# Invariant: a level is used only while every live node and the controller speak it; a release that raises HIGHEST
# still speaks the level before, or it cannot join a cluster that is being upgraded node by node.

LOWEST = 1
HIGHEST = 7

REPORTED_ELECTIONS = 2
"""From this level on every live node reports its logs on request, so an election may wait for reports (M65)."""

GROUPS = 3
"""From this level on every live node can coordinate groups, and repeats read barriers (G10)."""

TRANSACTIONS = 4
"""From this level on every live node can coordinate transactions, and leaders ask their coordinators (X9)."""

REASSIGNMENTS = 5
"""From this level on every live node knows replicas that are added and removed, and nodes that are drained (C70)."""

ACLS = 6
"""From this level on every live node is sent the rules of who may do what, and keeps to them (C105)."""

QUOTAS = 7
"""From this level on every live node is sent the quotas of clients, and keeps to them (C102)."""


def shared(spoken: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The lowest and the highest level that this release shares with processes; ``spoken`` is theirs of each."""
    both = [(LOWEST, HIGHEST), *spoken]
    return max(low for low, _ in both), min(high for _, high in both)
