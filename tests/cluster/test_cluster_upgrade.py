"""A cluster moves from one feature level to the next, process by process, while clients write and read."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from client_load import Load
from running_cluster import Probe
from settled_logs import assert_settled

from strandline.cli.local.local_cluster import flags
from strandline.cli.local.processes import ServiceDied
from strandline.core.types import HIGHEST, LOWEST
from strandline.runtime.exit_codes import ExitCode

CLUSTER = {"nodes": 3}

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
