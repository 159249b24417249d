"""One fault after another, drawn from a seed: each fault starts from the state that the previous one left.

A failure names its seed and the faults up to it; the draw determines kinds, nodes and lengths, the machine the rest.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from client_load import Load, SendOutcome
from running_cluster import Probe
from settled_logs import assert_settled

CLUSTER = {"nodes": 3}

_FAULTS = 12
_PARTITIONS = 3

Fault = Callable[[Probe, list[int], float], Awaitable[None]]
"""Takes the nodes in a drawn order and a drawn length in seconds; everybody runs again when it returns."""


async def kill_one(probe: Probe, nodes: list[int], length_s: float) -> None:
    """A node is down, for a long or a very short time."""
    probe.local.kill_node(nodes[0])
    await asyncio.sleep(length_s)
    await probe.restart(nodes[0])


async def kill_two(probe: Probe, nodes: list[int], length_s: float) -> None:
    """A second node dies while the first is away; both come back together."""
    probe.local.kill_node(nodes[0])
    await asyncio.sleep(length_s / 2)
    probe.local.kill_node(nodes[1])
    await asyncio.gather(*(probe.restart(node_id) for node_id in nodes[:2]))


async def kill_all(probe: Probe, nodes: list[int], length_s: float) -> None:
    """All nodes at once."""
    for node_id in nodes:
        probe.local.kill_node(node_id)
    await asyncio.gather(*(probe.restart(node_id) for node_id in nodes))


async def stop_one(probe: Probe, nodes: list[int], length_s: float) -> None:
    """A clean stop."""
    await probe.local.nodes[nodes[0]].stop(15_000)
    await probe.restart(nodes[0])


async def pause_one(probe: Probe, nodes: list[int], length_s: float) -> None:
    """A node is paused, for less or for more than its session."""
    probe.pause(nodes[0])
    await asyncio.sleep(length_s * 2)
    probe.resume(nodes[0])


async def pause_one_kill_another(probe: Probe, nodes: list[int], length_s: float) -> None:
    """One node is left."""
    probe.pause(nodes[0])
    probe.local.kill_node(nodes[1])
    await asyncio.sleep(length_s)
    probe.resume(nodes[0])
    await probe.restart(nodes[1])


async def kill_controller(probe: Probe, nodes: list[int], length_s: float) -> None:
    """No controller runs for a while."""
    probe.local.controller.kill()
    await asyncio.sleep(length_s)
    await probe.local.start_controller()


async def kill_controller_and_one(probe: Probe, nodes: list[int], length_s: float) -> None:
    """A node dies and it is not detected before the controller is back."""
    probe.local.controller.kill()
    probe.local.kill_node(nodes[0])
    await asyncio.sleep(length_s / 2)
    await probe.local.start_controller()
    await probe.restart(nodes[0])


KINDS: tuple[Fault, ...] = (
    kill_one,
    kill_two,
    kill_all,
    stop_one,
    pause_one,
    pause_one_kill_another,
    kill_controller,
    kill_controller_and_one,
)


def drawn(seed: int) -> list[tuple[Fault, list[int], float]]:
    """The faults of a seed; every kind comes at least once."""
    draw = random.Random(seed)
    kinds = [*KINDS, *draw.choices(KINDS, k=_FAULTS - len(KINDS))]
    draw.shuffle(kinds)
    return [(kind, draw.sample([1, 2, 3], k=3), draw.random() * 1.5) for kind in kinds]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [3])
async def test_faults_in_a_row(probe: Probe, topic: str, seed: int) -> None:
    """After every fault the partitions accept records again; at the end no record is lost, doubled or different."""
    await probe.create_topic(topic, partitions=_PARTITIONS)
    before = await probe.topic(topic)
    load = Load(probe=probe, topic=topic, partitions=_PARTITIONS, producers=4, pause_s=0.005, followers_are_read=True)
    async with load:
        for number, (fault, nodes, length_s) in enumerate(drawn(seed)):
            await load.acked(5)
            await fault(probe, nodes, length_s)
            if number % 2:
                await probe.in_sync(topic)
        await probe.everybody()
        await probe.in_sync(topic)
        await load.acked(20)
        await load.finish()
    records = await assert_settled(probe, topic)
    after = await probe.topic(topic)

    assert load.outcomes[SendOutcome.OK] + load.outcomes[SendOutcome.INDEFINITE] >= records
    assert load.outcomes[SendOutcome.OK] > 1_000
    assert all(
        now.leader_epoch > then.leader_epoch for now, then in zip(after.partitions, before.partitions, strict=True)
    )
