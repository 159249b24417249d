"""Real processes: one position of a log is damaged on every replica at once, so that no valid copy is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from raw_records import append, batch, fetch, produce, values_of
from running_cluster import Probe, plan, started, until

from strandline.cli.local.local_cluster import LocalCluster
from strandline.cli.local.processes import ServiceDied
from strandline.runtime.exit_codes import ExitCode

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
