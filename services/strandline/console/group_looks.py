"""How the console learns of groups: each node is asked for those that it coordinates, with their members and offsets.

Invariant: at most one look at a node is under way; a node with many members and offsets is looked at less often, so
that it tells at most 1,000 of them a second; a node that does not answer keeps its last answer on the page, with its
age. What a look costs is bounded: of more groups than `MOST_GROUPS` the first by name are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.client import DescribedGroup, TopicPartition
from strandline.client.administer.described_groups import group_of
from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import ClusterUnreachable
from strandline.console.picture import GroupLook, HeldGroup
from strandline.core.errors import Refused
from strandline.core.messages import Endpoint
from strandline.core.types import NodeId
from strandline.rpc.convert.errors import read_error
from strandline.runtime.clock import Clock
from strandline.v1 import group_service_pb2 as pb
from strandline.v1.group_service_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.group_service_pb2_grpc import GroupServiceAsyncStub

MOST_GROUPS = 500
_AT_ONCE = 50
_REST_MS = 2_000
_MS_PER_ROW = 1


class GroupLooks:
    """Looks at the groups of each node; ``tell`` gets what was seen."""

    def __init__(
        self,
        clock: Clock,
        deadline_ms: int,
        known: Callable[[NodeId], GroupLook],
        tell: Callable[[NodeId, GroupLook], None],
    ) -> None:
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._known = known
        self._tell = tell
        self._looking: set[NodeId] = set()
        self._rest_until: dict[NodeId, int] = {}

    def is_due(self, node_id: NodeId) -> bool:
        """Whether this node may be looked at."""
        return node_id not in self._looking and self._clock() >= self._rest_until.get(node_id, 0)

    async def look_at(self, cluster: Cluster, node_id: NodeId, endpoint: Endpoint) -> None:
        """Look at one node now."""
        self._looking.add(node_id)
        begun_ms, rows = self._clock(), 0
        try:
            look = await self._ask(cluster, node_id, endpoint)
        except (Refused, ClusterUnreachable) as error:
            known = self._known(node_id)
            since_ms = begun_ms if known.failing_since_ms is None else known.failing_since_ms
            self._tell(node_id, replace(known, failing_since_ms=since_ms, failure=str(error).splitlines()[0][:200]))
        else:
            rows = sum(len(one.described.members) + len(one.committed or ()) for one in look.groups)
            self._tell(node_id, look)
        finally:
            self._looking.discard(node_id)
            self._rest_until[node_id] = begun_ms + max(_REST_MS, _MS_PER_ROW * rows)

    async def _ask(self, cluster: Cluster, node_id: NodeId, endpoint: Endpoint) -> GroupLook:
        stub: GroupServiceAsyncStub = GroupServiceStub(cluster.channels.to(endpoint))
        listed = await cluster.ask(
            stub.ListGroups, pb.ListGroupsRequest(cluster_id=cluster.cluster_id), deadline_ms=self._deadline_ms
        )
        names = sorted(group.group_id for group in listed.groups)
        described: dict[str, DescribedGroup] = {}
        committed: dict[str, Mapping[TopicPartition, int]] = {}
        for first in range(0, min(len(names), MOST_GROUPS), _AT_ONCE):
            asked = names[first : min(first + _AT_ONCE, MOST_GROUPS)]
            described |= await self._describe(cluster, stub, node_id, asked)
            committed |= await self._offsets(cluster, stub, asked)
        lacking = read_error(listed)
        return GroupLook(
            answered_ms=self._clock(),
            lacking="" if lacking is None else str(lacking).splitlines()[0][:200],
            left_out=max(0, len(names) - MOST_GROUPS),
            groups=tuple(HeldGroup(one, committed.get(name)) for name, one in described.items()),
        )

    async def _describe(
        self, cluster: Cluster, stub: GroupServiceAsyncStub, node_id: NodeId, names: Iterable[str]
    ) -> dict[str, DescribedGroup]:
        request = pb.DescribeGroupsRequest(cluster_id=cluster.cluster_id, group_ids=names)
        answer = await cluster.ask(stub.DescribeGroups, request, deadline_ms=self._deadline_ms)
        return {row.group_id: group_of(row, node_id) for row in answer.groups if not row.error_code}

    async def _offsets(
        self, cluster: Cluster, stub: GroupServiceAsyncStub, names: Iterable[str]
    ) -> dict[str, Mapping[TopicPartition, int]]:
        # Without require_stable: what the coordinator holds, also while it cannot commit.
        asked = [pb.OffsetFetchGroup(group_id=name) for name in names]
        request = pb.OffsetFetchRequest(cluster_id=cluster.cluster_id, groups=asked)
        answer = await cluster.ask(stub.OffsetFetch, request, deadline_ms=self._deadline_ms)
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
