"""What an administrator asks of groups: each question goes to the coordinator of its group.

Invariant: a list is of the whole cluster, or an error that has what the others answered: never a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.client.administer.described_by_coordinators import GROUP, DescribedGroup, ListedGroup
from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import ClusterUnreachable, CommitFailed, GroupsIncomplete
from strandline.client.groups.committed_offsets import CommittedOffsets, OffsetAndMetadata
from strandline.client.groups.coordinator import GroupCoordinator, RequestVerdict
from strandline.client.records import TopicPartition
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint
from strandline.rpc.convert.errors import read_error
from strandline.v1 import group_service_pb2 as pb, partition_pb2
from strandline.v1.group_service_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.group_service_pb2_grpc import GroupServiceAsyncStub


class GroupAdmin:
    """Asks coordinators."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def list_all(self, states: Iterable[str]) -> list[ListedGroup]:
        """The groups of every living node, by id.

        Raises:
            GroupsIncomplete: a node did not answer, or does not know its groups yet.
        """
        request = pb.ListGroupsRequest(cluster_id=self._cluster.cluster_id, states_filter=states)
        # A fenced node leads nothing, so it coordinates no group.
        living = {node.node_id: node.client_endpoint for node in self._cluster.image.nodes if not node.fenced}
        asked = {node_id: endpoint for node_id, endpoint in living.items() if endpoint is not None}
        answers = await asyncio.gather(*(self._list_at(endpoint, request) for endpoint in asked.values()))
        found = {
            row.group_id: ListedGroup(row.group_id, row.group_state, row.group_type)
            for rows, _ in answers
            for row in rows
        }
        groups = [found[group_id] for group_id in sorted(found)]
        missing = {
            int(node_id): refusal for node_id, (_, refusal) in zip(asked, answers, strict=True) if refusal is not None
        }
        if missing:
            raise GroupsIncomplete(groups, missing)
        return groups

    async def _list_at(
        self, endpoint: Endpoint, request: pb.ListGroupsRequest
    ) -> tuple[Sequence[pb.ListedGroup], Refusal | None]:
        stub: GroupServiceAsyncStub = GroupServiceStub(self._cluster.channels.to(endpoint))
        try:
            answer = await self._cluster.ask(stub.ListGroups, request, deadline_ms=self._timeout_ms)
        except ClusterUnreachable as error:
            return (), Refusal(ErrorCode.NETWORK_EXCEPTION, str(error))
        except Refused as refused:
            return (), refused.refusal
        # Both: a node that still loads one of its partitions lists the groups of the others.
        return answer.groups, read_error(answer)

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Groups in the order asked for."""
        return list(await asyncio.gather(*map(self._describe, group_ids)))

    async def _describe(self, group_id: str) -> DescribedGroup:
        request = pb.DescribeGroupsRequest(cluster_id=self._cluster.cluster_id, group_ids=[group_id])
        coordinator = self._coordinator(group_id)
        answered = await coordinator.ask(
            lambda to: to.DescribeGroups, request, _judge_described, deadline_ms=self._timeout_ms
        )
        assert coordinator.answered_by is not None
        return GROUP.read(answered.answer.groups[0], coordinator=coordinator.answered_by)

    async def delete(self, group_ids: Sequence[str]) -> dict[str, Refusal | None]:
        """Why each was not deleted, None if it was."""
        return dict(zip(group_ids, await asyncio.gather(*map(self._delete, group_ids)), strict=True))

    async def _delete(self, group_id: str) -> Refusal | None:
        request = pb.DeleteGroupsRequest(cluster_id=self._cluster.cluster_id, groups_names=[group_id])
        try:
            await self._coordinator(group_id).ask(
                lambda to: to.DeleteGroups, request, _judge_deleted, deadline_ms=self._timeout_ms
            )
        except Refused as refused:
            return refused.refusal
        return None

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; without partitions all that is."""
        offsets = CommittedOffsets(self._cluster, group_id)
        return await offsets.fetch(partitions, deadline_ms=self._timeout_ms, require_stable=require_stable)

    async def alter(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit in one request."""
        offsets_of = CommittedOffsets(self._cluster, group_id)
        # As no member, so the coordinator takes it only while the group has none (G27).
        failed = await offsets_of.commit(offsets, deadline_ms=self._timeout_ms)
        if failed:
            raise CommitFailed(group_id, failed)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Refusal | None]:
        """Why each was not deleted, None if it is gone."""
        rows = [partition_pb2.TopicPartitions(topic=topic, partitions=[index]) for topic, index in partitions]
        request = pb.OffsetDeleteRequest(cluster_id=self._cluster.cluster_id, group_id=group_id, topics=rows)
        answered = await self._coordinator(group_id).ask(
            lambda to: to.OffsetDelete, request, _judge_offsets, deadline_ms=self._timeout_ms
        )
        found = {
            TopicPartition(topic.name, row.partition_index): read_error(row)
            for topic in answered.answer.topics
            for row in topic.partitions
        }
        # A partition without a row must not pass for one whose offset was deleted.
        missing = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves this partition out")
        return {tp: found.get(tp, missing) for tp in partitions}

    def _coordinator(self, group_id: str) -> GroupCoordinator:
        return GroupCoordinator(self._cluster, group_id)


def _judge_described(answer: pb.DescribeGroupsResponse) -> RequestVerdict:
    (row,) = answer.groups
    return RequestVerdict(read_error(row), row.current_coordinator if row.HasField("current_coordinator") else None)


def _judge_deleted(answer: pb.DeleteGroupsResponse) -> RequestVerdict:
    (row,) = answer.results
    return RequestVerdict(read_error(row), row.current_coordinator if row.HasField("current_coordinator") else None)


def _judge_offsets(answer: pb.OffsetDeleteResponse) -> RequestVerdict:
    return RequestVerdict(
        read_error(answer), answer.current_coordinator if answer.HasField("current_coordinator") else None
    )
