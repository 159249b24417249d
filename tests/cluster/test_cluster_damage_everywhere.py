"""A replica returns with less than it acknowledged: the partition waits for a log that has everything (M64, A5).

Every node of the ISR dies, so that no process is left that knows which log has what; then one of them starts first,
from a directory whose newest segment lost its end, or that is an older copy of itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from raw_records import all_values, append
from running_cluster import Probe, until
from settled_logs import assert_settled

from strandline.storage.checkpoints import Checkpoints
from strandline.storage.inspect import dump_log

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
