"""Builders of cluster images for tests of the command line's output, and the administrator that its commands get."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from strandline import client
from strandline.cli import connect

TOPIC_ID = "7f8a0c44-0000-4000-8000-000000000001"
TOPIC = "orders"
Admin = TypeVar("Admin")


def node(node_id: int, **changes: object) -> client.DescribedNode:
    """A node that serves."""
    base: dict[str, object] = {
        "node_id": node_id,
        "node_epoch": 10 + node_id,
        "client_endpoint": client.Endpoint("127.0.0.1", 9000 + node_id),
        "internal_endpoint": client.Endpoint("127.0.0.1", 9500 + node_id),
        "fenced": False,
    }
    return client.DescribedNode(**(base | changes))  # type: ignore[arg-type]


def partition(
    index: int, leader: int | None = 1, isr: tuple[int, ...] = (1, 2, 3), **changes: object
) -> client.DescribedPartition:
    """A partition of three replicas."""
    base: dict[str, object] = {
        "topic": TOPIC,
        "partition": index,
        "replicas": (1, 2, 3),
        "isr": isr,
        "leader": leader,
        "leader_epoch": 4,
        "partition_epoch": 7,
        "min_isr": 2,
    }
    return client.DescribedPartition(**(base | changes))  # type: ignore[arg-type]


def image(
    *partitions: client.DescribedPartition, nodes: tuple[client.DescribedNode, ...] | None = None, name: str = TOPIC
) -> client.DescribedCluster:
    """A cluster of one topic."""
    topics = (client.DescribedTopic(name=name, topic_id=TOPIC_ID, partitions=partitions),) if partitions else ()
    return client.DescribedCluster(
        cluster_id="c-1",
        controller_epoch=2,
        metadata_offset=30,
        nodes=(node(1), node(2), node(3)) if nodes is None else nodes,
        topics=topics,
    )


def view(index: int, leo: int, hw: int, remote: dict[int, int | None]) -> client.DescribedLeader:
    """A partition as its leader reports it."""
    members = tuple(remote)
    return client.DescribedLeader(
        topic=TOPIC,
        partition=index,
        leader_epoch=4,
        partition_epoch=7,
        epoch_start_offset=0,
        leo=leo,
        durable_leo=leo,
        high_watermark=hw,
        log_start_offset=0,
        isr=members,
        maximal_isr=members,
        elr=(),
        min_isr=2,
        replicas=tuple(
            client.DescribedFollower(
                node_id=node_id,
                node_epoch=None,
                remote_leo=known,
                last_fetch_age_ms=1,
                last_caught_up_age_ms=1,
                in_isr=True,
            )
            for node_id, known in remote.items()
        ),
    )


def held(index: int, node_id: int, reason: str) -> client.DescribedReplica:
    """A replica as its own node reports it; a reason says why it stopped."""
    own = client.ReplicaState(
        leo=9,
        durable_leo=9,
        high_watermark=9,
        log_start_offset=0,
        fetch_state="failed" if reason else "fetching",
        reason=reason,
        leader=1,
        leader_epoch=4,
        epochs=(),
    )
    return client.DescribedReplica(node_id, TOPIC, index, 1_000, own, None)


def connected_to(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Commands get this administrator."""

    @asynccontextmanager
    async def opened(bootstrap: str) -> AsyncIterator[object]:
        yield admin

    monkeypatch.setattr(connect, "open_admin", opened)
    return admin
