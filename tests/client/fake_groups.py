"""The coordinator of groups of a fake cluster: offsets in memory, and the refusals that a test asks for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.client.fake_members import FakeMembers
from tests.core.core_builders import partition_image

from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.errors import ErrorCode
from strandline.core.messages import TopicImage
from strandline.core.types import TopicPartition
from strandline.v1 import group_service_pb2 as pb, group_service_pb2_grpc as pb_grpc, partition_pb2

if TYPE_CHECKING:
    from tests.client.fake_cluster import FakeCluster

STATE_ID = "22222222-2222-2222-2222-222222222222"


class FakeGroups:
    """What the nodes of a cluster know of groups; one node coordinates them all."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.has_topic = False
        """Whether the metadata has the topic of groups, as that of a cluster in which groups were used."""
        self.coordinator = 0
        self.epoch = 1
        self.named: int | None = None
        """Who the metadata says coordinates; None: the one that does."""
        self.committed: dict[str, dict[tuple[str, int], int]] = {}
        self.commits: list[dict[int, int]] = []
        """The offsets of every commit that came, by partition."""
        self.fetches = 0
        self.refusals: deque[ErrorCode] = deque()
        """What the next requests at the coordinator are refused with."""
        self.refused_partitions: dict[int, ErrorCode] = {}
        self.hold: asyncio.Event | None = None
        """Commits are answered when it is set."""
        self.loses_answers = 0
        """So many commits are taken and not answered."""
        self.members = FakeMembers(cluster)
        self.is_silent = False
        """Heartbeats are not taken."""

    def add_to(self, server: Any, node_id: int) -> None:
        pb_grpc.add_GroupServiceServicer_to_server(_FakeCoordinator(self, node_id), server)  # type: ignore[no-untyped-call]

    def image(self) -> TopicImage:
        everybody = [node.node_id for node in self.cluster.nodes]
        leader, epoch = (self.coordinator, self.epoch) if self.named is None else (self.named, self.epoch - 1)
        tp = TopicPartition(STATE_ID, 0)
        partition = partition_image(
            tp, replicas=everybody, isr=everybody, leader=leader, epoch=epoch, version=self.epoch
        )
        return TopicImage(name=GROUP_STATE, topic_id=STATE_ID, partitions=(partition,))


class _FakeCoordinator(pb_grpc.GroupServiceServicer):
    def __init__(self, groups: FakeGroups, node_id: int) -> None:
        self.groups = groups
        self.node_id = node_id

    def _refusal(self) -> ErrorCode | None:
        if self.groups.coordinator != self.node_id:
            return ErrorCode.NOT_COORDINATOR
        return self.groups.refusals.popleft() if self.groups.refusals else None

    def _hint(self, target: partition_pb2.CurrentLeader) -> None:
        endpoint = self.groups.cluster.nodes[self.groups.coordinator].endpoint
        target.leader_id, target.leader_epoch = self.groups.coordinator, self.groups.epoch
        target.endpoint.host, target.endpoint.port = endpoint

    async def FindCoordinator(self, request: Any, context: Any) -> pb.FindCoordinatorResponse:  # noqa: N802
        endpoint = self.groups.cluster.nodes[self.groups.coordinator].endpoint
        return pb.FindCoordinatorResponse(
            coordinators=[
                {"key": request.coordinator_keys[0], "node_id": 0, "host": endpoint.host, "port": endpoint.port}
            ]
        )

    async def ConsumerGroupHeartbeat(  # noqa: N802
        self, request: Any, context: Any
    ) -> pb.ConsumerGroupHeartbeatResponse:
        refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.groups.is_silent else self._refusal()
        if refusal is None:
            return self.groups.members.heartbeat(request)
        response = pb.ConsumerGroupHeartbeatResponse(error_message=refusal.name)
        response.error_code = int(refusal)  # type: ignore[assignment]
        if refusal is ErrorCode.NOT_COORDINATOR:
            self._hint(response.current_coordinator)
        return response

    async def OffsetCommit(self, request: Any, context: Any) -> pb.OffsetCommitResponse:  # noqa: N802
        groups, refusal = self.groups, self._refusal()
        offsets = {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}
        response = pb.OffsetCommitResponse()
        by_member: dict[int, ErrorCode] = {}
        if refusal is None and request.member_id:
            by_member = {index: each.code for index, each in groups.members.commit(request).items() if each is not None}
        if refusal is None:
            groups.commits.append({index: offset for (_, index), offset in offsets.items()})
            if groups.hold is not None:
                await groups.hold.wait()
        for (name, index), offset in offsets.items():
            row = pb.OffsetCommitPartitionResponse(partition_index=index)
            code = refusal or groups.refused_partitions.get(index) or by_member.get(index)
            if code is None:
                groups.committed.setdefault(request.group_id, {})[name, index] = offset
            else:
                row.error_code, row.error_message = int(code), code.name  # type: ignore[assignment]
                row.outcome = pb.COMMIT_OUTCOME_NOT_APPENDED
            response.topics.add(name=name).partitions.append(row)
        if refusal is None and groups.loses_answers:
            groups.loses_answers -= 1
            await asyncio.Event().wait()
        if refusal is ErrorCode.NOT_COORDINATOR:
            self._hint(response.current_coordinator)
        return response

    async def TxnOffsetCommit(self, request: Any, context: Any) -> pb.TxnOffsetCommitResponse:  # noqa: N802
        refusal = self._refusal()
        by_member: dict[int, ErrorCode] = {}
        if refusal is None and request.member_id:
            by_member = {i: each.code for i, each in self.groups.members.stage(request).items() if each is not None}
        if refusal is None and not any(by_member.values()):
            refusal = self.groups.cluster.transactions.stage(request)
        response = pb.TxnOffsetCommitResponse()
        for topic in request.topics:
            rows = response.topics.add(name=topic.name)
            for part in topic.partitions:
                row = rows.partitions.add(partition_index=part.partition_index)
                code = refusal or by_member.get(part.partition_index)
                if code is not None:
                    row.error_code, row.error_message = int(code), code.name
                    row.outcome = pb.COMMIT_OUTCOME_NOT_APPENDED
        return response

    async def OffsetFetch(self, request: Any, context: Any) -> pb.OffsetFetchResponse:  # noqa: N802
        # A member never begins where a newer coordinator may have taken a later commit (G10).
        assert request.require_stable or not any(group.member_id for group in request.groups)
        self.groups.fetches += 1
        refusal = self._refusal()
        response = pb.OffsetFetchResponse()
        for asked in request.groups:
            group = response.groups.add(group_id=asked.group_id)
            if refusal is not None:
                group.error_code, group.error_message = int(refusal), refusal.name
                if refusal is ErrorCode.NOT_COORDINATOR:
                    self._hint(group.current_coordinator)
                continue
            known = self.groups.committed.get(asked.group_id, {})
            wanted = [(t.topic, index) for t in asked.topics.topics for index in t.partitions]
            for name, index in wanted if asked.HasField("topics") else list(known):
                row = group.topics.add(name=name)
                row.partitions.add(partition_index=index, committed_offset=known.get((name, index)))
        return response

    async def DeleteGroups(self, request: Any, context: Any) -> pb.DeleteGroupsResponse:  # noqa: N802
        response = pb.DeleteGroupsResponse()
        refusal = self._refusal()
        for name in request.groups_names:
            row = response.results.add(group_id=name)
            if refusal is None and self.groups.committed.pop(name, None) is None:
                refusal = ErrorCode.GROUP_ID_NOT_FOUND
            if refusal is not None:
                row.error_code, row.error_message = int(refusal), refusal.name  # type: ignore[assignment]
            if refusal is ErrorCode.NOT_COORDINATOR:
                self._hint(row.current_coordinator)
        return response

    async def DescribeGroups(self, request: Any, context: Any) -> pb.DescribeGroupsResponse:  # noqa: N802
        response = pb.DescribeGroupsResponse()
        for name in request.group_ids:
            row = response.groups.add(group_id=name, group_state="Empty")
            if name not in self.groups.committed:
                row.error_code, row.error_message = int(ErrorCode.GROUP_ID_NOT_FOUND), f"no group {name!r}"  # type: ignore[assignment]
        return response

    async def ListGroups(self, request: Any, context: Any) -> pb.ListGroupsResponse:  # noqa: N802
        is_here = self.groups.coordinator == self.node_id
        names = sorted(self.groups.committed) if is_here else []
        return pb.ListGroupsResponse(groups=[{"group_id": one, "group_state": "Empty"} for one in names])
