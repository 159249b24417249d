"""HW, ISR and epochs of a partition do not change, for any caller without the right certificate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from certificates import CLUSTER, settings_of
from secured_cluster import Secured, build_node, secured_cluster, until

from strandline.cli.local.authority import new_authority
from strandline.client import Producer
from strandline.core.errors import ErrorCode
from strandline.core.messages import Endpoint
from strandline.rpc.channels import target
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import TlsFiles
from strandline.v1 import controller_service_pb2 as controller_pb, leader_service_pb2 as leader_pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub
from strandline.v1.leader_service_pb2_grpc import LeaderServiceStub

TOPIC = "orders"
RECORDS = 3
DEADLINE_S = 5


class Seen(NamedTuple):
    """All state of the partition that a stranger might want to change."""

    leader: int | None
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    high_watermark: int
    leo: int
    remote_leos: tuple[tuple[int, int | None], ...]


async def _seen(cluster: Secured) -> Seen:
    image, view = await cluster.partition(TOPIC), await cluster.led(TOPIC)
    remote = tuple(sorted((replica.node_id, replica.remote_leo) for replica in view.replicas))
    return Seen(
        image.leader, image.leader_epoch, image.partition_epoch, tuple(sorted(image.isr)),
        view.high_watermark, view.leo, remote,
    )  # fmt: skip


@asynccontextmanager
async def _with_records(directory: Path) -> AsyncIterator[Secured]:
    """An idle cluster with a topic of three replicas, and records that all of them hold."""
    async with secured_cluster(directory) as cluster:
        await cluster.admin.create_topic(TOPIC, partitions=1, replication_factor=3, assignments={0: [1, 2, 3]})
        client = settings_of(cluster.made.files("client/x"))
        async with Producer(target(cluster.for_clients), **client) as producer:
            for number in range(RECORDS):
                await (await producer.send(TOPIC, b"%d" % number))

        async def at_rest() -> bool:
            seen = await _seen(cluster)
            return seen.high_watermark == RECORDS and [leo for _, leo in seen.remote_leos].count(RECORDS) >= 2

        await until(at_rest, "every replica holds every record")
        yield cluster


@asynccontextmanager
async def _channel(endpoint: Endpoint, files: TlsFiles | None, ca: bytes = b"") -> AsyncIterator[grpc.aio.Channel]:
    """A stranger's channel: any certificate, unchecked."""
    address = target(endpoint)
    if files is None:
        credentials = grpc.ssl_channel_credentials(ca)
    else:
        credentials = grpc.ssl_channel_credentials(*(path.read_bytes() for path in (files.ca, files.key, files.cert)))
    async with grpc.aio.secure_channel(address, credentials) as channel:
        yield channel


class Attack:
    """Requests that would be accepted if their sender were genuine: right epochs, right ids, one false field."""

    def __init__(self, cluster: Secured, *, as_node: int, cluster_id: str = CLUSTER) -> None:
        self._cluster = cluster
        self._as_node = as_node
        self._cluster_id = cluster_id

    async def alter_partition(self, channel: grpc.aio.Channel) -> Any:
        """Remove node 3 from the ISR."""
        image = await self._cluster.partition(TOPIC)
        nodes = {node.node_id: node.node_epoch for node in (await self._cluster.admin.metadata()).nodes}
        proposal = controller_pb.AlterPartitionProposal(
            partition_index=0,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            new_isr_with_epochs=[{"node_id": 1, "node_epoch": nodes[1]}],
        )
        stub: Any = ControllerServiceStub(channel)
        return await stub.AlterPartition(
            controller_pb.AlterPartitionRequest(
                node_id=self._as_node,
                node_epoch=nodes[self._as_node],
                cluster_id=self._cluster_id,
                controller_epoch=1,
                request_sequence=1_000_000,
                topics=[{"topic_id": await self._cluster.topic_id(TOPIC), "partitions": [proposal]}],
            ),
            timeout=DEADLINE_S,
        )

    async def fetch(self, channel: grpc.aio.Channel) -> Any:
        """Claim a position that it does not have, so that it counts as committed."""
        image = await self._cluster.partition(TOPIC)
        nodes = {node.node_id: node.node_epoch for node in (await self._cluster.admin.metadata()).nodes}
        part = {
            "partition": 0,
            "fetch_offset": RECORDS,
            "current_leader_epoch": image.leader_epoch,
            "last_fetched_epoch": image.leader_epoch,
        }
        stub: Any = LeaderServiceStub(channel)
        return await stub.Fetch(
            leader_pb.FetchRequest(
                cluster_id=self._cluster_id,
                replica_state={"replica_id": self._as_node, "replica_epoch": nodes[self._as_node]},
                topics=[{"topic_id": await self._cluster.topic_id(TOPIC), "partitions": [part]}],
            ),
            timeout=DEADLINE_S,
        )

    async def heartbeat(self, channel: grpc.aio.Channel) -> Any:
        """Have the node fenced."""
        nodes = {node.node_id: node.node_epoch for node in (await self._cluster.admin.metadata()).nodes}
        stub: Any = ControllerServiceStub(channel)
        return await stub.Heartbeat(
            controller_pb.HeartbeatRequest(
                node_id=self._as_node,
                node_epoch=nodes[self._as_node],
                cluster_id=self._cluster_id,
                want_fence=True,
            ),
            timeout=DEADLINE_S,
        )


async def _refused(
    cluster: Secured, attack: Attack, files: TlsFiles | None
) -> set[tuple[grpc.StatusCode, ErrorCode | None]]:
    """The results of three attempts on both ports of their kind."""
    leader = cluster.nodes[0]
    assert leader.client is not None and leader.internal is not None
    ca = cluster.made.authority.pem
    found: set[tuple[grpc.StatusCode, ErrorCode | None]] = set()
    plan = [
        (attack.alter_partition, (cluster.for_nodes, cluster.for_clients)),
        (attack.heartbeat, (cluster.for_nodes, cluster.for_clients)),
        (attack.fetch, (leader.internal, leader.client)),
    ]
    for attempt, endpoints in plan:
        for endpoint in endpoints:
            async with _channel(endpoint, files, ca) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await attempt(channel)
            found.add((caught.value.code(), refusal_of(caught.value).code))
    return found


_SHUT_OUT = {(grpc.StatusCode.UNAVAILABLE, ErrorCode.NETWORK_EXCEPTION)}
_DENIED = {(grpc.StatusCode.PERMISSION_DENIED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}
_OTHER_CLUSTER = {(grpc.StatusCode.FAILED_PRECONDITION, ErrorCode.INCONSISTENT_CLUSTER_ID)}


async def test_nobody_without_the_right_certificate_moves_anything(tmp_path: Path) -> None:
    """No certificate, a foreign one, an expired one, another node's, a client's, another cluster's, a wrong cluster id.

    Each is rejected with its documented code, on every port, and the partition is afterwards unchanged.
    """
    async with _with_records(tmp_path) as cluster:
        made = cluster.made
        before = await _seen(cluster)
        as_3, as_1 = Attack(cluster, as_node=3), Attack(cluster, as_node=1)
        yesterday = datetime.now(UTC) - timedelta(days=2)
        strangers = replace(made, directory=tmp_path / "strangers")

        outcome = {
            "none": await _refused(cluster, as_1, None),
            "foreign": await _refused(cluster, as_1, strangers.files("replica/1", signed_by=new_authority(CLUSTER, 1))),
            "expired": await _refused(cluster, as_1, strangers.files("replica/1", now=yesterday)),
            "replica 2 as 3": await _refused(cluster, as_3, strangers.files("replica/2")),
            "client": await _refused(cluster, as_1, strangers.files("client/x")),
            "admin": await _refused(cluster, as_1, strangers.files("admin/x")),
            "of another cluster": await _refused(cluster, as_1, strangers.files("replica/1", cluster="c2")),
            "wrong cluster id": await _refused(
                cluster, Attack(cluster, as_node=1, cluster_id="c2"), strangers.files("replica/1")
            ),
        }

        assert await _seen(cluster) == before
        assert not any(node.fenced for node in (await cluster.admin.metadata()).nodes)
    assert outcome == {
        "none": _SHUT_OUT,
        "foreign": _SHUT_OUT,
        "expired": _SHUT_OUT,
        "replica 2 as 3": _DENIED,
        "client": _DENIED,
        "admin": _DENIED,
        "of another cluster": _DENIED,
        "wrong cluster id": _OTHER_CLUSTER,
    }


async def test_the_same_attack_works_for_the_node_itself(tmp_path: Path) -> None:
    """The requests above are rejected because of their sender: with node 1's own certificate the ISR shrinks."""
    async with _with_records(tmp_path) as cluster:
        files = replace(cluster.made, directory=tmp_path / "stolen").files("replica/1")
        async with _channel(cluster.for_nodes, files) as channel:
            answer = await Attack(cluster, as_node=1).alter_partition(channel)

        assert answer.error_code == 0
        assert tuple((await cluster.partition(TOPIC)).isr) == (1,)


async def test_a_node_does_not_start_with_another_nodes_certificate(tmp_path: Path) -> None:
    """It ends before it listens or registers, with a line that names the owner of its certificate."""
    async with secured_cluster(tmp_path, (1,)) as cluster:
        node = build_node(tmp_path / "node-2", cluster.for_nodes, cluster.made, 2)
        cluster.made.files("replica/3")
        stolen = settings_of(cluster.made.files("replica/3"))
        node.settings = node.settings.model_copy(update=stolen)

        with pytest.raises(ValueError, match="names strandline://c1/replica/3; this process needs one for"):
            await node.start()
