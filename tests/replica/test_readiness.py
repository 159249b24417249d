"""When a data node is ready: the rule as a table, and a live port that reports it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from controller_stub import ControllerStub, topic
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nodes_in_process import TOPIC, TOPIC_ID, build_node, running_nodes

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import NodeImage, PartitionImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.node.seen import why_not_ready
from strandline.rpc.channels import open_channel

ME = NodeId(2)
EPOCH = NodeEpoch(102)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _node(*, epoch: int = EPOCH, fenced: bool = False, full: bool = False) -> dict[NodeId, NodeImage]:
    return {ME: NodeImage(node_id=ME, node_epoch=NodeEpoch(epoch), fenced=fenced, disk_nearly_full=full)}


def _image(*, leader: int | None, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2)) -> PartitionImage:
    return PartitionImage(
        tp=TopicPartition("t", 0),
        replicas=tuple(map(NodeId, replicas)),
        isr=tuple(map(NodeId, isr)),
        leader=None if leader is None else NodeId(leader),
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        min_isr=1,
        observers=() if ME in replicas else (ME,),
    )


@pytest.mark.parametrize(
    ("node_epoch", "nodes", "images", "lacking"),
    [
        pytest.param(None, _node(), [], "not registered", id="before it is registered"),
        pytest.param(EPOCH, {}, [], "no metadata names this process yet", id="registered, without metadata"),
        pytest.param(EPOCH, _node(epoch=99), [], "no metadata names this process yet", id="metadata of its last life"),
        pytest.param(EPOCH, _node(fenced=True), [], "fenced", id="fenced"),
        pytest.param(EPOCH, _node(full=True), [], "its disk is nearly full, so it refuses appends", id="full"),
        pytest.param(EPOCH, _node(), [], None, id="nothing assigned"),
        pytest.param(EPOCH, _node(), [_image(leader=1, isr=(1, 2))], None, id="in sync"),
        pytest.param(
            EPOCH, _node(), [_image(leader=1, isr=(1,))], "not in the ISR of 1 partitions: t-0", id="behind its leader"
        ),
        pytest.param(EPOCH, _node(), [_image(leader=None, isr=(1,))], None, id="an offline partition does not block"),
        pytest.param(EPOCH, _node(), [_image(leader=2, isr=(2,))], None, id="its own leadership counts"),
        pytest.param(
            EPOCH, _node(), [_image(leader=1, isr=(1, 3), replicas=(1, 3))], None, id="what it observes is not its own"
        ),
        pytest.param(
            EPOCH,
            _node(),
            [_image(leader=1, isr=(1, 2)), *[_image(leader=1, isr=(1,))] * 5],
            "not in the ISR of 5 partitions: t-0, t-0, t-0 and 2 more",
            id="many at once are counted",
        ),
    ],
)
def test_the_rule(node_epoch: NodeEpoch | None, nodes: Any, images: Any, lacking: str | None) -> None:
    """Registered, unfenced, and in the ISR of every assigned partition that has a leader."""
    assert why_not_ready(ME, node_epoch, nodes, images) == lacking


async def _health(channel: grpc.aio.Channel, name: str) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
    return int(answer.status)


async def _until_ready(channel: grpc.aio.Channel) -> None:
    """Return when a watch of readiness reports SERVING."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    async for answer in stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=10):
        if answer.status == SERVING:
            return


async def test_every_port_tells_readiness(tmp_path: Path) -> None:
    """The health port and both ports of the services agree."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    async with running_nodes(controller, tmp_path, health_bind="127.0.0.1:0") as (node,):
        for endpoint in (node.health_endpoint, node.client, node.internal):
            assert endpoint is not None
            async with open_channel(endpoint) as channel:
                await _until_ready(channel)
                assert await _health(channel, "liveness") == SERVING


async def test_the_health_port_serves_nothing_else(tmp_path: Path) -> None:
    """Neither a Strandline service nor reflection is available on the port without TLS."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    async with running_nodes(controller, tmp_path, health_bind="127.0.0.1:0") as (node,):
        assert node.health_endpoint is not None
        async with open_channel(node.health_endpoint) as channel:
            for method in (
                "/strandline.v1.LeaderService/Produce",
                "/strandline.v1.FollowerService/Fetch",
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary(method)(b"", timeout=5)
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_node_that_waits_for_its_controller_lives_and_is_not_ready(tmp_path: Path) -> None:
    """Liveness is available before the registration; readiness and the services are not."""
    controller = ControllerStub(topic(TOPIC, TOPIC_ID, (1,)))
    controller.refuse_registration = Refusal(ErrorCode.NETWORK_EXCEPTION, "not yet")
    await controller.start()
    node = build_node(controller, tmp_path / "node-1", 1, health_bind="127.0.0.1:0")
    starting = asyncio.ensure_future(node.start())
    async with asyncio.timeout(10):
        while node.health_endpoint is None:  # noqa: ASYNC110 - the port's opening raises no event for a test
            await asyncio.sleep(0.005)
        async with open_channel(node.health_endpoint) as channel:
            said = [await _health(channel, name) for name in ("liveness", "readiness", "")]
        controller.refuse_registration = None
        await starting
    await node.shut_down()
    await controller.stop()

    assert said == [SERVING, NOT_SERVING, NOT_SERVING]
