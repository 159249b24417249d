"""What members and people request of a group's coordinator, beside offsets, and the answers: frozen values (G11).

Names are Kafka's, absence is ``None``; an optional field that is absent leaves what the member said before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strandline.core.errors import Refusal
from strandline.core.groups.records import MemberValue
from strandline.core.types import TopicPartition
from strandline.core.values import value

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
    """RE2; empty takes an earlier pattern back."""
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartition, ...] | None = None
    """All that the member holds; empty says that it holds nothing."""
    client_id: str = ""
    client_host: str = ""
    coordinator_epoch: int | None = None
    """The one the sender believes in; another one: NOT_COORDINATOR (ours)."""
    sequence: int | None = None
    """Rises with every heartbeat that the member sends, repeated ones included (ours)."""

    @property
    def says_something(self) -> bool:
        """Whether the member says anything of itself, be it what it has said before."""
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
    """Answer to a heartbeat; ``assignment`` None: as in the answer before."""

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
    """What became of one partition; one that had no offset is no error."""

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
    """None: none since this coordinator began."""
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
