"""Requests in a node's name, nodes that hang, and an upgrade while clients write."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from client_load import Load
from raw_records import append, batch, produce
from running_cluster import CALL_S, SESSION_TIMEOUT_MS, Probe, until
from settled_logs import assert_settled

from strandline.cli.local.local_cluster import flags
from strandline.cli.local.processes import ServiceDied
from strandline.client import Admin, Consumer, Producer
from strandline.client.cluster.metadata import Cluster, parse_bootstrap
from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import HIGHEST, LOWEST
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb, error_pb2, leader_service_pb2, metadata_pb2, partition_pb2

CLUSTER = {"nodes": 3}
ABOVE_ALL = 1 << 30


async def test_a_forged_fetch_acknowledges_nothing(probe: Probe, topic: str) -> None:
    """F2: the first fetch of an epoch in a stopped follower's name claims the LEO; the record stays uncommitted."""
    created = await probe.create_topic(topic, assignment=[1, 2, 3])
    await append(probe, topic, b"everywhere")
    await assert_settled(probe, topic)
    metadata = await probe.metadata()
    silent = await probe.node(3)
    # Stopped before there is a new leader: any fetch in its name in that epoch is forged.
    probe.pause(3)
    probe.local.kill_node(1)
    now = await probe.new_epoch(topic, 0)
    waiting = asyncio.create_task(produce(probe, 2, topic, batch(b"only here"), timeout_ms=1_000))
    forged = leader_service_pb2.FetchRequest(
        cluster_id=metadata.cluster_id,
        replica_state=partition_pb2.ReplicaState(replica_id=3, replica_epoch=silent.node_epoch),
        max_wait_ms=0,
        topics=[
            partition_pb2.FetchTopic(
                topic_id=created.topic_id,
                partitions=[
                    partition_pb2.FetchPartition(
                        partition=0,
                        fetch_offset=2,
                        current_leader_epoch=now.leader_epoch,
                        last_fetched_epoch=now.leader_epoch,
                        log_start_offset=0,
                    )
                ],
            )
        ],
    )
    answered = [await probe.leader_service(2).Fetch(forged, timeout=CALL_S) for _ in range(5)]
    answer = await waiting
    seen = await probe.replica(topic, 2)
    probe.resume(3)
    await probe.everybody()
    await assert_settled(probe, topic)

    assert answer.error_code == error_pb2.ERROR_CODE_REQUEST_TIMED_OUT, answer
    assert (seen.leo, seen.hw) == (2, 1)
    assert len(answered) == 5


def refused_proposal(
    metadata: metadata_pb2.ClusterMetadata, topic: metadata_pb2.TopicMetadata, sequence: int
) -> pb.AlterPartitionRequest:
    """A proposal in the leader's name that the controller rejects, with a sequence that the forger chooses."""
    now = topic.partitions[0]
    row = pb.AlterPartitionProposal(
        partition_index=0, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch + 7
    )
    return pb.AlterPartitionRequest(
        node_id=now.leader_id,
        node_epoch=next(node.node_epoch for node in metadata.nodes if node.node_id == now.leader_id),
        cluster_id=metadata.cluster_id,
        controller_epoch=metadata.controller_epoch,
        request_sequence=sequence,
        topics=[pb.AlterPartitionTopic(topic_id=topic.topic_id, partitions=[row])],
    )


@pytest.mark.parametrize("ahead", [5, ABOVE_ALL], ids=["a_little_ahead", "far_ahead"])
async def test_a_refused_proposal_of_a_stranger_stops_no_isr_change(probe: Probe, topic: str, ahead: int) -> None:
    """F3: after a rejected AlterPartition with a sequence above the leader's, its ISR shrinks and expands."""
    created = await probe.create_topic(topic, assignment=[1, 2, 3])
    await append(probe, topic, b"before")
    metadata = await probe.metadata()
    # Number 0 is rejected with the last one of this leader, unless it has sent none.
    last = await probe.controller.AlterPartition(refused_proposal(metadata, created, 0), timeout=CALL_S)
    answer = await probe.controller.AlterPartition(
        refused_proposal(metadata, created, last.last_request_sequence + ahead), timeout=CALL_S
    )
    probe.local.kill_node(3)
    await probe.restart(3)
    await append(probe, topic, b"after")
    await assert_settled(probe, topic)

    assert not answer.error_code, answer.error_message
    assert answer.topics[0].partitions[0].error_code != 0


async def test_a_claim_without_a_proof_stops_nobody(probe: Probe, topic: str) -> None:
    """F5: a heartbeat with a metadata offset that no node was sent is rejected, and the controller continues."""
    await probe.create_topic(topic)
    metadata, node = await probe.metadata(), await probe.node(1)
    request = pb.HeartbeatRequest(
        node_id=1,
        node_epoch=node.node_epoch,
        cluster_id=metadata.cluster_id,
        current_metadata_offset=metadata.metadata_offset + ABOVE_ALL,
    )
    with pytest.raises(Exception, match="only this node is refused") as refused:
        await probe.controller.Heartbeat(request, timeout=CALL_S)
    await append(probe, topic, b"after")
    probe.local.kill_node(2)
    await probe.restart(2)
    await assert_settled(probe, topic)

    assert "no valid proof" in str(refused.value)


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
    """While node 3 runs the release before, a move is refused with UNSUPPORTED_VERSION that names it; once it is
    upgraded, the same move ends."""
    await probe.create_topic(topic, assignment=[1])
    level = await restarted_as(probe, 3, _BEFORE)
    async with Admin(probe.local.bootstrap) as admin:
        with pytest.raises(Refused) as refused:
            await admin.alter_partition_reassignments({(topic, 0): (2,)})
        upgraded = await restarted_as(probe, 3, _NOW)
        (taken,) = await admin.alter_partition_reassignments({(topic, 0): (2,)})

        async def moved() -> bool:
            return not await admin.list_partition_reassignments()

        await until(moved, "the move has ended")
    after = await probe.partition(topic)

    assert (level, upgraded) == (_BEFORE, _NOW)
    assert refused.value.refusal.code is ErrorCode.UNSUPPORTED_VERSION
    assert refused.value.refusal.message.endswith("upgrade first nodes of an older release: 3")
    assert taken.refusal is None
    assert (list(after.replicas), list(after.isr)) == ([2], [2])
