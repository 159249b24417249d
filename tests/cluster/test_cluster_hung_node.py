"""A node hangs (SIGSTOP) that is everything to its clients: how soon they go on, beside how soon the cluster did."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable

import pytest
from running_cluster import SESSION_TIMEOUT_MS, Probe

from strandline.client import Admin, Consumer, Producer
from strandline.client.cluster.metadata import Cluster, parse_bootstrap
from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of

CLUSTER = {"nodes": 3}

SESSION_S = SESSION_TIMEOUT_MS / 1000
BEHIND_S = 1.5
"""What a client may take beyond the session of the node, where an election and a start of a client take no time."""


def asks_first(cluster: Cluster, addresses: list[str]) -> None:
    """Let a client begin at the first of these, as one in three does by itself."""
    cluster._drawn = parse_bootstrap(addresses)


async def group_led_by(probe: Probe, node_id: int) -> str:
    """A group whose coordinator this node is."""
    async with Admin(probe.local.bootstrap) as admin:
        # The topic of groups exists once one was asked about.
        await admin.list_group_offsets("any")
    await probe.in_sync(GROUP_STATE)
    leaders = [part.leader_id for part in (await probe.topic(GROUP_STATE)).partitions]
    names = (f"g{number}" for number in itertools.count())
    return next(name for name in names if leaders[partition_of(name, len(leaders))] == node_id)


async def since(began_s: float, done: Awaitable[object]) -> float:
    """Seconds from a moment to the end of a call."""
    await done
    return time.monotonic() - began_s


async def start_and_send(producer: Producer, topic: str) -> None:
    async with producer:
        await producer.send_and_wait(topic, b"new", partition=0)


@pytest.mark.timeout(120)
async def test_clients_go_on_soon_after_the_session_of_a_hung_node(probe: Probe, topic: str) -> None:
    """Leader, coordinator, source of metadata and first bootstrap address are one node, which hangs: the next
    acknowledgement, commit and record, and those of a client that starts then, come within its session and 1.5 s."""
    await probe.create_topic(topic)
    before = await probe.partition(topic)
    hung = before.leader_id
    group = await group_led_by(probe, hung)
    served = [probe.local.address(node_id) for node_id in sorted(probe.local.nodes, key=lambda one: one != hung)]
    addresses = [one.client for one in served if one is not None and one.client is not None]
    fresh, producer, late = (Producer(addresses) for _ in range(3))
    consumer = Consumer(addresses, group=group, auto_commit=False)
    for client in (fresh, producer, late, consumer):
        asks_first(client._cluster, addresses)
    usual = await since(time.monotonic(), start_and_send(fresh, topic))
    async with producer, consumer:
        await consumer.subscribe(topic)
        await producer.send_and_wait(topic, b"before", partition=0)
        await consumer.commit(await consumer.poll())
        paused_s = time.monotonic()
        probe.pause(hung)
        try:
            elected, sent, read, started, committed = await asyncio.gather(
                since(paused_s, probe.new_epoch(topic, before.leader_epoch)),
                since(paused_s, producer.send_and_wait(topic, b"after", partition=0)),
                since(paused_s, consumer.poll()),
                since(paused_s, start_and_send(late, topic)),
                since(paused_s, consumer.commit({(topic, 0): 1})),
            )
        finally:
            probe.resume(hung)
        await probe.in_sync(topic)
    slowness = max(1.0, elected / SESSION_S)
    limit = (SESSION_S + BEHIND_S) * slowness + 2 * usual
    print(f"limit {limit:.2f} s, elected {elected:.2f}; ack {sent:.2f}, read {read:.2f}, new client {started:.2f}")

    assert max(sent, read, started, committed) < limit
