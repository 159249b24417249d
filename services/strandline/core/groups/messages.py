"""Requests to the coordinator of one group, and its answers: frozen values, independent of the wire.

The machine of groups answers these requests with these answers, or with a `Refusal` of the whole request. Names are
Kafka's; topics are given as ids, which the service looked up; absence is ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.core.errors import Refusal
from strandline.core.groups.records import MemberValue
from strandline.core.types import LeaderEpoch, Marker, Offset, ProducerStamp, TopicPartition, value


class OffsetToCommit(NamedTuple):
    """One partition of a commit: the next offset to read, the epoch of the record before it, and a text."""

    tp: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """OffsetCommit of one group. Without a ``member_epoch`` the sender is not a member: a tool, or `assign`."""

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
    """The result for one partition of a commit."""

    tp: TopicPartition
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """Answer to `OffsetCommit` and `TxnOffsetCommit`: one entry per partition, in the order of the request."""

    partitions: tuple[CommittedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    """OffsetFetch of one group; ``partitions`` None means all that have an offset."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None = None
    member_id: str | None = None
    member_epoch: int | None = None
    require_stable: bool = False
    """Whether the answer must be the newest: behind a read barrier (G10)."""


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; ``offset`` is None if there is none, or if ``refusal`` says why not."""

    tp: TopicPartition
    offset: Offset | None = None
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""
    commit_ms: int | None = None
    """When it was committed, in ms since the Unix epoch."""
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsFetched:
    """Answer to `OffsetFetch`: one entry per requested partition, in that order, or per existing offset."""

    partitions: tuple[FetchedOffset, ...]


# ---- membership_messages
# Requests of members and operators to a group's coordinator other than offsets, and the answers (G11).
#
# Names are Kafka's, absence is ``None``; an absent optional field keeps the member's previous value.

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


@value
class ConsumerGroupHeartbeat:
    """ConsumerGroupHeartbeat: joins with epoch 0, leaves with -1, leaves for a restart with -2."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    session_timeout_ms: int | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    """RE2; empty removes an earlier pattern."""
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartition, ...] | None = None
    """All partitions that the member holds; empty if it holds none."""
    client_id: str = ""
    client_host: str = ""
    coordinator_epoch: int | None = None
    """The one the sender believes in; another one: NOT_COORDINATOR (ours)."""
    sequence: int | None = None
    """Rises with every heartbeat that the member sends, repeated ones included (ours)."""

    @property
    def says_something(self) -> bool:
        """Whether the heartbeat has any field about the member, even an unchanged one."""
        return not (
            self.subscribed_topic_names is None
            and self.subscribed_topic_regex is None
            and self.server_assignor is None
            and self.rack_id is None
            and self.session_timeout_ms is None
            and self.rebalance_timeout_ms is None
        )


@value
class HeartbeatAnswered:
    """Answer to a heartbeat; ``assignment`` None means unchanged since the previous answer."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    group_epoch: int
    assignment: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    """OffsetDelete of one group."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


class DeletedOffset(NamedTuple):
    """The result for one partition; deleting a missing offset is no error."""

    tp: TopicPartition
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted:
    """Answer to `OffsetDelete`, in the order of the request."""

    partitions: tuple[DeletedOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """DeleteGroups, for one group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted:
    """The group and its offsets are deleted."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """ListGroups; empty filters match every group. States as Kafka spells them, in any case."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    """One group."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsListed:
    """The groups of one coordinator partition."""

    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """ConsumerGroupDescribe of one group."""

    group_id: str


class DescribedMember(NamedTuple):
    """One member."""

    member_id: str
    said: MemberValue
    member_epoch: int
    member_state: str
    assignment: tuple[TopicPartition, ...]
    revoking: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...]
    last_heartbeat_age_ms: int | None
    """None if there was none since this coordinator began."""
    last_commit_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescribed:
    """A group with its members, sorted by id."""

    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedMember, ...]


# ---- settings
# The bounds of consumer groups, with Kafka's defaults where Kafka has the setting (G13).


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """All times in ms."""

    session_timeout_ms: int = 45_000
    """For members that do not choose one; a member that is silent for this long is removed."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    heartbeat_interval_ms: int = 5_000
    """Upper limit; a third of the session time-out if that is shorter."""
    max_members: int = 10_000
    """Most members of one group."""
    max_metadata_bytes: int = 4_096
    """Limit of the text of a committed offset, in bytes of UTF-8."""
    max_pattern_bytes: int = 1_024
    """Limit of a subscription pattern, in bytes of UTF-8."""
    assignment_interval_ms: int = 200
    """Shortest time between two targets of one group (KIP-1263); 0: compute it with the request that needs it."""
    inline_pairs: int = 20_000
    """Members times partitions above which an assignment is computed in a worker (G16)."""
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_retention_check_ms: int = 600_000
    fence_retention_ms: int = 7 * 86_400_000
    """How long the end of a producer's last transaction is remembered where it had offsets of a group in it."""
    retention_step: int = 2_000
    """How many offsets one tick looks at, so that a check of many does not hold the event loop."""
    forgotten_after_ms: int = 600_000
    """How long the sequence of a removed member is remembered; no copy of a request is older."""

    def heartbeat_of(self, session_timeout_ms: int) -> int:
        """How often a member with this session sends a heartbeat."""
        return min(self.heartbeat_interval_ms, session_timeout_ms // 3)
