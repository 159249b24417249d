"""The records of groups in a group coordinator's log: one class for each kind of key and of value (G4).

Invariant: a group is the fold of these rows and of nothing else. Keys of different classes are never equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from strandline.core.types import LeaderEpoch, Offset, TopicPartition


class MemberState(StrEnum):
    """How far a member is with its target; the first three are Kafka's names."""

    STABLE = "stable"
    UNREVOKED = "unrevoked_partitions"
    """It must give up what is in ``revoking``, and keeps its epoch until it has."""
    UNRELEASED = "unreleased_partitions"
    """It waits for partitions that others still hold."""
    AWAY = "away"
    """A static member that left for a restart (epoch -2): it keeps its partitions until its session ends."""
    FENCED = "fenced"
    """Removed after its rebalance time-out; it keeps its partitions until its lease has certainly ended (G21)."""


class AssignedPartition(NamedTuple):
    """A partition and the member epoch in which it was assigned to the member (KIP-1251)."""

    tp: TopicPartition
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The group itself."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupValue:
    """The state of the group that belongs to no single member."""

    group_epoch: int = 0
    order: int = 0
    """No deleted offset had a higher order (G26)."""
    empty_since_ms: int | None = None
    """When the last member left, in ms since the Unix epoch; None while there are members."""


@dataclass(frozen=True, slots=True)
class MemberKey:
    """Key of what a member has reported about itself."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """The newest value of each field that the member sent."""

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
    """Key of the group epoch that the targets were computed for."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochValue:
    """The newest target that is complete in the log (G4)."""

    epoch: int
    assignor: str
    topics_digest: int
    """Digest of the topics that it was computed for; a different digest requires a new target (G15)."""


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Key of a member's target."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetValue:
    """A member's target, valid once the group's target epoch is at least ``epoch``."""

    epoch: int
    partitions: tuple[TopicPartition, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class CurrentKey:
    """Key of a member's current assignment."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentValue:
    """A member's progress from its previous assignment to its target (G17)."""

    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: tuple[AssignedPartition, ...] = ()
    """Sorted."""
    revoking: tuple[AssignedPartition, ...] = ()
    """Sorted; partitions that the member still holds and was asked to give up."""
    lease_ms: int | None = None
    """For a fenced member: its session time-out, which is how long its lease may still last."""

    @property
    def held(self) -> tuple[AssignedPartition, ...]:
        """All partitions that may not be assigned to another member."""
        return self.assigned + self.revoking


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Key of a committed offset."""

    group_id: str
    topic_id: str
    partition: int

    @property
    def tp(self) -> TopicPartition:
        """The partition it is for."""
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """A committed offset."""

    offset: Offset
    leader_epoch: LeaderEpoch | None
    metadata: str
    commit_ms: int
    """In ms since the Unix epoch."""
    order: int
    """Increases with each commit of the group; sweeps do not change it (G26)."""


@dataclass(frozen=True, slots=True)
class StagedOffsetKey:
    """Key of an offset that an open transaction has staged for one partition (X16)."""

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
    """A staged offset, which becomes the committed one when the transaction commits."""

    producer_epoch: int
    """The producer's epoch in this transaction."""
    offset: OffsetValue
    """The offset to commit; its order is that of the request that staged it."""


@dataclass(frozen=True, slots=True)
class ProducerFenceKey:
    """Key of the fence of a producer whose transaction ended here; it belongs to no group."""

    producer_id: int


@dataclass(frozen=True, slots=True)
class ProducerFenceValue:
    """The epoch from which on a producer may stage offsets."""

    producer_epoch: int
    """The epoch of its last marker."""
    coordinator_epoch: int
    """Leader epoch of the coordinator that wrote the marker."""
    update_ms: int
    """When the marker was written, in ms since the Unix epoch."""
