"""Replicas move to other nodes under load: nothing is lost, refused or doubled, and the old nodes drop their logs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from client_load import Load
from running_cluster import Probe, until
from settled_logs import assert_settled

from strandline.client import Admin, Producer
from strandline_sim.checks.history import SendOutcome

CLUSTER = {"nodes": 6}
_JOB = Path(__file__).resolve().parents[2] / "deploy/kubernetes/components/scale-in/drain.yaml"
_COMMAND_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def _ended(admin: Admin) -> None:
    async def look() -> bool:
        return not await admin.list_partition_reassignments()

    await until(look, "every reassignment has ended", timeout_s=90)


async def test_all_replicas_go_to_other_nodes_under_load(probe: Probe, topic: str) -> None:
    """From three nodes to three others with acks=all: every send is acknowledged, every log is equal, strays are set
    aside."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    before = await probe.partition(topic)
    async with Admin(probe.local.bootstrap) as admin, Load(probe=probe, topic=topic, partitions=1) as load:
        await load.acked(100)
        (taken,) = await admin.alter_partition_reassignments({(topic, 0): (4, 5, 6)})
        assert (taken.state, taken.refusal) == ("running", None)
        await _ended(admin)
        await load.acked(100)
        await load.finish()
    records = await assert_settled(probe, topic)
    after = await probe.partition(topic)

    assert sorted(after.isr) == list(after.replicas) == [4, 5, 6]
    assert after.leader_epoch > before.leader_epoch
    assert load.outcomes[SendOutcome.OK] == records
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0
    for node_id in (1, 2, 3):
        directory = probe.local.nodes[node_id].directory
        assert not (directory / f"{topic}-0").exists()
        assert len(list(directory.glob(f"{topic}-0.*.moved.stray"))) == 1


async def test_a_throttled_copy_takes_its_time_and_slows_nobody_else(probe: Probe, topic: str) -> None:
    """At a rate a copy takes at least its bytes / rate, less a second's burst; acks=all of another topic on the same
    leader go on meanwhile, and the rate is gone with the move."""
    rate, sent, other = 1_000_000, 4_000_000, f"{topic}-other"
    await probe.create_topic(topic, assignment=[1])
    await probe.create_topic(other, assignment=[1, 2, 3])
    async with Producer(probe.local.bootstrap) as producer:
        await producer.send_many(topic, [(None, os.urandom(10_000))] * (sent // 10_000))
    async with Admin(probe.local.bootstrap) as admin, Load(probe=probe, topic=other, partitions=1) as load:
        await load.acked(10)
        began_s = time.monotonic()
        await admin.alter_partition_reassignments({(topic, 0): (4,)}, throttle_bytes_per_s=rate)
        meanwhile = await admin.list_partition_reassignments()
        await load.acked(20)
        await _ended(admin)
        took_s = time.monotonic() - began_s
        await load.finish()
    after = await probe.partition(topic)

    assert [one.throttle_bytes_per_s for one in meanwhile] == [rate]
    assert took_s >= (sent - (1 << 20)) / rate - 1
    assert (list(after.replicas), after.HasField("throttle_bytes_per_s")) == ([4], False)
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0


async def test_a_drained_node_ends_without_leaderships(probe: Probe, topic: str) -> None:
    """A drained node hands over what it leads; after a move of its replicas it holds nothing."""
    await probe.create_topic(topic, assignment=[1, 2, 3])
    async with Admin(probe.local.bootstrap) as admin:
        drained = await admin.drain_node(1)
        await admin.alter_partition_reassignments({(topic, 0): (2, 3, 4)}, planned_from={(topic, 0): (1, 2, 3)})
        await _ended(admin)
        emptied = await admin.drain_node(1)
        await admin.drain_node(1, draining=False)

    assert drained.remaining_leaders == 0
    assert drained.remaining_replicas - emptied.remaining_replicas == 1
    assert not (await probe.node(1)).draining


async def _strandline(probe: Probe, *words: str) -> tuple[int | None, str]:
    """A command of an operator: its exit code and what it wrote on stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "strandline.cli", *words),
        env={**os.environ, "STRANDLINE_BOOTSTRAP": probe.local.bootstrap},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, complained = await asyncio.wait_for(process.communicate(), _COMMAND_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, complained.decode()


def _commands_of_job(settings: Mapping[str, str]) -> list[list[str]]:
    """The containers of the Job of the component scale-in in their order, as a kubelet starts them."""
    pod = yaml.safe_load(_JOB.read_text())["spec"]["template"]["spec"]
    return [
        [re.sub(r"\$\((\w+)\)", lambda found: settings[found[1]], word) for word in box["args"]]
        for box in (*pod["initContainers"], *pod["containers"])
    ]


async def test_a_node_is_scaled_in_as_on_kubernetes(probe: Probe, topic: str) -> None:
    """After the commands of the component's Job the node holds nothing: it is stopped and removed, and acks=all were
    never refused."""
    await probe.create_topic(topic, assignment=[1, 2, 6])
    async with Load(probe=probe, topic=topic, partitions=1) as load:
        await load.acked(20)
        ended = [await _strandline(probe, *words) for words in _commands_of_job({"NODE": "6", "THROTTLE": "50MB"})]
        held = [one for one in await _held(probe) if one[2] == 6]
        await probe.local.nodes[6].stop(15_000)

        async def removed() -> bool:
            return (await _strandline(probe, "node", "remove", "6"))[0] == 0

        await until(removed, "node 6 is removed, whose session has ended")
        await load.acked(20)
        await load.finish()
    known = [node.node_id for node in (await probe.metadata()).nodes]

    assert [code for code, _ in ended] == [0, 0], ended
    assert held == []
    assert 6 not in known
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0


async def _held(probe: Probe) -> list[tuple[str, int, int]]:
    async with Admin(probe.local.bootstrap) as admin:
        return [(one.topic, one.partition, one.node_id) for one in await admin.describe_replicas()]
