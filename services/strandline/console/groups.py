"""Consumer groups: asks the nodes for them, and makes the rows that the pages show.

Invariant: what is not known is never shown as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from strandline.client import DescribedGroup, DescribedMember, TopicPartition
from strandline.client.administer.described_by_coordinators import GROUP
from strandline.client.cluster.metadata import Cluster
from strandline.client.consume.positions import records_behind
from strandline.console.overview import PartitionRow
from strandline.console.picture import GroupLook, HeldGroup, Picture
from strandline.core.messages import Endpoint
from strandline.core.types import NodeId
from strandline.rpc.convert.errors import read_error
from strandline.runtime.clock import Clock
from strandline.v1 import group_service_pb2 as pb
from strandline.v1.group_service_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    from strandline.v1.group_service_pb2_grpc import GroupServiceAsyncStub


# ---- group_looks
# Asks a node for the groups that it coordinates, with their members and offsets.
#
# Invariant: what that costs is bounded: of more groups than `MOST_GROUPS` the first by name are looked at.

MOST_GROUPS = 500
_AT_ONCE = 50


async def ask_for_groups(
    cluster: Cluster, node_id: NodeId, endpoint: Endpoint, clock: Clock, deadline_ms: int
) -> GroupLook:
    """The groups of one node.

    Raises:
        Refused, ClusterUnreachable: it did not answer.
    """
    stub: GroupServiceAsyncStub = GroupServiceStub(cluster.channels.to(endpoint))
    listed = await cluster.ask(
        stub.ListGroups, pb.ListGroupsRequest(cluster_id=cluster.cluster_id), deadline_ms=deadline_ms
    )
    names = sorted(group.group_id for group in listed.groups)
    described: dict[str, DescribedGroup] = {}
    committed: dict[str, Mapping[TopicPartition, int]] = {}
    for first in range(0, min(len(names), MOST_GROUPS), _AT_ONCE):
        some = names[first : min(first + _AT_ONCE, MOST_GROUPS)]
        request = pb.DescribeGroupsRequest(cluster_id=cluster.cluster_id, group_ids=some)
        answer = await cluster.ask(stub.DescribeGroups, request, deadline_ms=deadline_ms)
        described |= {row.group_id: GROUP.read(row, coordinator=node_id) for row in answer.groups if not row.error_code}
        # Without require_stable: the offsets that the coordinator holds, even while it cannot commit.
        groups = [pb.OffsetFetchGroup(group_id=name) for name in some]
        asked = pb.OffsetFetchRequest(cluster_id=cluster.cluster_id, groups=groups)
        committed |= _committed(await cluster.ask(stub.OffsetFetch, asked, deadline_ms=deadline_ms))
    lacking = read_error(listed)
    return GroupLook(
        answered_ms=clock(),
        lacking="" if lacking is None else str(lacking).splitlines()[0][:200],
        left_out=max(0, len(names) - MOST_GROUPS),
        groups=tuple(HeldGroup(one, committed.get(name)) for name, one in described.items()),
    )


def _committed(answer: pb.OffsetFetchResponse) -> dict[str, Mapping[TopicPartition, int]]:
    return {
        group.group_id: {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in group.topics
            for row in topic.partitions
            if not row.error_code and row.HasField("committed_offset")
        }
        for group in answer.groups
        if not group.error_code
    }


# ---- group_rows
# Groups as the pages show them: the lag of each, the partitions of each member, late members.
#
# Pure: a `Picture` and its partitions in, rows out. Invariant: a lag is a high watermark that was measured minus an
# offset that is committed; where one of them is not known there is no lag, and it is never shown as 0.

MOST_ROWS = 200
"""Rows of one table of groups, members or partitions; the most urgent are first."""

_TONES = {"Stable": "good", "Empty": "quiet"}


class GroupPartition(NamedTuple):
    """One partition that a group reads, or has an offset in."""

    topic: str
    partition: int
    committed: int | None
    hw: int | None
    lag: int | None
    readers: tuple[str, ...]
    """Members to which it is assigned; more than one would be a defect, and all are shown."""
    is_revoking: bool
    """Whether its reader was asked to give it up."""
    has_page: bool


class MemberRow(NamedTuple):
    """One member."""

    member: DescribedMember
    heartbeat_age_ms: int | None
    is_late: bool
    """Whether half of its session timeout has passed without a heartbeat."""
    lag: int
    """Sum of the known lags of its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group."""

    held: HeldGroup
    coordinator: NodeId
    tone: str
    partitions: tuple[GroupPartition, ...]
    members: tuple[MemberRow, ...]
    age_ms: int | None
    failure: str

    @property
    def name(self) -> str:
        """The group's id."""
        return self.held.described.group_id

    @property
    def lag(self) -> int | None:
        """The sum of the known lags; None if none is known."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None

    @property
    def unmeasured(self) -> int:
        """The number of partitions whose lag is not known."""
        return sum(one.lag is None for one in self.partitions)

    @property
    def revoking(self) -> int:
        """The number of partitions that members were asked to give up."""
        return sum(len(row.member.revoking) for row in self.members)


def group_rows(picture: Picture, rows: Iterable[PartitionRow]) -> tuple[GroupRow, ...]:
    """Every group: those that are not settled first, then by lag."""
    ends = {TopicPartition(row.topic, row.index): row for row in rows}
    newest: dict[str, tuple[NodeId, HeldGroup]] = {}
    for node_id, look in sorted(picture.groups.items()):
        for held in look.groups:
            known = newest.get(held.described.group_id)
            # A deposed coordinator may not have heard of it yet.
            if known is None or _since(picture, known[0]) <= _since(picture, node_id):
                newest[held.described.group_id] = (node_id, held)
    found = [_row(picture, node_id, held, ends) for node_id, held in newest.values()]
    return tuple(sorted(found, key=lambda row: (row.tone in ("good", "quiet"), -(row.lag or 0), row.name)))


def _since(picture: Picture, node_id: NodeId) -> int:
    return picture.groups[node_id].answered_ms or 0


def _row(picture: Picture, node_id: NodeId, held: HeldGroup, ends: Mapping[TopicPartition, PartitionRow]) -> GroupRow:
    look = picture.groups[node_id]
    age_ms = None if look.answered_ms is None else max(0, picture.now_ms - look.answered_ms)
    partitions = tuple(sorted(_partitions(held, ends), key=lambda one: (-(one.lag or 0), one.topic, one.partition)))
    lags = {(one.topic, one.partition): one.lag or 0 for one in partitions}
    members = [_member(member, age_ms or 0, lags) for member in held.described.members]
    members.sort(key=lambda row: (not row.member.revoking, not row.is_late, -row.lag, row.member.member_id))
    return GroupRow(
        held=held,
        coordinator=node_id,
        tone=_TONES.get(held.described.state, "warn"),
        partitions=partitions,
        members=tuple(members),
        age_ms=age_ms,
        failure=look.failure,
    )


def _partitions(held: HeldGroup, ends: Mapping[TopicPartition, PartitionRow]) -> Iterable[GroupPartition]:
    committed = held.committed or {}
    readers: dict[TopicPartition, list[str]] = {}
    revoking: set[TopicPartition] = set()
    for member in held.described.members:
        revoking.update(member.revoking)
        for tp in {*member.assignment, *member.revoking}:
            readers.setdefault(tp, []).append(member.member_id)
    for tp in {*committed, *readers}:
        end, offset = ends.get(tp), committed.get(tp)
        hw = end.hw if end is not None else None
        yield GroupPartition(
            topic=tp.topic,
            partition=tp.partition,
            committed=offset,
            hw=hw,
            lag=records_behind(offset, hw, end.log_start if end is not None else None),
            readers=tuple(readers.get(tp, ())),
            is_revoking=tp in revoking,
            has_page=end is not None,
        )


def _member(member: DescribedMember, age_ms: int, lags: Mapping[tuple[str, int], int]) -> MemberRow:
    beat_ms = member.last_heartbeat_age_ms
    heard_ms = None if beat_ms is None else beat_ms + age_ms
    return MemberRow(
        member=member,
        heartbeat_age_ms=heard_ms,
        is_late=heard_ms is not None and 2 * heard_ms > member.session_timeout_ms,
        lag=sum(lags.get(tp, 0) for tp in {*member.assignment, *member.revoking}),
    )
