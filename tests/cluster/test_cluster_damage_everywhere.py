"""Damage on every replica, and nodes that lose what they acknowledged."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from raw_records import all_values, append, batch, fetch, produce, values_of
from running_cluster import CALL_S, Probe, plan, started, until
from settled_logs import assert_settled

from strandline.cli.local.local_cluster import LocalCluster
from strandline.cli.local.processes import ServiceDied
from strandline.runtime.exit_codes import ExitCode
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.directory import CLEAN_NAME
from strandline.storage.inspect import dump_log
from strandline.v1 import controller_service_pb2 as pb, error_pb2, partition_pb2

_SEGMENTS = 3
_VALUE_BYTES = 50_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes for this test alone, because it causes alarms."""
    running = started(plan(tmp_path))
    try:
        yield running
    finally:
        running.kill()


def _first_segments(cluster: LocalCluster) -> list[Path]:
    return [sorted((node.directory / "t-0").glob("*.log"))[0] for node in cluster.nodes.values()]


async def _filled(cluster: LocalCluster, probe: Probe) -> list[bytes]:
    """Values of which each replica holds several segments."""
    values: list[bytes] = []
    while any(len(list((node.directory / "t-0").glob("*.log"))) < _SEGMENTS for node in cluster.nodes.values()):
        values.append(b"%06d" % len(values) + b"." * _VALUE_BYTES)
        await append(probe, "t", values[-1])
    await probe.in_sync("t")
    return values


async def _supervised(cluster: LocalCluster) -> list[int]:
    """Exit codes of the nodes that ended since; each is started again, as by a supervisor."""
    codes = []
    for node_id, node in cluster.nodes.items():
        end = node.found_dead()
        if end is not None:
            codes.append(end.code)
            node.end_expected = True
            with contextlib.suppress(ServiceDied):
                await cluster.start_node(node_id)
    return codes


async def _read_at(probe: Probe, leader: int, offset: int) -> list[bytes]:
    """Values that a leader returns from an offset; none if it rejects the fetch, or ends meanwhile."""
    try:
        answer = await fetch(probe, leader, "t", offset)
    except grpc.aio.AioRpcError:
        return []
    return values_of(answer.records) if not answer.error_code else []


async def test_damage_on_every_replica_is_never_served_and_takes_the_partition_offline(cluster: LocalCluster) -> None:
    """Reads before the damage return what was written, the rest is rejected by name, and no node is elected."""
    async with Probe(cluster) as probe:
        await probe.everybody()
        await probe.create_topic("t")
        values = await _filled(cluster, probe)
        for path in _first_segments(cluster):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 0x10
            path.write_bytes(content)
        read: list[bytes] = []
        ends: list[int] = []

        async def is_offline() -> bool:
            ends.extend(await _supervised(cluster))
            partition = await probe.partition("t")
            if partition.HasField("leader_id"):
                read.extend(await _read_at(probe, partition.leader_id, len(read)))
                return False
            return all([not await probe.is_fenced(node_id) for node_id in cluster.nodes])

        await until(is_offline, "the partition is offline while all nodes run", timeout_s=60)

        assert read == values[: len(read)]
        assert len(read) < len(values)
        assert ends
        assert set(ends) == {int(ExitCode.STORAGE_DAMAGED)}
        for node_id in cluster.nodes:
            assert (await produce(probe, node_id, "t", batch(b"late"))).error_code


# A replica returns with less than it acknowledged: the partition waits for a log that has everything (M64, A5).
# Every node of the ISR dies, so that no process is left that knows which log has what; then one of them starts first,
# from a directory whose newest segment lost its end, or that is an older copy of itself.


CLUSTER = {"nodes": 3}
_BATCHES = 20


async def appended(probe: Probe, topic: str, first: int = 0) -> list[bytes]:
    """Batches of one record each, all acknowledged by the whole ISR; their values."""
    values = [b"%d" % number for number in range(first, first + _BATCHES)]
    for value in values:
        await append(probe, topic, value)
    return values


def cut_newest_segment(probe: Probe, topic: str, node_id: int, keep: float) -> None:
    """Truncates the newest segment of a stopped node; the ``keep`` part of its bytes stays."""
    newest = max((probe.local.nodes[node_id].directory / f"{topic}-0").glob("*.log"))
    content = newest.read_bytes()
    newest.write_bytes(content[: int(len(content) * keep)])


def records_of(probe: Probe, topic: str, node_id: int) -> int:
    """How many records the files of a stopped node hold."""
    batches = dump_log(probe.local.nodes[node_id].directory / f"{topic}-0")
    return sum(batch.header.record_count for batch in batches if batch.header is not None and batch.crc_ok)


def put_back(directory: Path, copy: Path) -> None:
    """Replaces a directory by its older copy."""
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)


async def checkpointed(probe: Probe, topic: str, offset: int) -> None:
    """Waits until every follower's directory holds this HW, in its files or its journal."""
    now = await probe.partition(topic)
    directories = [probe.local.nodes[n].directory for n in now.replicas if n != now.leader_id]

    async def look() -> bool:
        return all(Checkpoints.load(path).high_watermarks.get((topic, 0)) == offset for path in directories)

    await until(look, f"the HW {offset} is in the checkpoints")


async def assert_nothing_lost(probe: Probe, topic: str, values: list[bytes]) -> None:
    """Every acknowledged record is read, once the others are back, and every replica holds the same bytes."""
    await probe.everybody()
    await assert_settled(probe, topic)

    assert await all_values(probe, topic) == values


async def kill_everything(probe: Probe) -> None:
    """Kills the whole cluster as if it lost power; only the controller is started again, not the nodes."""
    await probe.kill_together(1, 2, 3)
    probe.local.controller.kill()
    await until(lambda: _ended(probe), "the controller ended")
    await probe.local.start_controller()


async def _ended(probe: Probe) -> bool:
    return not probe.local.controller.running


async def start_alone(probe: Probe, topic: str, node_id: int) -> None:
    """Starts one node of a dead cluster, and waits until the controller knows that the others are gone."""
    await probe.restart(node_id)

    async def alone() -> bool:
        return [node.node_id for node in (await probe.metadata()).nodes if not node.fenced] == [node_id]

    await until(alone, f"node {node_id} is the only one that lives")
    now = await probe.partition(topic)

    assert not now.HasField("leader_id"), f"node {node_id} leads with nobody to compare its log with: {now}"


async def test_the_last_member_loses_the_end_of_its_log(probe: Probe, topic: str) -> None:
    """The last ISR member dies, and its log loses its newest bytes: the member that left before it still has them."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    await probe.local.nodes[1].stop(15_000)
    await probe.new_epoch(topic, 0)
    values = await appended(probe, topic)
    probe.local.kill_node(2)

    async def alone() -> bool:
        return list((await probe.partition(topic)).isr) == [3]

    await until(alone, "node 3 is the last of the ISR")
    probe.local.kill_node(3)
    await until(lambda: probe.is_fenced(3), "node 3 is fenced")
    cut_newest_segment(probe, topic, 3, keep=0.7)
    await start_alone(probe, topic, 3)
    await assert_nothing_lost(probe, topic, values)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("keep", [1.0, 0.7], ids=["whole", "cut"])
@pytest.mark.parametrize("earlier", [True, False], ids=["of_an_earlier_process", "of_the_same_process"])
async def test_an_older_copy_comes_back_first(
    probe: Probe, topic: str, tmp_path: Path, earlier: bool, keep: float
) -> None:
    """All nodes die, one returns first from an older copy of its directory, whole or without its newest bytes."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    values = await appended(probe, topic)
    directory = probe.local.nodes[3].directory
    if earlier:
        await probe.local.nodes[3].stop(15_000)
        shutil.copytree(directory, tmp_path / "copy")
        await probe.restart(3)
        await probe.in_sync(topic)
    else:
        shutil.copytree(directory, tmp_path / "copy")
    values += await appended(probe, topic, _BATCHES)
    await kill_everything(probe)
    put_back(directory, tmp_path / "copy")
    cut_newest_segment(probe, topic, 3, keep)
    left = records_of(probe, topic, 3)
    await start_alone(probe, topic, 3)
    await assert_nothing_lost(probe, topic, values)

    assert left < len(values), "the copy was as long as the log"


@pytest.mark.timeout(120)
async def test_those_who_would_refuse_to_cut_lead(probe: Probe, topic: str, tmp_path: Path) -> None:
    """When the others' HW checkpoints forbid a truncation, the short log does not lead either: no replica is stuck."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    values = await appended(probe, topic)
    shutil.copytree(probe.local.nodes[3].directory, tmp_path / "copy")
    values += await appended(probe, topic, _BATCHES)
    await checkpointed(probe, topic, len(values))
    await kill_everything(probe)
    put_back(probe.local.nodes[3].directory, tmp_path / "copy")
    await start_alone(probe, topic, 3)
    await assert_nothing_lost(probe, topic, values)
    after = await append(probe, topic, b"after")

    assert after == len(values)


# `durability=page-cache`: a node that lost its tail reports it, and the outcome is a decision, not an accident.


KEPT = 5


async def a_lost_tail(probe: Probe, topic: str) -> None:
    """Ten records on both; 2 stops, then 1; five records and the mark of the clean stop are removed from 1's disk."""
    for number in range(10):
        await append(probe, topic, b"old %d" % number)
    await assert_settled(probe, topic)
    await probe.local.nodes[2].stop(15_000)

    async def alone() -> bool:
        return list((await probe.partition(topic)).isr) == [1]

    await until(alone, "node 1 is alone in the ISR")
    await probe.local.nodes[1].stop(15_000)
    directory = probe.local.nodes[1].directory
    first_lost = list(dump_log(directory / f"{topic}-0"))[KEPT]
    os.truncate(first_lost.path, first_lost.position)
    (directory / CLEAN_NAME).unlink()
    await probe.restart(1)
    await until(partial(probe.is_unfenced, 1), "node 1 is unfenced")


async def unclean_election(probe: Probe, topic: str) -> pb.ElectionPartitionResult:
    """An operator accepts the loss."""
    request = pb.ElectLeadersRequest(
        election_type=pb.ELECTION_TYPE_UNCLEAN,
        topic_partitions=[partition_pb2.TopicPartitions(topic=topic, partitions=[0])],
        timeout_ms=5_000,
    )
    answer = await probe.controller.ElectLeaders(request, timeout=CALL_S * 2)
    return answer.replica_election_results[0].partition_result[0]


@pytest.mark.timeout(120)
async def test_after_an_unclean_election_logs_do_not_diverge(probe: Probe, topic: str) -> None:
    """T37, TR2b: the node without the tail leads, continues from there, and the other truncates its extra records."""
    await probe.create_topic(topic, assignment=[1, 2], unclean_leader_election_enable="true")
    await a_lost_tail(probe, topic)
    leader = await probe.leader(topic)
    offsets = [await append(probe, topic, b"new %d" % number) for number in range(9)]
    await probe.restart(2)
    records = await assert_settled(probe, topic)
    values = await all_values(probe, topic)

    assert leader == 1
    assert offsets == list(range(KEPT, KEPT + 9))
    assert records == KEPT + 9
    assert values == [b"old %d" % number for number in range(KEPT)] + [b"new %d" % number for number in range(9)]


@pytest.mark.timeout(120)
async def test_without_unclean_election_it_stays_offline_until_requested(probe: Probe, topic: str) -> None:
    """T37, the second variant: no node leads, not even with all nodes back, until an operator accepts the loss."""
    await probe.create_topic(topic, assignment=[1, 2])
    await a_lost_tail(probe, topic)
    alone = await probe.partition(topic)
    await probe.everybody()
    whole = await probe.partition(topic)
    refused = await produce(probe, 1, topic, batch(b"new"))
    elected = await unclean_election(probe, topic)
    await probe.writable(topic)
    await append(probe, topic, b"new")
    await assert_settled(probe, topic)
    values = await all_values(probe, topic)

    assert not alone.HasField("leader_id")
    assert not whole.HasField("leader_id")
    assert list(whole.isr) == list(whole.elr) == []
    assert refused.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert elected.error_code == 0, elected.error_message
    assert values[-1] == b"new"
    assert values[:-1] == [b"old %d" % number for number in range(len(values) - 1)]
    assert len(values) - 1 in (KEPT, 10)
