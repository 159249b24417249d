"""What the log of a group coordinator holds of groups: one class per kind of key, and one per kind of value (G4).

Invariant: a group is the fold of these rows and of nothing else. Keys of different classes are never equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from strandline.core.types import LeaderEpoch, Offset, TopicPartition


class MemberState(StrEnum):
    """How far a member has come with its target; the first three are Kafka's names."""

    STABLE = "stable"
    UNREVOKED = "unrevoked_partitions"
    """It must give up what is in ``revoking``, and keeps its epoch until it has."""
    UNRELEASED = "unreleased_partitions"
    """It waits for partitions that others still hold."""
    AWAY = "away"
    """A static member that left for a restart (epoch -2): it keeps its partitions until its session ends."""
    FENCED = "fenced"
    """Removed after its rebalance time-out; its partitions stay with it until its lease is surely over (G21)."""


class AssignedPartition(NamedTuple):
    """A partition and the member epoch in which the member was given it (KIP-1251)."""

    tp: TopicPartition
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The group itself."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupValue:
    """What is of no single member."""

    group_epoch: int = 0
    order: int = 0
    """No deleted offset had a higher order (G26)."""
    empty_since_ms: int | None = None
    """When the last member went, in ms since the Unix epoch; None while there are members."""


@dataclass(frozen=True, slots=True)
class MemberKey:
    """What a member has said of itself."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """The newest of each field that the member sent."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, each once."""
    topic_regex: str | None = None
    assignor: str | None = None


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """For which group epoch the targets were computed."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochValue:
    """The newest target that is complete in the log (G4)."""

    epoch: int
    assignor: str
    topics_digest: int
    """Of the topics it was computed for: another digest is a reason for a new target (G15)."""


@dataclass(frozen=True, slots=True)
class TargetKey:
    """What a member is to have."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetValue:
    """Counts once the group's target epoch is at least ``epoch``."""

    epoch: int
    partitions: tuple[TopicPartition, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class CurrentKey:
    """What a member has."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentValue:
    """Where a member stands between what it had and its target (G17)."""

    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: tuple[AssignedPartition, ...] = ()
    """Sorted."""
    revoking: tuple[AssignedPartition, ...] = ()
    """Sorted; the member still holds these and was asked to give them up."""
    lease_ms: int | None = None
    """Of a fenced member: its session time-out, for which its lease may still run."""

    @property
    def held(self) -> tuple[AssignedPartition, ...]:
        """All partitions that no other member may be given."""
        return self.assigned + self.revoking


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """A committed offset."""

    group_id: str
    topic_id: str
    partition: int

    @property
    def tp(self) -> TopicPartition:
        """The partition it is for."""
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """What was committed."""

    offset: Offset
    leader_epoch: LeaderEpoch | None
    metadata: str
    commit_ms: int
    """In ms since the Unix epoch."""
    order: int
    """Rises with each commit of the group; sweeps do not change it (G26)."""


@dataclass(frozen=True, slots=True)
class StagedOffsetKey:
    """What an open transaction is to commit for one partition (X16)."""

    group_id: str
    topic_id: str
    partition: int
    producer_id: int

    @property
    def tp(self) -> TopicPartition:
        """The partition it is for."""
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class StagedOffsetValue:
    """Counts once the transaction is committed."""

    producer_epoch: int
    """Of the producer in this transaction."""
    offset: OffsetValue
    """What the group has committed then; its order is that of the request that staged it."""


@dataclass(frozen=True, slots=True)
class ProducerFenceKey:
    """A producer one of whose transactions ended here; of no group."""

    producer_id: int


@dataclass(frozen=True, slots=True)
class ProducerFenceValue:
    """From which epoch on a producer may stage offsets."""

    producer_epoch: int
    """Of its last marker."""
    coordinator_epoch: int
    """Leader epoch of the coordinator that wrote the marker."""
    update_ms: int
    """When the marker was written, in ms since the Unix epoch."""
