"""Checks that a topic is whole again after faults: criterion V2 of RELIABILITY.md#the-criteria.

Invariant: equality is determined from the bytes in the data directories, not from what nodes report.
"""

from __future__ import annotations

from running_cluster import Probe, ReplicaState, until

from strandline.core.types import Offset
from strandline.storage.inspect import compare_logs, dump_log


async def assert_settled(probe: Probe, topic: str) -> int:
    """Waits until all replicas agree, compares their files, and returns how many records the topic holds.

    All replicas are in the ISR, HW = LEO everywhere, the same sequence of batches with valid CRCs in every data
    directory, and the same epoch caches over the committed range.
    """
    await probe.in_sync(topic)
    return sum([await _partition(probe, topic, each.partition_index) for each in (await probe.topic(topic)).partitions])


async def _partition(probe: Probe, topic: str, index: int) -> int:
    replicas = await _agreed(probe, topic, index)
    end = next(iter(replicas.values())).hw
    directories = [probe.local.nodes[node_id].directory / f"{topic}-{index}" for node_id in replicas]
    compared = compare_logs(directories, start=Offset(0), end=Offset(end))
    damaged = [batch for directory in directories for batch in dump_log(directory) if not batch.crc_ok]

    assert compared.equal, f"{topic}-{index} at {compared.first_difference}: {compared.reason}"
    assert compared.batches > 0 or end == 0, f"{topic}-{index}: nothing was compared up to {end}"
    assert damaged == []
    assert len({state.committed_epochs for state in replicas.values()}) == 1, f"{topic}-{index}: {replicas}"
    return end


async def _agreed(probe: Probe, topic: str, index: int) -> dict[int, ReplicaState]:
    """Every replica's state, once HW = LEO and equal on all of them."""

    async def look() -> dict[int, ReplicaState] | None:
        now = await probe.partition(topic, index)
        states = {node_id: await probe.replica(topic, node_id, index) for node_id in now.replicas}
        ends = {number for state in states.values() for number in (state.leo, state.hw)}
        return states if len(ends) == 1 else None

    return await until(look, f"HW = LEO on all replicas of {topic}-{index}")
