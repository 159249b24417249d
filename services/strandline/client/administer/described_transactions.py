"""Transactional ids, their transactions, and the producers that logs remember, as an administrator sees them.

Invariant: partitions are named by their topic, as users name them; one of a topic that is gone keeps the topic's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.client.administer.described_groups import partitions_of
from strandline.client.records import TopicPartition
from strandline.rpc.convert.by_name import As, ByName
from strandline.v1 import leader_service_pb2 as leader_pb, transaction_service_pb2 as pb

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
"""How far a transaction can have come."""
UNDER_WAY = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""States in which partitions may have a transaction open."""


class ListedTransaction(NamedTuple):
    """One transactional id of the cluster."""

    transactional_id: str
    producer_id: int
    state: str
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort."""
    start_ms: int | None
    """When its transaction began, in ms since 1970; None if none is open."""


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """One transactional id with its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort."""
    timeout_ms: int
    """How long one of its transactions may take."""
    start_ms: int | None
    """When its transaction began, in ms since 1970; None if none is open."""
    partitions: tuple[TopicPartition, ...]
    """Those of the transaction that have no marker yet."""
    coordinator: int
    """The node that coordinates it."""


@dataclass(frozen=True, slots=True)
class PartitionProducer:
    """What the log of a partition remembers of one producer."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    """None: it has sent nothing in this epoch."""
    last_timestamp_ms: int
    """Of its last batch or marker, in ms since 1970."""
    coordinator_epoch: int | None
    """Of its last marker; None without one."""
    open_since_offset: int | None
    """First offset of the transaction that it has open here; None without one."""


_TRANSACTION = ByName(
    DescribedTransaction,
    pb.DescribedTransaction,
    state="transaction_state",
    timeout_ms="transaction_timeout_ms",
    start_ms="transaction_start_time_ms",
    partitions=As("topics", None, partitions_of),
    coordinator=None,
)
_LISTED = ByName(
    ListedTransaction, pb.ListedTransaction, state="transaction_state", start_ms="transaction_start_time_ms"
)
_PRODUCER = ByName(
    PartitionProducer,
    leader_pb.ActiveProducer,
    topic=None,
    partition=None,
    last_timestamp_ms="last_timestamp",
    open_since_offset="current_txn_start_offset",
)


def transaction_of(row: pb.DescribedTransaction, coordinator: int) -> DescribedTransaction:
    """One transactional id as it was answered."""
    return _TRANSACTION.read(row, coordinator=coordinator)


def listed_of(row: pb.ListedTransaction) -> ListedTransaction:
    """One transactional id of a list as it was answered."""
    return _LISTED.read(row)


def producer_of(topic: str, partition: int, row: leader_pb.ActiveProducer) -> PartitionProducer:
    """One producer as its partition's leader answered."""
    return _PRODUCER.read(row, topic=topic, partition=partition)
