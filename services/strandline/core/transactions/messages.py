"""Requests to the coordinator of one transactional id, and its answers: frozen values, independent of the wire.

The machine of transactional ids answers these requests with these answers, or with a `Refusal`. Names are Kafka's;
topics are given as ids, which the service looked up; absence is ``None``; times are in ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.core.errors import Refusal
from strandline.core.types import LeaderEpoch, TopicPartition


class ProducerIdentity(NamedTuple):
    """A producer id with an epoch: who may write, and from which transaction on."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A transactional producer wants its identity, and every process that had it before is to be fenced (X4)."""

    transactional_id: str
    timeout_ms: int | None = None
    """The time-out of each of its transactions; None for the default."""
    given: ProducerIdentity | None = None
    """The identity that the sender has and asks to continue; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdGiven:
    """Answer to `InitProducerId`."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions to add to one transaction; with ``verify_only`` they are only looked up (X9)."""

    transactional_id: str
    identity: ProducerIdentity
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded:
    """Answer to `AddPartitions`: all of them are part of the open transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn:
    """Ends a transaction (X6)."""

    transactional_id: str
    identity: ProducerIdentity
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnEnded:
    """Answer to `EndTxn`: the transaction is decided; ``identity`` is for the next one."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransaction:
    """Asks for one transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescribed:
    """Answer to `DescribeTransaction`."""

    transactional_id: str
    state: str
    identity: ProducerIdentity
    timeout_ms: int
    start_ms: int | None
    """When the transaction began, since the Unix epoch; None while none is open or being ended."""
    partitions: tuple[TopicPartition, ...]
    """Those of the transaction that have no marker yet, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """Lists transactional ids: all filters must match, each by any of its values; an empty filter matches all."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int | None = None
    """Only transactions that have been open for longer; None for all ids, including those without a transaction."""


class ListedTransaction(NamedTuple):
    """One transactional id."""

    transactional_id: str
    producer_id: int
    state: str
    start_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsListed:
    """Answer to `ListTransactions`: those of one coordinator partition, by id."""

    transactions: tuple[ListedTransaction, ...]


class TxnMarker(NamedTuple):
    """The decision of one transaction, for one partition that takes part in it."""

    transactional_id: str
    identity: ProducerIdentity
    """The epoch is the one after the transaction's."""
    committed: bool
    tp: TopicPartition


class TxnMarkerAnswer(NamedTuple):
    """The result of a marker; without a refusal it is in the partition's log and committed."""

    marker: TxnMarker
    refusal: Refusal | None = None


class MarkerQuestion(NamedTuple):
    """A marker to write, and the coordinator that gets the result."""

    coordinator: TopicPartition
    leader_epoch: LeaderEpoch
    """The coordinator epoch."""
    marker: TxnMarker
