"""Groups and their members as an administrator sees them.

Invariant: partitions are named by their topic, as users name them; one of a topic that is gone keeps the topic's id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from strandline.client.records import TopicPartition
from strandline.v1 import group_service_pb2 as pb, partition_pb2


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


def group_of(row: pb.DescribedGroup, coordinator: int) -> DescribedGroup:
    """One group as it was answered."""
    return DescribedGroup(
        group_id=row.group_id,
        state=row.group_state,
        group_epoch=row.group_epoch,
        assignment_epoch=row.assignment_epoch,
        assignor=row.assignor_name,
        coordinator=coordinator,
        members=tuple(map(_member_of, row.members)),
    )


def _member_of(row: pb.DescribedGroupMember) -> DescribedMember:
    return DescribedMember(
        member_id=row.member_id,
        instance_id=row.instance_id if row.HasField("instance_id") else None,
        rack=row.rack_id if row.HasField("rack_id") else None,
        member_epoch=row.member_epoch,
        client_id=row.client_id,
        client_host=row.client_host,
        topics=tuple(row.subscribed_topic_names),
        pattern=row.subscribed_topic_regex if row.HasField("subscribed_topic_regex") else None,
        assignment=_partitions(row.assignment),
        target_assignment=_partitions(row.target_assignment),
        revoking=_partitions(row.revoking),
        state=row.member_state,
        last_heartbeat_age_ms=row.last_heartbeat_age_ms if row.HasField("last_heartbeat_age_ms") else None,
        last_commit_age_ms=row.last_commit_age_ms if row.HasField("last_commit_age_ms") else None,
        session_timeout_ms=row.session_timeout_ms,
        rebalance_timeout_ms=row.rebalance_timeout_ms,
    )


def _partitions(topics: Iterable[partition_pb2.TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic or topic.topic_id, index) for topic in topics for index in topic.partitions)
