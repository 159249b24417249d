"""What an administrator asks of groups: each question goes to the coordinator of its group.

Invariant: a list is of the whole cluster, or an error that has what the others answered: never a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from strandline.client.administer.described_by_coordinators import GROUP, DescribedGroup, ListedGroup
from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import CommitFailed, GroupsIncomplete
from strandline.client.groups.committed_offsets import CommittedOffsets, OffsetAndMetadata
from strandline.client.groups.coordinator import GroupCoordinator, ask_every_node, verdict_of
from strandline.client.records import TopicPartition
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.rpc.convert.errors import read_error
from strandline.v1 import group_service_pb2 as pb, partition_pb2
from strandline.v1.group_service_pb2_grpc import GroupServiceStub


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
        answers, missing = await ask_every_node(
            self._cluster, lambda channel: GroupServiceStub(channel).ListGroups, request, deadline_ms=self._timeout_ms
        )
        rows = sorted((row for answer in answers for row in answer.groups), key=lambda row: row.group_id)
        found = {row.group_id: ListedGroup(row.group_id, row.group_state, row.group_type) for row in rows}
        if missing:
            raise GroupsIncomplete([*found.values()], missing)
        return [*found.values()]

    async def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Groups in the order asked for."""
        return list(await asyncio.gather(*map(self._describe, group_ids)))

    async def _describe(self, group_id: str) -> DescribedGroup:
        request = pb.DescribeGroupsRequest(cluster_id=self._cluster.cluster_id, group_ids=[group_id])
        coordinator = self._coordinator(group_id)
        answered = await coordinator.ask(
            lambda to: to.DescribeGroups,
            request,
            lambda answer: verdict_of(*answer.groups),
            deadline_ms=self._timeout_ms,
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
                lambda to: to.DeleteGroups,
                request,
                lambda answer: verdict_of(*answer.results),
                deadline_ms=self._timeout_ms,
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
            lambda to: to.OffsetDelete, request, verdict_of, deadline_ms=self._timeout_ms
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
