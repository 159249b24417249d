"""How groups are asked for: a list at every node, everything else at the group's coordinator, found first.

Invariant: an answer comes from the node that coordinates the group now; "not here" and "not yet" are asked again until
the deadline. A list that lacks groups says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from strandline.cli.options import addresses
from strandline.cli.over_tls import tls_options
from strandline.client.errors import ClusterUnreachable
from strandline.client.metadata import Cluster
from strandline.client.offsets import LATEST, OffsetFinder
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint
from strandline.core.types import TopicPartition
from strandline.rpc.channels import Backoff
from strandline.rpc.convert_errors import HasError, read_error
from strandline.v1 import group_service_pb2 as pb
from strandline.v1.group_service_pb2_grpc import GroupServiceStub
from strandline.v1.partition_pb2 import TopicPartitions

if TYPE_CHECKING:
    from strandline.v1.group_service_pb2_grpc import GroupServiceAsyncStub

_DEADLINE_MS = 10_000

_Row = TypeVar("_Row", bound=HasError)

Named = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """One group: its coordinator's description, its committed offsets, and the ends (HW) of the partitions named."""

    coordinator: int
    described: pb.DescribedGroup
    committed: dict[Named, int]
    ends: dict[Named, int]


class Groups:
    """Asks a cluster for its groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def listed(self, states: Sequence[str]) -> tuple[list[pb.ListedGroup], list[str]]:
        """The groups of every living node by id, and one sentence for each node that lacks some."""
        request = pb.ListGroupsRequest(cluster_id=self._cluster.cluster_id, states_filter=states)
        nodes = self._living()
        answers = await asyncio.gather(*(self._list_of(endpoint, request) for _, endpoint in nodes))
        found = {group.group_id: group for answer in answers if isinstance(answer, pb.ListGroupsResponse)
                 for group in answer.groups}  # fmt: skip
        lacking = []
        for (node_id, _), answer in zip(nodes, answers, strict=True):
            why = read_error(answer) if isinstance(answer, pb.ListGroupsResponse) else answer
            if why is not None:
                lacking.append(f"groups that node {node_id} coordinates may be missing: {why}")
        return [found[group_id] for group_id in sorted(found)], lacking

    async def see(self, group_id: str) -> SeenGroup:
        """Everything about one group.

        Raises:
            Refused: there is no such group, or its coordinator did not answer in time.
        """
        described = pb.DescribeGroupsRequest(cluster_id=self._cluster.cluster_id, group_ids=[group_id])
        fetched = pb.OffsetFetchRequest(
            cluster_id=self._cluster.cluster_id, groups=[pb.OffsetFetchGroup(group_id=group_id)]
        )

        async def describe(stub: GroupServiceAsyncStub) -> pb.DescribedGroup:
            return (await self._cluster.ask(stub.DescribeGroups, described)).groups[0]

        async def fetch(stub: GroupServiceAsyncStub) -> pb.OffsetFetchGroupResponse:
            return (await self._cluster.ask(stub.OffsetFetch, fetched)).groups[0]

        coordinator, group = await self._ask_coordinator(group_id, describe)
        _, offsets = await self._ask_coordinator(group_id, fetch)
        committed = {
            (topic.name, row.partition_index): row.committed_offset
            for topic in offsets.topics
            for row in topic.partitions
            if row.HasField("committed_offset") and not row.error_code
        }
        assigned = {named for member in group.members for named in assigned_to(member)}
        ends = await self.offsets_at({*committed, *assigned}, LATEST)
        return SeenGroup(coordinator=coordinator, described=group, committed=committed, ends=ends)

    async def _list_of(self, endpoint: Endpoint, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse | str:
        try:
            return await self._cluster.ask(self._stub(endpoint).ListGroups, request)
        except (ClusterUnreachable, Refused) as error:
            return str(error)

    async def _ask_coordinator(
        self, group_id: str, ask: Callable[[GroupServiceAsyncStub], Awaitable[_Row]]
    ) -> tuple[int, _Row]:
        """The coordinator's id and its answer."""
        why = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no node named the coordinator of group {group_id!r}")
        backoff = Backoff()
        try:
            async with asyncio.timeout(_DEADLINE_MS / 1_000):
                while True:
                    try:
                        found = await self._find(group_id)
                        refusal = read_error(found)
                        if refusal is None:
                            row = await ask(self._stub(Endpoint(found.host, found.port)))
                            refusal = read_error(row)
                            if refusal is None:
                                return found.node_id, row
                        if not refusal.retriable and refusal.code is not ErrorCode.NOT_COORDINATOR:
                            raise Refused.of(refusal)
                        why = refusal
                    except ClusterUnreachable as error:
                        why = Refusal(ErrorCode.NETWORK_EXCEPTION, str(error))
                        self._cluster.refresh()
                    await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            raise Refused.of(why) from None

    async def _find(self, group_id: str) -> pb.Coordinator:
        request = pb.FindCoordinatorRequest(cluster_id=self._cluster.cluster_id, coordinator_keys=[group_id])
        failure = ClusterUnreachable("no data node is alive")
        for _, endpoint in self._living():
            try:
                return (await self._cluster.ask(self._stub(endpoint).FindCoordinator, request)).coordinators[0]
            except ClusterUnreachable as error:
                failure = error
        raise failure

    async def offsets_at(self, named: Iterable[Named], timestamp_ms: int) -> dict[Named, int]:
        """LATEST (the HW), EARLIEST, or the first offset at or after a time, of the partitions that exist and have one.

        Raises:
            Refused: a leader's last refusal at the deadline.
        """
        asked = sorted(named)
        known = {topic.name for topic in (await self._cluster.fetch_image()).topics}
        # Asking for a topic is what makes the client follow its leaders.
        topics = {
            name: await self._cluster.topic(name, deadline_ms=_DEADLINE_MS)
            for name in {topic for topic, _ in asked} & known
        }
        wanted = {
            (name, index): TopicPartition(topics[name].topic_id, index)
            for name, index in asked
            if name in topics and index < len(topics[name].partitions)
        }
        times = dict.fromkeys(wanted.values(), timestamp_ms)
        found = await OffsetFinder(self._cluster).find(times, deadline_ms=_DEADLINE_MS)
        return {name: offset for name, tp in wanted.items() if (offset := found[tp].offset) is not None}

    async def partitions_of(self, topic: str) -> list[Named]:
        """Every partition of a topic.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        found = await self._cluster.topic(topic, deadline_ms=_DEADLINE_MS)
        return [(topic, index) for index in range(len(found.partitions))]

    async def commit(self, group_id: str, offsets: Mapping[Named, int]) -> None:
        """Writes offsets of a group without members, in one commit; asked again if its end is not known.

        Raises:
            Refused: the first refusal of a partition.
        """
        request = pb.OffsetCommitRequest(cluster_id=self._cluster.cluster_id, group_id=group_id)
        for topic in sorted({topic for topic, _ in offsets}):
            row = request.topics.add(name=topic)
            for (name, index), offset in sorted(offsets.items()):
                if name == topic:
                    row.partitions.add(partition_index=index, committed_offset=offset)

        async def ask(stub: GroupServiceAsyncStub) -> pb.OffsetCommitPartitionResponse:
            answer = await self._cluster.ask(stub.OffsetCommit, request)
            rows = [row for topic in answer.topics for row in topic.partitions]
            return next((row for row in rows if row.error_code), rows[0])

        await self._ask_coordinator(group_id, ask)

    async def delete(self, group_id: str) -> None:
        """Deletes a group with its offsets.

        Raises:
            Refused: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """
        request = pb.DeleteGroupsRequest(cluster_id=self._cluster.cluster_id, groups_names=[group_id])

        async def ask(stub: GroupServiceAsyncStub) -> pb.DeletedGroup:
            return (await self._cluster.ask(stub.DeleteGroups, request)).results[0]

        await self._ask_coordinator(group_id, ask)

    async def delete_offsets(self, group_id: str, named: Iterable[Named]) -> list[tuple[Named, Refusal | None]]:
        """Deletes offsets of a group; by partition why one was not deleted. One that is not there is no refusal.

        Raises:
            Refused: GROUP_ID_NOT_FOUND, and what else keeps all of them.
        """
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(named):
            topics.setdefault(topic, []).append(index)
        request = pb.OffsetDeleteRequest(
            cluster_id=self._cluster.cluster_id,
            group_id=group_id,
            topics=[TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )

        async def ask(stub: GroupServiceAsyncStub) -> pb.OffsetDeleteResponse:
            return await self._cluster.ask(stub.OffsetDelete, request)

        _, answer = await self._ask_coordinator(group_id, ask)
        return [
            ((topic.name, row.partition_index), read_error(row)) for topic in answer.topics for row in topic.partitions
        ]

    def _living(self) -> list[tuple[int, Endpoint]]:
        nodes = self._cluster.image.nodes
        return [(node.node_id, node.client_endpoint) for node in nodes if not node.fenced and node.client_endpoint]

    def _stub(self, endpoint: Endpoint) -> GroupServiceAsyncStub:
        stub: GroupServiceAsyncStub = GroupServiceStub(self._cluster.channels.to(endpoint))
        return stub


def assigned_to(member: pb.DescribedGroupMember) -> list[Named]:
    """The partitions that a member reads."""
    return [(topic.topic, index) for topic in member.assignment for index in topic.partitions]


@asynccontextmanager
async def open_groups(bootstrap: str) -> AsyncIterator[Groups]:
    """The groups of the cluster at ``bootstrap``."""
    cluster = Cluster(addresses(bootstrap), **tls_options())
    await cluster.start()
    try:
        await cluster.fetch_image()
        yield Groups(cluster)
    finally:
        await cluster.close()
