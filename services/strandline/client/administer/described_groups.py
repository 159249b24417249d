"""Groups and their members as an administrator sees them.

Invariant: partitions are named by their topic, as users name them; one of a topic that is gone keeps the topic's id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from strandline.client.records import TopicPartition
from strandline.rpc.convert.by_name import As, ByName
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


def partitions_of(topics: Iterable[partition_pb2.TopicPartitions]) -> tuple[TopicPartition, ...]:
    """Partitions by the names of their topics."""
    return tuple(TopicPartition(topic.topic or topic.topic_id, index) for topic in topics for index in topic.partitions)


_PARTITIONS = partial(As, write=None, read=partitions_of)
_MEMBER = ByName(
    DescribedMember,
    pb.DescribedGroupMember,
    rack="rack_id",
    topics="subscribed_topic_names",
    pattern="subscribed_topic_regex",
    assignment=_PARTITIONS("assignment"),
    target_assignment=_PARTITIONS("target_assignment"),
    revoking=_PARTITIONS("revoking"),
    state="member_state",
)
_GROUP = ByName(
    DescribedGroup,
    pb.DescribedGroup,
    state="group_state",
    assignor="assignor_name",
    coordinator=None,
    members=As("members", None, _MEMBER.read_all),
)


def group_of(row: pb.DescribedGroup, coordinator: int) -> DescribedGroup:
    """One group as it was answered."""
    return _GROUP.read(row, coordinator=coordinator)
