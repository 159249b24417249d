"""The node that coordinates a thousand transactional ids is killed while one of them is about to commit."""

from __future__ import annotations

import asyncio
import itertools
import time

from transaction_figures.against_plain import PARTITIONS
from transaction_figures.open_transactions import WAIT_S, OpenTransactions

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin, Producer
from strandline.client.cluster.metadata import Cluster
from strandline.core.coordinator.internal_topics import TRANSACTION_STATE, partition_of

TOPIC = "killed"
MINE = "killed-0"


async def commits_back(cluster: LocalCluster, ids: int, times: int) -> list[float]:
    """Seconds from the kill of the coordinator's node to the end of the commit, after each of several kills.

    All ``ids`` are of one coordinator, and all have a transaction open. The records of the one that commits are
    acknowledged before, so that only its coordinator is waited for.
    """
    view = Cluster(cluster.bootstrap)
    await view.start()
    try:
        async with (
            Admin(cluster.bootstrap, timeout_ms=60_000) as admin,
            Producer(cluster.bootstrap, transactional_id=MINE) as producer,
        ):
            await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            names = await _of_one_coordinator(admin, ids - 1)
            crowd = OpenTransactions(view, TOPIC, PARTITIONS, names)
            await crowd.begin()
            await crowd.open()
            return [await _killed(cluster, admin, producer) for _ in range(times)]
    finally:
        await view.close()


async def _killed(cluster: LocalCluster, admin: Admin, producer: Producer) -> float:
    transaction = producer.transaction()
    async with transaction:
        await producer.send_and_wait(TOPIC, b"kept")
        coordinator = await _coordinator(admin)
        began = time.monotonic()
        cluster.kill_node(coordinator)
        await transaction.commit()
        took_s = time.monotonic() - began
    await cluster.start_node(coordinator)
    await _in_sync(admin, len(cluster.node_ids))
    return took_s


async def _of_one_coordinator(admin: Admin, count: int) -> list[str]:
    """Other ids of the partition that `MINE` is in."""
    (topic,) = await admin.describe_topics([TRANSACTION_STATE])
    partitions = len(topic.partitions)
    shard = partition_of(MINE, partitions)
    names = (f"killed-{number}" for number in itertools.count(1))
    return list(itertools.islice((name for name in names if partition_of(name, partitions) == shard), count))


async def _coordinator(admin: Admin) -> int:
    (topic,) = await admin.describe_topics([TRANSACTION_STATE])
    leader = topic.partitions[partition_of(MINE, len(topic.partitions))].leader
    assert leader is not None, "it has just answered"
    return leader


async def _in_sync(admin: Admin, nodes: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while any(  # noqa: ASYNC110 - what is waited for is state, not an event
            len(one.isr) < nodes for topic in await admin.describe_topics() for one in topic.partitions
        ):
            await asyncio.sleep(0.2)
