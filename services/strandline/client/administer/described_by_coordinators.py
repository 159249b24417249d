"""Groups and transactional ids as their coordinators describe them, and as an administrator sees them.

Invariant: partitions are named by their topic, as users name them; one of a topic that is gone keeps the topic's id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from strandline.client.records import TopicPartition
from strandline.rpc.convert.by_name import As, ByName
from strandline.v1 import (
    group_service_pb2 as group_pb,
    leader_service_pb2 as leader_pb,
    partition_pb2,
    transaction_service_pb2 as txn_pb,
)


class ListedGroup(NamedTuple):
    """One group of the cluster."""

    group_id: str
    state: str
    """How far it has come: Empty, Assigning, Reconciling or Stable."""
    type: str
    """By which protocol its members work: Consumer."""


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """One member of a group."""

    member_id: str
    instance_id: str | None
    rack: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assignment: tuple[TopicPartition, ...]
    """What it reads."""
    target_assignment: tuple[TopicPartition, ...]
    """What it is to read."""
    revoking: tuple[TopicPartition, ...]
    """What it still holds and was asked to give up."""
    state: str
    """How far it has come with that."""
    last_heartbeat_age_ms: int | None
    """None: no heartbeat has come since this coordinator began."""
    last_commit_age_ms: int | None
    """None: no commit has come since this coordinator began."""
    session_timeout_ms: int
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group with its members."""

    group_id: str
    state: str
    """How far it has come: Empty, Assigning, Reconciling or Stable."""
    group_epoch: int
    assignment_epoch: int
    """The group epoch for which the targets were computed."""
    assignor: str
    coordinator: int
    """The node that coordinates it."""
    members: tuple[DescribedMember, ...]


def partitions_of(topics: Iterable[partition_pb2.TopicPartitions]) -> tuple[TopicPartition, ...]:
    """Partitions by the names of their topics."""
    return tuple(TopicPartition(topic.topic or topic.topic_id, index) for topic in topics for index in topic.partitions)


_PARTITIONS = partial(As, write=None, read=partitions_of)
_MEMBER = ByName(
    DescribedMember,
    group_pb.DescribedGroupMember,
    rack="rack_id",
    topics="subscribed_topic_names",
    pattern="subscribed_topic_regex",
    assignment=_PARTITIONS("assignment"),
    target_assignment=_PARTITIONS("target_assignment"),
    revoking=_PARTITIONS("revoking"),
    state="member_state",
)
GROUP = ByName(
    DescribedGroup,
    group_pb.DescribedGroup,
    state="group_state",
    assignor="assignor_name",
    coordinator=None,
    members=As("members", None, _MEMBER.read_all),
)


# ---- transactions
# Transactional ids with their transactions; and the producers that logs remember, which leaders describe.

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


TRANSACTION = ByName(
    DescribedTransaction,
    txn_pb.DescribedTransaction,
    state="transaction_state",
    timeout_ms="transaction_timeout_ms",
    start_ms="transaction_start_time_ms",
    partitions=As("topics", None, partitions_of),
    coordinator=None,
)
LISTED_TRANSACTION = ByName(
    ListedTransaction, txn_pb.ListedTransaction, state="transaction_state", start_ms="transaction_start_time_ms"
)
PRODUCER = ByName(
    PartitionProducer,
    leader_pb.ActiveProducer,
    topic=None,
    partition=None,
    last_timestamp_ms="last_timestamp",
    open_since_offset="current_txn_start_offset",
)
