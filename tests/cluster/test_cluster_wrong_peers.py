"""Nodes that hang, and an upgrade while clients write; forged requests are tested in tests/core."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from client_load import Load
from running_cluster import SESSION_TIMEOUT_MS, Probe, until
from settled_logs import assert_settled

from strandline.cli.local.local_cluster import flags
from strandline.cli.local.processes import ServiceDied
from strandline.client import Admin, Consumer, Producer, QuotaChange, QuotaKey
from strandline.client.cluster.metadata import Cluster, parse_bootstrap
from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import HIGHEST, LOWEST, QUOTAS, REASSIGNMENTS
from strandline.runtime.exit_codes import ExitCode

CLUSTER = {"nodes": 3}


# A node hangs (SIGSTOP) that is everything to its clients: how soon they go on, beside how soon the cluster did.


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


# A cluster moves from one feature level to the next, process by process, while clients write and read.


_SCRIPT = str(Path(__file__).parent / "of_release.py")
_ENDS_S = 30.0
_NOW, _BEFORE = HIGHEST, HIGHEST - 1


def release(probe: Probe, lowest: int, highest: int) -> None:
    """From now on processes start as a release with these levels."""
    words = (_SCRIPT, str(lowest), str(highest))
    probe.local.plan = dataclasses.replace(
        probe.local.plan, controller_module=(*words, "controller"), replica_module=(*words, "node")
    )


async def roll_controller(probe: Probe) -> int:
    """Stops and starts the controller; returns the level once every node is back."""
    await probe.local.controller.stop(15_000)
    await probe.local.start_controller()
    await probe.everybody()
    return (await probe.metadata()).feature_level


async def roll_nodes(probe: Probe, topic: str) -> list[int]:
    """Stops and starts node by node, each back in sync before the next; returns the level after each."""
    levels = []
    for node_id in probe.local.nodes:
        await probe.local.nodes[node_id].stop(15_000)
        await probe.restart(node_id)
        await probe.in_sync(topic)
        levels.append((await probe.metadata()).feature_level)
    return levels


async def refused_controller(probe: Probe) -> str:
    """How a controller of the current release exits on the cluster's store; the one before it has stopped."""
    await probe.local.controller.stop(15_000)
    with pytest.raises(ServiceDied) as died:
        await probe.local.start_controller()
    probe.local.controller.end_expected = True
    return str(died.value)


async def refused_node(probe: Probe, directory: Path) -> tuple[int, str]:
    """How a fourth node of the current release exits, and its last line."""
    settings = {"node_id": "9", "data_dir": str(directory), "controllers": probe.local.bootstrap, "bind": "127.0.0.1:0"}
    words = [*probe.local.plan.replica_module, *flags(settings | {"internal_bind": "127.0.0.1:0"})]
    process = await asyncio.create_subprocess_exec(
        probe.local.controller.command[0], *words, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), _ENDS_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, said.decode().splitlines()[-1]


@pytest.mark.timeout(240)
async def test_a_rolling_upgrade_raises_the_level_when_the_last_node_has_it(
    probe: Probe, topic: str, tmp_path: Path
) -> None:
    """To the release before and back under load, nothing lost: a process with wrong levels is rejected by name.

    The level falls with the first node that is rolled back and rises with the last that is upgraded.
    """
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(20)
        release(probe, _NOW + 1, _NOW + 1)
        node = await refused_node(probe, tmp_path / "newer")
        release(probe, LOWEST, _BEFORE)
        controller = await refused_controller(probe)
        release(probe, LOWEST, _NOW)
        again = await roll_controller(probe)
        release(probe, LOWEST, _BEFORE)
        down = [*await roll_nodes(probe, topic), await roll_controller(probe)]
        release(probe, LOWEST, _NOW)
        up = [await roll_controller(probe), *await roll_nodes(probe, topic)]
        await load.acked(20)
        await load.finish()
    await assert_settled(probe, topic)

    assert (again, down, up) == (_NOW, [_BEFORE] * 4, [_BEFORE] * 3 + [_NOW])
    assert node[0] == ExitCode.REFUSED
    levels = f"feature levels {_NOW + 1}-{_NOW + 1} of node 9 do not overlap {LOWEST}-{_NOW} of the controller"
    assert levels in node[1]
    assert f"the cluster is at feature level {_NOW}, beyond {_BEFORE}, the highest of this release" in controller


async def restarted_as(probe: Probe, node_id: int, highest: int) -> int:
    """Restarts a node as a release with this highest level; returns the cluster's level once it is back."""
    release(probe, LOWEST, highest)
    await probe.local.nodes[node_id].stop(15_000)
    await probe.restart(node_id)
    await until(lambda: probe.is_unfenced(node_id), f"node {node_id} is back")
    return (await probe.metadata()).feature_level


@pytest.mark.timeout(120)
async def test_moves_begin_when_the_last_node_is_upgraded(probe: Probe, topic: str) -> None:
    """While node 3 runs a release without moves, a move is refused with UNSUPPORTED_VERSION that names it; once it is
    upgraded, the same move ends."""
    await probe.create_topic(topic, assignment=[1])
    level = await restarted_as(probe, 3, REASSIGNMENTS - 1)
    async with Admin(probe.local.bootstrap) as admin:
        with pytest.raises(Refused) as refused:
            await admin.alter_partition_reassignments({(topic, 0): (2,)})
        upgraded = await restarted_as(probe, 3, _NOW)
        (taken,) = await admin.alter_partition_reassignments({(topic, 0): (2,)})

        async def moved() -> bool:
            return not await admin.list_partition_reassignments()

        await until(moved, "the move has ended")
    after = await probe.partition(topic)

    assert (level, upgraded) == (REASSIGNMENTS - 1, _NOW)
    assert refused.value.refusal.code is ErrorCode.UNSUPPORTED_VERSION
    assert refused.value.refusal.message.endswith("upgrade first nodes of an older release: 3")
    assert taken.refusal is None
    assert (list(after.replicas), list(after.isr)) == ([2], [2])


@pytest.mark.timeout(120)
async def test_quotas_begin_when_the_last_node_is_upgraded(probe: Probe) -> None:
    """While node 3 runs a release without quotas, one is refused with UNSUPPORTED_VERSION that names it."""
    change = QuotaChange("client/x", QuotaKey.REQUEST_RATE, 5.0)
    level = await restarted_as(probe, 3, QUOTAS - 1)
    async with Admin(probe.local.bootstrap) as admin:
        (refused,) = await admin.alter_quotas([change])
        upgraded = await restarted_as(probe, 3, _NOW)
        taken = await admin.alter_quotas([change])
        found = [(quota.principal, quota.key, quota.value) for quota in await admin.describe_quotas()]
        await admin.alter_quotas([change._replace(value=None)])

    assert (level, upgraded) == (QUOTAS - 1, _NOW)
    assert refused is not None
    assert refused.code is ErrorCode.UNSUPPORTED_VERSION
    assert refused.message.endswith("upgrade first nodes of an older release: 3")
    assert (taken, found) == ([None], [change])
