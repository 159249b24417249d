"""Starting a cluster of real processes, calling it, and waiting for a condition.

Invariant: every call and every wait has a deadline; a wait checks a condition and never relies on elapsed time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import grpc

from strandline.cli.local.local_cluster import LocalCluster, Plan
from strandline.client import ClusterUnreachable
from strandline.rpc.channels import Channels, parse_endpoint
from strandline.rpc.tls import open_tls
from strandline.v1 import (
    controller_service_pb2 as controller_pb,
    follower_service_pb2 as follower_pb,
    leader_service_pb2 as leader_pb,
    metadata_pb2,
    partition_pb2,
)
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub
from strandline.v1.follower_service_pb2_grpc import FollowerServiceStub
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

if TYPE_CHECKING:
    # Only in the generated stubs: at run time one class serves both kinds of channel.
    from strandline.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub
    from strandline.v1.follower_service_pb2_grpc import FollowerServiceAsyncStub
    from strandline.v1.leader_service_pb2_grpc import LeaderServiceAsyncStub

SESSION_TIMEOUT_MS = 1_500
CALL_S = 5.0
SETTLE_S = 30.0
"""How long after the last fault everything may take to be whole again (V2 of RELIABILITY.md#the-criteria)."""
SESSION_S = SESSION_TIMEOUT_MS / 1000

_LOOK_EVERY_S = 0.05
_ASK_EVERY_S = 0.005
_ASK_S = 1.0

CONTROLLER_SETTINGS = {"session_timeout_ms": str(SESSION_TIMEOUT_MS), "heartbeat_interval_ms": "250"}
NODE_SETTINGS = {
    "segment_bytes": str(1 << 20),
    "replica_lag_time_max_ms": "3000",
    "tune": "replica_fetch_wait_max_ms=200,ping_every_ms=1000,ping_timeout_ms=1000",
    # A test machine's disk may be fuller than a server's.
    "low_space_bytes": "0",
}

_Found = TypeVar("_Found")


def plan(
    directory: Path,
    *,
    nodes: int = 3,
    observers: int = 0,
    rules: Mapping[str, str] | None = None,
    tls: bool = False,
    controllers: int = 1,
) -> Plan:
    """A cluster with the settings of the fault tests: short sessions, small segments; ``rules`` as settings."""
    return Plan(
        directory=directory,
        nodes=nodes,
        observers=observers,
        controller_settings=CONTROLLER_SETTINGS | dict(rules or {}),
        node_settings=NODE_SETTINGS | dict(rules or {}),
        tls=tls,
        controllers=controllers,
    )


def started(what: Plan) -> LocalCluster:
    """A running cluster, started outside of any test's event loop."""
    cluster = LocalCluster(what)
    try:
        asyncio.run(cluster.start())
    except BaseException:
        cluster.kill()
        raise
    return cluster


def stopped(cluster: LocalCluster) -> list[str]:
    """Stops a cluster and returns every exit that was not clean, except those that were requested earlier."""
    killed = {service.name for service in cluster.services if not service.running and service.end_expected}
    ends = asyncio.run(cluster.stop())
    return [end.sentence for end in ends if end.name not in killed and (end.forced or end.code != 0)]


@contextmanager
def running(what: Plan) -> Iterator[LocalCluster]:
    """A cluster; at the end every process must stop cleanly, and none may have logged an alarm."""
    cluster = started(what)
    try:
        yield cluster
        ends = stopped(cluster)
    finally:
        cluster.kill()

    assert ends == []
    assert alarms(cluster) == []


def deaths(cluster: LocalCluster) -> list[str]:
    """Exits that no test requested, each with the process's last line (V3 of RELIABILITY.md#the-criteria)."""
    return [service.epitaph() for service in cluster.services if service.found_dead() is not None]


def alarms(cluster: LocalCluster) -> list[str]:
    """Lines of the processes' output that only a defect writes."""
    words = (
        '"level": "error"',
        '"level": "critical"',
        "Traceback",
        "AssertionError",
        "never awaited",
        "never retrieved",
    )
    return [
        f"{service.name}: {line[:300]}"
        for service in cluster.services
        for line in service.output.read_text(errors="replace").splitlines()
        if any(word in line for word in words)
    ]


async def until(look: Callable[[], Awaitable[_Found | None]], what: str, *, timeout_s: float = SETTLE_S) -> _Found:
    """Returns the result of ``look`` as soon as it is true.

    A failed call, an unreachable cluster and a missing replica count as no result: processes may still be starting.

    Raises:
        AssertionError: with ``what`` and the last failure, when ``timeout_s`` has passed.
    """
    deadline = time.monotonic() + timeout_s
    failure = ""
    while time.monotonic() < deadline:
        try:
            found = await look()
        except grpc.aio.AioRpcError as error:
            failure = f"; last failure: {error.code().name} {error.details()}"
        except (LookupError, ClusterUnreachable) as error:
            failure = f"; last failure: {error}"
        else:
            failure = ""
            if found:
                return found
        await asyncio.sleep(_LOOK_EVERY_S)
    raise AssertionError(f"not within {timeout_s:g} s: {what}{failure}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """One replica as its own node reports it."""

    leo: int
    hw: int
    epochs: tuple[tuple[int, int], ...]
    """(epoch, start offset), oldest first."""

    @property
    def committed_epochs(self) -> tuple[tuple[int, int], ...]:
        """The entries that cover committed records."""
        return tuple(entry for entry in self.epochs if entry[1] < self.hw)


@dataclass(slots=True)
class Probe:
    """Calls the processes of a cluster through the generated stubs. Belongs to one event loop."""

    local: LocalCluster
    holder: str = "admin"
    """Whose certificate it shows to a cluster with TLS."""
    asked: int = 0
    """Which of several controllers is asked, by its place in the bootstrap."""
    channels: Channels = field(init=False)

    def __post_init__(self) -> None:
        # Clusters in namespaces and containers may not have TLS.
        client_tls = getattr(self.local, "client_tls", None)
        self.channels = Channels(tls=open_tls(**client_tls(self.holder)) if client_tls else None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.channels.close()

    @property
    def controller(self) -> ControllerServiceAsyncStub:
        """The controller, or the one of several that is asked."""
        return self.controller_at(self.asked)

    def controller_at(self, place: int) -> ControllerServiceAsyncStub:
        """One of several controllers, by its place in the bootstrap."""
        return ControllerServiceStub(self.channels.to(parse_endpoint(self.local.bootstrap.split(",")[place])))

    async def decides(self, place: int) -> bool:
        """Whether a controller accepts a change now."""
        try:
            await self.controller_at(place).InitProducerId(controller_pb.InitProducerIdRequest(), timeout=_ASK_S)
        except grpc.aio.AioRpcError:
            return False
        return True

    async def active(self, *, other_than: int | None = None) -> int:
        """The place of the controller that accepts a change, asked for without a pause to speak of.

        It is the one that is asked from now on.
        """
        places = [place for place in range(len(self.local.bootstrap.split(","))) if place != other_than]
        async with asyncio.timeout(SETTLE_S):
            while True:
                for place in places:
                    if await self.decides(place):
                        self.asked = place
                        return place
                await asyncio.sleep(_ASK_EVERY_S)

    def channel(self, node_id: int, *, internal: bool = False) -> grpc.aio.Channel:
        """A channel to one of a node's ports."""
        address = self.local.address(node_id)
        assert address is not None, f"node {node_id} never served"
        text = address.internal if internal else address.client
        assert text is not None
        return self.channels.to(parse_endpoint(text))

    def leader_service(self, node_id: int) -> LeaderServiceAsyncStub:
        """A node's LeaderService."""
        return LeaderServiceStub(self.channel(node_id))

    def follower_service(self, node_id: int) -> FollowerServiceAsyncStub:
        """A node's FollowerService."""
        return FollowerServiceStub(self.channel(node_id))

    async def metadata(self) -> metadata_pb2.ClusterMetadata:
        """The cluster's current state at the controller."""
        return (await self.controller.GetMetadata(controller_pb.GetMetadataRequest(), timeout=CALL_S)).metadata

    async def topic(self, name: str) -> metadata_pb2.TopicMetadata:
        """One topic's state."""
        found = [topic for topic in (await self.metadata()).topics if topic.name == name]
        assert found, f"the controller knows no topic {name}"
        return found[0]

    async def partition(self, topic: str, index: int = 0) -> metadata_pb2.PartitionMetadata:
        """One partition's state."""
        return (await self.topic(topic)).partitions[index]

    async def node(self, node_id: int) -> metadata_pb2.NodeMetadata:
        """One node's state."""
        return next(node for node in (await self.metadata()).nodes if node.node_id == node_id)

    async def is_fenced(self, node_id: int) -> bool:
        """Whether a node's session has ended."""
        return (await self.node(node_id)).fenced

    async def is_unfenced(self, node_id: int) -> bool:
        """Whether a node is a live member."""
        return not await self.is_fenced(node_id)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 3,
        assignment: list[int] | None = None,
        **configs: str,
    ) -> metadata_pb2.TopicMetadata:
        """Creates a topic and waits until all its replicas are in sync. Configs by name, dots as underscores."""
        request = controller_pb.CreatableTopic(
            name=name, configs={key.replace("_", "."): value for key, value in configs.items()}
        )
        if assignment is None:
            request.num_partitions, request.replication_factor = partitions, replication_factor
        else:
            request.assignments.add(partition_index=0, node_ids=assignment)

        async def ask() -> controller_pb.CreateTopicsResponse:
            wanted = controller_pb.CreateTopicsRequest(topics=[request], timeout_ms=10_000)
            return await self.controller.CreateTopics(wanted, timeout=15)

        # A controller that has just begun to decide refuses until a node has reported to it.
        answer = await until(ask, f"the controller creates {name}")
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        await self.in_sync(name)
        return await self.topic(name)

    async def leader(self, topic: str, index: int = 0, *, other_than: int | None = None) -> int:
        """Waits for a leader, optionally for one other than before."""

        async def look() -> list[int]:
            now = await self.partition(topic, index)
            return [now.leader_id] if now.HasField("leader_id") and now.leader_id != other_than else []

        return (await until(look, f"{topic}-{index} has a leader other than {other_than}"))[0]

    async def new_epoch(self, topic: str, epoch: int, index: int = 0) -> metadata_pb2.PartitionMetadata:
        """Waits for a leader of a later epoch than ``epoch``."""

        async def look() -> metadata_pb2.PartitionMetadata | None:
            now = await self.partition(topic, index)
            return now if now.HasField("leader_id") and now.leader_epoch > epoch else None

        return await until(look, f"{topic}-{index} has a leader after epoch {epoch}")

    async def writable(self, topic: str) -> None:
        """Waits until the leader of partition 0 counts enough replicas for acks=all."""

        async def look() -> bool:
            now = await self.partition(topic)
            if not now.HasField("leader_id"):
                return False
            led = await self.described(topic, now.leader_id)
            return not led.error_code and len(led.isr) >= led.min_insync_replicas

        await until(look, f"{topic}-0 has min.insync.replicas")

    async def in_sync(self, topic: str) -> None:
        """Waits until every replica of every partition is in the ISR and each leader serves."""

        async def look() -> bool:
            found = (await self.topic(topic)).partitions
            whole = all(p.HasField("leader_id") and set(p.isr) == set(p.replicas) for p in found)
            if not whole:
                return False
            for each in found:
                led = await self.described(topic, each.leader_id, each.partition_index)
                if led.error_code or led.leader_epoch != each.leader_epoch:
                    return False
            return True

        await until(look, f"every replica of {topic} is in the ISR")

    async def described(self, topic: str, node_id: int, index: int = 0) -> leader_pb.DescribedPartition:
        """A partition as reported by one node, which should lead it."""
        wanted = partition_pb2.TopicPartitions(topic=topic, partitions=[index])
        answer = await self.leader_service(node_id).DescribePartitions(
            leader_pb.DescribePartitionsRequest(topics=[wanted]), timeout=CALL_S
        )
        return answer.topics[0].partitions[0]

    async def replica(self, topic: str, node_id: int, index: int = 0) -> ReplicaState:
        """A replica as its own node reports it.

        Raises:
            LookupError: the node does not hold it, or does not know it yet.
        """
        found = await self.own_view(topic, node_id, index)
        if found.error_code:
            raise LookupError(found.error_message)
        epochs = tuple((entry.epoch, entry.start_offset) for entry in found.epoch_entries)
        return ReplicaState(leo=found.log_end_offset, hw=found.high_watermark, epochs=epochs)

    async def own_view(self, topic: str, node_id: int, index: int = 0) -> follower_pb.DescribedReplica:
        """A replica as its own node reports it, errors included."""
        wanted = partition_pb2.TopicPartitions(topic=topic, partitions=[index])
        answer = await self.follower_service(node_id).DescribeReplicas(
            follower_pb.DescribeReplicasRequest(topics=[wanted]), timeout=CALL_S
        )
        return answer.topics[0].partitions[0]

    async def latest(self, topic: str, node_id: int, index: int = 0) -> leader_pb.ListOffsetsPartitionResponse:
        """A partition's end for clients, as one node returns it."""
        wanted = leader_pb.ListOffsetsTopic(
            name=topic, partitions=[leader_pb.ListOffsetsPartition(partition_index=index, timestamp=-1)]
        )
        answer = await self.leader_service(node_id).ListOffsets(
            leader_pb.ListOffsetsRequest(topics=[wanted]), timeout=CALL_S
        )
        return answer.topics[0].partitions[0]

    def pause(self, node_id: int) -> None:
        """Pauses a process (SIGSTOP): its sockets stay open and its session keeps running."""
        pid = self.local.nodes[node_id].pid
        assert pid is not None, f"node {node_id} does not run"
        os.kill(pid, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Resumes a paused process."""
        pid = self.local.nodes[node_id].pid
        assert pid is not None, f"node {node_id} does not run"
        os.kill(pid, signal.SIGCONT)

    async def kill_together(self, *node_ids: int) -> None:
        """`kill -9` of several nodes that the controller detects at the same time: none of them outlives the others."""
        controller = self.local.controller.pid
        assert controller is not None, "the controller does not run"
        os.kill(controller, signal.SIGSTOP)
        try:
            for node_id in node_ids:
                self.local.kill_node(node_id)
            await until(lambda: self._none_runs(node_ids), f"nodes {node_ids} ended")
        finally:
            os.kill(controller, signal.SIGCONT)

    async def _none_runs(self, node_ids: Sequence[int]) -> bool:
        return not any(self.local.nodes[node_id].running for node_id in node_ids)

    async def restart(self, node_id: int) -> None:
        """Starts a node that was killed or stopped, and waits until it serves."""
        await self.local.start_node(node_id)

    async def everybody(self) -> None:
        """Starts every process that does not run, and waits until every node is registered and unfenced."""
        if not self.local.controller.running:
            await self.local.start_controller()
        missing = [node_id for node_id, service in self.local.nodes.items() if not service.running]
        await asyncio.gather(*(self.restart(node_id) for node_id in missing))

        async def look() -> bool:
            nodes = (await self.metadata()).nodes
            return len(nodes) == len(self.local.nodes) and not any(node.fenced for node in nodes)

        await until(look, "every node is unfenced")


async def with_topics(cluster: LocalCluster, *topics: str, partitions: int) -> None:
    """Creates topics with one replica as soon as every node is registered."""
    async with Probe(cluster) as probe:
        await probe.everybody()
        for topic in topics:
            await probe.create_topic(topic, partitions=partitions, replication_factor=1)
