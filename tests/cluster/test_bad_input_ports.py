"""Traffic on the ports that is no request, processes started where they must not be, and who is named instead.

What a request may not say is tested where it is refused: tests/records, tests/rpc and tests/core.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import sys
from pathlib import Path

import pytest
from client_load import Load
from raw_records import append, batch, produce, produce_request
from running_cluster import CALL_S, Probe, until
from settled_logs import assert_settled

from strandline.cli.local.local_cluster import LocalCluster, Plan, flags
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb_controller, error_pb2, leader_service_pb2 as pb, partition_pb2

_ENDS_S = 20.0


def ports(probe: Probe) -> dict[str, tuple[str, int]]:
    """Every port of the cluster by name."""
    found = {"controller": probe.local.bootstrap}
    for node_id in probe.local.nodes:
        address = probe.local.address(node_id)
        assert address is not None and address.internal is not None
        found |= {f"node {node_id}, clients": address.client, f"node {node_id}, internal": address.internal}
    return {name: (text.rpartition(":")[0], int(text.rpartition(":")[2])) for name, text in found.items()}


async def throw(content: bytes, host: str, port: int) -> None:
    """Sends bytes and reads until the peer closes the connection, or a moment has passed."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(content)
        await writer.drain()
        async with asyncio.timeout(0.5):
            while await reader.read(1 << 16):
                pass
    except (ConnectionError, TimeoutError):
        return
    finally:
        writer.close()


async def test_random_bytes_disturb_nobody(probe: Probe, topic: str) -> None:
    """Random bytes, HTTP and a lying HTTP/2 frame on every port: the load continues, and every process lives."""
    await probe.create_topic(topic, partitions=2)
    draw = random.Random(20_031)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    contents = [draw.randbytes(200_000), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", preface + draw.randbytes(5_000), b"\0"]
    pids = [service.pid for service in probe.local.services]
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(20)
        for host, port in ports(probe).values():
            await asyncio.gather(*(throw(content, host, port) for content in contents))
        await load.acked(20)
        await load.finish()
    await assert_settled(probe, topic)

    assert [service.pid for service in probe.local.services] == pids


async def test_a_caller_who_goes_away_leaves_nothing_behind(probe: Probe, topic: str) -> None:
    """Parked produces of a caller that disconnected are still written, and the node continues to serve."""
    await probe.create_topic(topic)
    leader = await probe.leader(topic)
    calls = [
        probe.leader_service(leader).Produce(produce_request(topic, b"\0" * 70), timeout=CALL_S) for _ in range(50)
    ]
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    assert await append(probe, topic, b"after") == 0


async def end_of(module: str, settings: dict[str, str]) -> tuple[int, str]:
    """Starts a service that should refuse to run: its exit code, and its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *flags(settings)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(os.environ),
    )
    try:
        async with asyncio.timeout(_ENDS_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
        raise AssertionError(f"{module} ran on: {output.decode()}") from None
    assert process.returncode is not None
    return process.returncode, output.decode()


def last_line(output: str) -> str:
    """The one line that a fail-stop prints."""
    return output.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("module", ["strandline.node", "strandline.controller"])
async def test_an_unknown_variable_is_named(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelled variable ends a service with the exit code of wrong usage, one line, and the intended name."""
    monkeypatch.setenv("STRANDLINE_EXPORT_ROLLS", "1")
    settings = {"data_dir": str(tmp_path / "d")}
    if module == "strandline.node":
        settings |= {"node_id": "9", "controllers": "127.0.0.1:1"}
    code, output = await end_of(module, settings)

    assert code == ExitCode.USAGE
    assert output == (
        "strandline: variable STRANDLINE_EXPORT_ROLLS is not a setting; did you mean STRANDLINE_EXPORT_ROLL_S?\n"
    )
    assert not (tmp_path / "d").exists()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["strandline.node", "strandline.controller"])
async def test_a_volume_that_cannot_be_written_is_named(module: str) -> None:
    """A directory on a read-only file system ends a service with the disk's exit code and one line, no traceback."""
    # The kernel's own file system accepts no files, not even from root.
    settings = {"data_dir": "/sys/kernel/strandline"}
    if module == "strandline.node":
        settings |= {"node_id": "9", "controllers": "127.0.0.1:1"}
    code, output = await end_of(module, settings)

    assert code == ExitCode.STORAGE_FAILED
    assert "/sys/kernel/strandline" in last_line(output)
    assert "Traceback" not in output


@pytest.mark.slow
async def test_a_store_has_one_controller(probe: Probe) -> None:
    """A second controller on the same store ends with its own exit code; the first one keeps serving."""
    before = (await probe.metadata()).controller_epoch
    code, output = await end_of("strandline.controller", {"data_dir": str(probe.local.controller.directory)})

    assert code == ExitCode.DIRECTORY_IN_USE
    assert "in use" in last_line(output) or "used by" in last_line(output)
    assert (await probe.metadata()).controller_epoch == before


@pytest.mark.slow
async def test_a_directory_belongs_to_one_cluster(probe: Probe, tmp_path: Path) -> None:
    """A node with another cluster's directory is rejected, and registers nowhere."""
    other = LocalCluster(Plan(directory=tmp_path / "other", nodes=1))
    await other.start()
    copied = tmp_path / "copy"
    shutil.copytree(probe.local.nodes[2].directory, copied)
    try:
        settings = {"node_id": "2", "data_dir": str(copied), "controllers": other.bootstrap}
        code, output = await end_of("strandline.node", settings)
        async with Probe(other) as there:
            nodes = [node.node_id for node in (await there.metadata()).nodes]
    finally:
        await other.stop()

    assert code == ExitCode.REFUSED
    assert "cluster" in last_line(output)
    assert nodes == [1]


@pytest.mark.slow
async def test_a_node_keeps_the_clusters_rules(probe: Probe, tmp_path: Path) -> None:
    """A node started with another durability than the cluster's is rejected, and the line names both."""
    settings = {
        "node_id": "9",
        "data_dir": str(tmp_path / "node"),
        "controllers": probe.local.bootstrap,
        "durability": "page-cache",
    }
    code, output = await end_of("strandline.node", settings)

    assert code == ExitCode.REFUSED
    assert "durability=page-cache" in last_line(output)
    assert "durability=fsync" in last_line(output)


@pytest.mark.slow
async def test_a_superseded_process_stops_itself(probe: Probe, tmp_path: Path) -> None:
    """Paused past its session and replaced by a new process, the old one exits with its own code when it resumes."""
    old = probe.local.nodes[3].process
    assert old is not None
    directory = probe.local.nodes[3].directory
    probe.pause(3)
    await until(lambda: probe.is_fenced(3), "the paused node is fenced")
    moved = tmp_path / "moved"
    shutil.copytree(directory, moved)
    # The lock is on the old directory; a copy with the same identity is like a restored backup.
    settings = {"node_id": "3", "data_dir": str(moved), "controllers": probe.local.bootstrap}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "strandline.node", *flags(settings)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until(lambda: probe.is_unfenced(3), "the new process is node 3")
        probe.resume(3)
        async with asyncio.timeout(_ENDS_S):
            code = await asyncio.to_thread(old.wait)
    finally:
        process.terminate()
        await process.wait()
    probe.local.nodes[3].end_expected = True

    assert code == ExitCode.FENCED


def test_no_two_ports_are_equal(cluster: LocalCluster) -> None:
    """Every server has a port of its own, on loopback."""
    addresses = [
        text
        for node_id in cluster.nodes
        if (found := cluster.address(node_id))
        for text in (found.client, found.internal)
    ]

    assert len(set(addresses)) == 2 * len(cluster.nodes)
    assert all(socket.gethostbyname(str(text).rpartition(":")[0]) == "127.0.0.1" for text in addresses)


# What only several processes of one cluster can answer.


async def test_a_node_that_does_not_lead_names_the_leader(probe: Probe, topic: str) -> None:
    """NOT_LEADER_OR_FOLLOWER has the leader, its epoch, and its address: one round trip is enough (KIP-951)."""
    await probe.create_topic(topic, assignment=[2, 1, 3])
    answer = await produce(probe, 1, topic, batch(b"sound"))
    now = await probe.partition(topic)
    address = probe.local.address(2)

    assert answer.error_code == error_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert answer.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, now.leader_epoch)
    assert address is not None
    assert f"{answer.current_leader.endpoint.host}:{answer.current_leader.endpoint.port}" == address.client


async def test_a_topic_made_anew_under_its_name_is_another_log(probe: Probe, topic: str) -> None:
    """A topic that was deleted and created again has another id and is empty; its old id is unknown (M63)."""
    first = await probe.create_topic(topic)
    await append(probe, topic, b"old")
    reference = partition_pb2.TopicReference(name=topic)
    await probe.controller.DeleteTopics(pb_controller.DeleteTopicsRequest(topics=[reference]), timeout=CALL_S)
    second = await probe.create_topic(topic)
    offset = await append(probe, topic, b"new")
    old = partition_pb2.TopicReference(topic_id=first.topic_id)
    described = await probe.controller.DescribeTopics(pb_controller.DescribeTopicsRequest(topics=[old]), timeout=CALL_S)
    both = partition_pb2.TopicReference(name=topic, topic_id=first.topic_id)
    disagreeing = await probe.controller.DescribeTopics(
        pb_controller.DescribeTopicsRequest(topics=[both]), timeout=CALL_S
    )
    await assert_settled(probe, topic)

    assert second.topic_id != first.topic_id
    assert offset == 0
    assert described.topics[0].error_code == error_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
    assert disagreeing.topics[0].error_code in (
        error_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
        error_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID,
    )
