"""What clients request of the coordinator of one group, and its answers: frozen values, free of any wire.

A machine of groups is given these requests and answers with these answers, or with a `Refusal` for the request as a
whole. Names are Kafka's; topics are their ids, which the service looked up; absence is ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.core.errors import Refusal
from strandline.core.types import LeaderEpoch, Marker, Offset, ProducerStamp, TopicPartition


class OffsetToCommit(NamedTuple):
    """What a commit says of one partition: the next offset to read, the epoch of the record before, a text."""

    tp: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """OffsetCommit of one group. Without a ``member_epoch`` nobody's member commits: a tool, or `assign`."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    member_epoch: int | None = None
    instance_id: str | None = None
    coordinator_epoch: int | None = None
    """The one the sender believes in; another one: NOT_COORDINATOR."""
    sequence: int | None = None
    """Rises with every commit that the member sends, repeated ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommit:
    """TxnOffsetCommit of one group: offsets that count once the transaction is committed (X16)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    """In this transaction."""
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    member_epoch: int | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionMarked:
    """A marker for a partition of groups: the transaction of this producer is over, and so is what it staged (X16)."""

    producer: ProducerStamp
    marker: Marker


class CommittedPartition(NamedTuple):
    """What became of one partition of a commit."""

    tp: TopicPartition
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """Answer to `OffsetCommit` and `TxnOffsetCommit`: one entry per partition, in the order of the request."""

    partitions: tuple[CommittedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    """OffsetFetch of one group; ``partitions`` None: all that have an offset."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None = None
    member_id: str | None = None
    member_epoch: int | None = None
    require_stable: bool = False
    """Whether the answer must be the newest: behind a read barrier (G10)."""


class FetchedOffset(NamedTuple):
    """What is committed for one partition; ``offset`` None: nothing, or ``refusal`` says why it is not known."""

    tp: TopicPartition
    offset: Offset | None = None
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""
    commit_ms: int | None = None
    """When it was committed, in ms since the Unix epoch."""
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsFetched:
    """Answer to `OffsetFetch`: one entry per partition that was named, in that order, or per offset there is."""

    partitions: tuple[FetchedOffset, ...]
