"""Which node coordinates a group or a transactional id, by the word of the living nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from running_cluster import CALL_S, until

from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE, partition_of
from strandline.v1 import group_service_pb2 as pb
from strandline.v1.group_service_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    from harness.run import Run


class Coordinated(NamedTuple):
    """What has a coordinator: the key, what kind of key it is, and the topic whose leaders coordinate such keys."""

    key: str
    kind: pb.CoordinatorKeyType
    topic: str


def group(group_id: str) -> Coordinated:
    """A consumer group."""
    return Coordinated(group_id, pb.COORDINATOR_KEY_TYPE_UNSPECIFIED, GROUP_STATE)


def transactional_id(name: str) -> Coordinated:
    """A transactional id."""
    return Coordinated(name, pb.COORDINATOR_KEY_TYPE_TRANSACTION, TRANSACTION_STATE)


async def coordinator(run: Run, of: Coordinated) -> int:
    """The node that the living nodes name (FindCoordinator)."""
    request = pb.FindCoordinatorRequest(key_type=of.kind, coordinator_keys=[of.key])

    async def look() -> list[int]:
        for node_id, service in run.cluster.nodes.items():
            if not service.running:
                continue
            stub = GroupServiceStub(run.probe.channel(node_id))
            (found,) = (await stub.FindCoordinator(request, timeout=CALL_S)).coordinators
            if not found.error_code and found.HasField("node_id"):
                return [found.node_id]
        return []

    return (await until(look, f"a node names the coordinator of {of.key}"))[0]


async def coordinator_epoch(run: Run, of: Coordinated) -> int:
    """The leader epoch of the partition whose leader is the coordinator."""
    state = await run.probe.topic(of.topic)
    return state.partitions[partition_of(of.key, len(state.partitions))].leader_epoch
