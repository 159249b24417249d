"""When a data node is ready, what it logs of its roles, and the workers of a machine."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from controller_stub import ControllerStub, topic
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nodes_in_process import TOPIC, TOPIC_ID, build_node, running_nodes

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules, TopicPartition
from strandline.node.seen import following, why_not_ready
from strandline.node.settings import ReplicaSettings
from strandline.node.workers import Worker, WorkersWrong, single_node_refusal, workers_of
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
            [replace(_image(leader=1, isr=(1,)), adding=(ME,), original=(NodeId(1),))],
            None,
            id="what a move adds it to does not count yet",
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


# A node logs once for each leader epoch which leader it follows.


TP = TopicPartition("t", 0)


def _partition(leader: int | None, epoch: int, *, isr: tuple[int, ...] = (1, 2)) -> PartitionImage:
    return PartitionImage(
        tp=TP,
        replicas=(NodeId(1), NodeId(2)),
        isr=tuple(map(NodeId, isr)),
        leader=None if leader is None else NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(7),
        min_isr=1,
    )


def _image_lines(partition: PartitionImage) -> MetadataImage:
    topic = TopicImage(name="tides", topic_id="t", partitions=(partition,))
    return MetadataImage(
        cluster_id="c", controller_epoch=1, metadata_offset=1, is_snapshot=False, rules=Rules(), topics=(topic,)
    )


def test_a_new_leader_is_named_with_its_epoch() -> None:
    """The line has topic, partition, leader, both epochs, the ISR and whether this node is in it."""
    lines = list(following(ME, {TP: _partition(1, 3)}.get, _image_lines(_partition(1, 4, isr=(1,)))))

    assert lines == [
        {
            "topic": "tides",
            "partition": 0,
            "leader": 1,
            "leader_epoch": 4,
            "partition_epoch": 7,
            "isr": [1],
            "in_isr": False,
        }
    ]


def test_the_same_epoch_is_reported_once() -> None:
    """A change of the ISR, or a repeated image, is not a new role."""
    assert list(following(ME, {TP: _partition(1, 4)}.get, _image_lines(_partition(1, 4, isr=(1,))))) == []


def test_an_older_image_is_not_reported() -> None:
    """Metadata that the node does not accept is not logged."""
    assert list(following(ME, {TP: _partition(1, 4)}.get, _image_lines(_partition(1, 3)))) == []


def test_the_leader_itself_follows_nobody() -> None:
    """A leader follows no node, and its line is logged when its epoch has begun."""
    assert list(following(ME, {}.get, _image_lines(_partition(2, 0)))) == []


def test_a_partition_without_a_leader_is_waited_for() -> None:
    """For a partition without a leader the line names no leader."""
    assert [
        line["leader"] for line in following(ME, {TP: _partition(1, 3)}.get, _image_lines(_partition(None, 4)))
    ] == [None]


# The workers of a machine: which ids, ports, directories and racks they have, and what is refused.


def settings(data_dir: Path, **given: Any) -> ReplicaSettings:
    """Settings of two workers, from node id 10, with what is given."""
    values = {"node_id": 10, "data_dir": data_dir, "controllers": "127.0.0.1:9092", "workers": 2, "insecure": True}
    return ReplicaSettings.model_validate(values | given)


def own(data_dir: Path, **given: Any) -> list[Worker]:
    """The workers of such settings."""
    return workers_of(settings(data_dir, **given))


def hold_a_node(directory: Path) -> None:
    """Let a directory look like that of a node."""
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_text("version=2\n")


def test_ids_and_directories_follow_the_rule(tmp_path: Path) -> None:
    """Worker k has the id node_id + k and the directory worker-k, and starts no workers itself."""
    workers = own(tmp_path, workers=3)

    assert [worker.node_id for worker in workers] == [10, 11, 12]
    assert [worker.settings["node_id"] for worker in workers] == ["10", "11", "12"]
    assert [worker.settings["data_dir"] for worker in workers] == [str(tmp_path / f"worker-{k}") for k in range(3)]
    assert {worker.settings["workers"] for worker in workers} == {"1"}


def test_ports_that_are_set_count_up(tmp_path: Path) -> None:
    """Worker k listens on every port that is set plus k, and names the same in what it advertises."""
    ports = {"bind": "127.0.0.1:9100", "internal_bind": "127.0.0.1:9200", "metrics_bind": "127.0.0.1:9300"}
    second = own(tmp_path, **ports, advertise="one.example:9100", internal_advertise="one.example")[1].settings

    assert [second[name] for name in ports] == ["127.0.0.1:9101", "127.0.0.1:9201", "127.0.0.1:9301"]
    assert second["advertise"] == "one.example:9101"
    assert second["internal_advertise"] == "one.example"


def test_ports_that_the_kernel_chooses_stay_so(tmp_path: Path) -> None:
    """Port 0 is port 0 for every worker."""
    assert {worker.settings["bind"] for worker in own(tmp_path, bind="127.0.0.1:0")} == {"127.0.0.1:0"}


def test_all_workers_have_the_rack_of_the_machine(tmp_path: Path) -> None:
    """The rack is the one that was given, and the host's name where none was."""
    assert [worker.settings["rack"] for worker in own(tmp_path, rack="m1")] == ["m1", "m1"]
    assert [worker.settings["rack"] for worker in own(tmp_path)] == [socket.gethostname()] * 2


def test_each_worker_has_its_own_certificate(tmp_path: Path) -> None:
    """{node_id} in the names of the files is the worker's id."""
    tls = {"tls_cert": "certs/{node_id}.pem", "tls_key": "certs/{node_id}.key", "tls_ca": "ca.pem", "insecure": False}
    second = own(tmp_path, **tls)[1].settings

    assert (second["tls_cert"], second["tls_key"]) == ("certs/11.pem", "certs/11.key")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bind": "127.0.0.1:9100", "internal_bind": "127.0.0.1:9101"}, "settings bind and internal_bind"),
        ({"bind": "0.0.0.0:9100", "advertise": "a", "metrics_bind": "127.0.0.1:9101"}, "bind and metrics_bind"),
        ({"bind": "127.0.0.1:65535"}, "setting bind: worker k listens on port 65535 + k"),
        ({"tls_cert": "one.pem", "tls_key": "one.key", "tls_ca": "ca", "insecure": False}, "setting tls_cert"),
    ],
)
def test_what_workers_would_share_is_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    """Ports that would meet, ports that there are not, and one certificate for several nodes are refused by name."""
    with pytest.raises(WorkersWrong, match=re.escape(said)) as refused:
        own(tmp_path, **given)
    assert "\n" not in str(refused.value)


def test_ports_far_enough_apart_are_taken(tmp_path: Path) -> None:
    """As many ports as workers between two of them are enough."""
    assert len(own(tmp_path, bind="127.0.0.1:9100", internal_bind="127.0.0.1:9102")) == 2


def test_the_directory_of_one_node_is_refused(tmp_path: Path) -> None:
    """What one node wrote would lie beside the workers, and no process would serve it."""
    hold_a_node(tmp_path / "data")

    with pytest.raises(WorkersWrong, match="is the directory of one node"):
        own(tmp_path / "data")


def test_fewer_workers_than_there_were_are_refused(tmp_path: Path) -> None:
    """A worker that would not start again leaves its partitions with one replica less, so its number is named."""
    for number in range(3):
        hold_a_node(tmp_path / f"worker-{number}")

    with pytest.raises(WorkersWrong, match="worker-2 holds a node that 2 workers would not start"):
        own(tmp_path)
    assert len(own(tmp_path, workers=3)) == 3
    assert len(own(tmp_path, workers=4)) == 4


def test_one_node_is_refused_where_workers_were(tmp_path: Path) -> None:
    """One node beside the directories of workers would begin with nothing, under an id that held records."""
    assert single_node_refusal(tmp_path) == ""
    hold_a_node(tmp_path / "worker-0")
    hold_a_node(tmp_path / "worker-1")

    assert "--workers 2" in single_node_refusal(tmp_path)


@pytest.mark.parametrize("workers", [0, -1, 65])
def test_numbers_of_workers_are_bounded(tmp_path: Path, workers: int) -> None:
    """There is at least one worker, and there are at most 64."""
    with pytest.raises(ValueError, match="workers"):
        settings(tmp_path, workers=workers)
