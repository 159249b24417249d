"""Where the coordinator of one group is (G2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.client.coordinator import Coordinator, CoordinatorKind
from strandline.client.metadata import Cluster
from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.v1 import group_service_pb2 as pb
from strandline.v1.group_service_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    # The stubs' async faces exist for the type checker only.
    from strandline.v1.group_service_pb2_grpc import GroupServiceAsyncStub

_GROUPS: CoordinatorKind[GroupServiceAsyncStub] = CoordinatorKind(
    "group", GROUP_STATE, pb.COORDINATOR_KEY_TYPE_UNSPECIFIED, GroupServiceStub
)


class GroupCoordinator(Coordinator["GroupServiceAsyncStub"]):
    """The coordinator of one group."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        super().__init__(cluster, _GROUPS, group_id)
        self.group_id = group_id
