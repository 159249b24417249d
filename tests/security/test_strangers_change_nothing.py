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
from certificates import CLUSTER, settings_of, unchecked
from raw_calls import outcome
from secured_cluster import Secured, build_node, secured_cluster, until

from strandline.cli.local.authority import new_authority
from strandline.client import Producer
from strandline.core.errors import ErrorCode
from strandline.core.messages import Endpoint
from strandline.rpc.channels import target
from strandline.rpc.tls import TlsFiles

TOPIC = "orders"
RECORDS = 3


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


def _channel(endpoint: Endpoint, files: TlsFiles | None, ca: bytes = b"") -> grpc.aio.Channel:
    """A stranger's: any certificate, unchecked, or none."""
    return grpc.aio.secure_channel(
        target(endpoint), unchecked(files) if files is not None else grpc.ssl_channel_credentials(ca)
    )


async def _attacks(cluster: Secured, node_id: int, cluster_id: str = CLUSTER) -> dict[str, dict[str, Any]]:
    """Requests that would be accepted if their sender were this node: right epochs, right ids, one false field."""
    image, topic_id = await cluster.partition(TOPIC), await cluster.topic_id(TOPIC)
    epochs = {node.node_id: node.node_epoch for node in (await cluster.admin.metadata()).nodes}
    sender = {"cluster_id": cluster_id, "node_id": node_id, "node_epoch": epochs[node_id]}
    without_3 = {
        "partition_index": 0,
        "leader_epoch": image.leader_epoch,
        "partition_epoch": image.partition_epoch,
        "new_isr_with_epochs": [{"node_id": 1, "node_epoch": epochs[1]}],
    }
    # A position that it does not have, so that it would count as committed.
    claim = {
        "partition": 0,
        "fetch_offset": RECORDS,
        "current_leader_epoch": image.leader_epoch,
        "last_fetched_epoch": image.leader_epoch,
    }
    return {
        "ControllerService/AlterPartition": sender
        | {"controller_epoch": 1, "request_sequence": 1_000_000}
        | {"topics": [{"topic_id": topic_id, "partitions": [without_3]}]},
        "ControllerService/Heartbeat": sender | {"want_fence": True},
        "LeaderService/Fetch": {
            "cluster_id": cluster_id,
            "replica_state": {"replica_id": node_id, "replica_epoch": epochs[node_id]},
            "topics": [{"topic_id": topic_id, "partitions": [claim]}],
        },
    }


async def _refused(cluster: Secured, attacks: dict[str, dict[str, Any]], files: TlsFiles | None) -> set[ErrorCode]:
    """The codes with which the attacks end on both ports of their kind."""
    leader, found = cluster.nodes[0], set[ErrorCode]()
    for name, fields in attacks.items():
        is_fetch = name.startswith("LeaderService/")
        for endpoint in (leader.internal, leader.client) if is_fetch else (cluster.for_nodes, cluster.for_clients):
            async with _channel(endpoint, files, cluster.made.authority.pem) as channel:
                codes, answer = await outcome(channel, name, fields)
            assert answer is None, f"{name} was answered"
            found |= set(map(ErrorCode, codes))
    return found


_SHUT_OUT = {ErrorCode.NETWORK_EXCEPTION}
_DENIED = {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
_OTHER_CLUSTER = {ErrorCode.INCONSISTENT_CLUSTER_ID}


async def test_nobody_without_the_right_certificate_moves_anything(tmp_path: Path) -> None:
    """No certificate, a foreign one, an expired one, another node's, a client's, another cluster's, a wrong cluster id.

    Each is rejected with its documented code, on every port, and the partition is afterwards unchanged.
    """
    async with _with_records(tmp_path) as cluster:
        made = cluster.made
        before = await _seen(cluster)
        as_3, as_1 = await _attacks(cluster, 3), await _attacks(cluster, 1)
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
            "wrong cluster id": await _refused(cluster, await _attacks(cluster, 1, "c2"), strangers.files("replica/1")),
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
            name = "ControllerService/AlterPartition"
            codes, _ = await outcome(channel, name, (await _attacks(cluster, 1))[name])

        assert codes == set()
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
