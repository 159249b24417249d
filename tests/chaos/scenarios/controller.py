"""Scenario 9: the controller dies in a storm of ISR changes, is down for a minute, and loses its store."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from faults.processes import Kill, Pause
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.cluster import Cluster
from harness.counters import rows
from harness.load import EVERYBODY, STRICT, STRICT_PARTITIONS
from harness.run import Run
from harness.scenario import Fault, Form, Scenario, Step
from running_cluster import CALL_S, until

from strandline.rpc.channels import parse_endpoint

_STORM_LAG_MS = 600
"""Short enough that a pause of one second is a shrink, and going on a growth."""
_FROZEN_S = 5.0
_REFUSES_S = 10.0
_STORE = "metadata.sqlite*"


class Controller(Scenario):
    """Scenario 9, as the module describes it.

    A producer that gave up a send needs a new producer id, which a controller that is away cannot give: while it is
    away one of all clients must go on.
    """

    number, title = 9, "Controller"
    declared_alarms = ("controller stopped serving",)
    node_settings: ClassVar = {"replica_lag_time_max_ms": str(_STORM_LAG_MS)}
    kills = (20, 4)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Times of the kills within the storm; then the outage, the older store and the empty one."""
        times = [draw.uniform(0.5, 2.5) for _ in range(form.of(*self.kills))]
        kills = [Step(what="kill in the storm", args={"after_s": after_s}) for after_s in times]
        down = Step(what="down", args={"length_s": form.of(60.0, 10.0)})
        return [*kills, down, Step(what="older store", args={}), Step(what="no store", args={})]

    async def play(self, run: Run) -> None:
        """The storm first, the rest from a whole cluster each."""
        await _storm(run, [step for step in run.plan if step.what == "kill in the storm"])
        await run.in_sync()
        await _nothing_pending(run)
        await _down(run, next(step for step in run.plan if step.what == "down").args["length_s"])
        await run.in_sync()
        await _older_store(run)
        await run.in_sync()
        await _no_store(run)

    async def after(self, run: Run) -> None:
        """Epochs never went back at the controller, and no two proposals were accepted on the same state."""
        _epochs_rise(run, run.cluster.controller.directory)
        accepted = Counter(
            (row["topic_id"], row["partition"], row["partition_epoch"])
            for row in rows(run.cluster.controller.directory)
            if row["event_type"] == "ISR_CHANGE" and row["initiator"] == "leader"
        )
        run.counters["accepted_proposals"] += len(accepted)
        twice = [proposal for proposal, times in accepted.items() if times > 1]
        run.check(not twice, f"two proposals were accepted at one partition epoch: {twice[:3]}")

    def demands(self, form: Form) -> Mapping[str, int]:
        """There was a storm, the controller died in it, and both bad stores were rejected."""
        count = form.of(*self.kills)
        storm = dict.fromkeys(("isr_shrinks", "isr_grows", "accepted_proposals"), count)
        return {"Kill": count + 2, **storm, "appended_above_frozen_hw": 1, "refused_to_serve": 2, "recovered": 1}


async def _storm(run: Run, kills: list[Step]) -> None:
    replicas = (await run.probe.partition(STRICT)).replicas
    stop = asyncio.Event()
    toggling = asyncio.create_task(_toggle(run, replicas[-1], stop))
    for step in kills:
        await asyncio.sleep(step.args["after_s"])
        async with run.fault(Kill(0)):
            pass
    stop.set()
    await toggling


async def _toggle(run: Run, node: int, stop: asyncio.Event) -> None:
    """One follower is paused every other second."""
    while not stop.is_set():
        async with run.fault(Pause(node)):
            await asyncio.sleep(1.0)
        await asyncio.sleep(1.0)


async def _down(run: Run, length_s: float) -> None:
    """Without a controller records continue while the ISR is stable, and nothing is decided."""
    before = await _led(run)
    leader = await run.leader()
    began_s = time.monotonic()
    run.expect_acks("controller down", clients=EVERYBODY)
    async with run.fault(Kill(0)):
        await run.acked_until(began_s + length_s - _FROZEN_S)
        run.check(await _led(run, before) == before, "leaders, epochs or ISRs changed while the controller was down")
        await _frozen_below_min_isr(run, leader)
    await run.heal()


async def _led(run: Run, known: dict[int, tuple[object, ...]] | None = None) -> dict[int, tuple[object, ...]]:
    """Leader, epochs and committed ISR of each partition, as its leader reports; ``known`` names the nodes to call."""
    found: dict[int, tuple[object, ...]] = {}
    for index in range(STRICT_PARTITIONS):
        node = known[index][0] if known else await run.leader(index)
        led = await run.probe.described(STRICT, int(str(node)), index)
        found[index] = (node, led.leader_epoch, led.partition_epoch, tuple(sorted(led.isr)))
    return found


async def _frozen_below_min_isr(run: Run, leader: int) -> None:
    """With both followers dead the ISR cannot shrink, so nothing may be committed."""
    for node_id in [node_id for node_id in run.cluster.nodes if node_id != leader]:
        run.cluster.nodes[node_id].kill()
    run.note(f"killed both followers of node {leader}")
    await asyncio.sleep(1.0)
    first = await run.probe.described(STRICT, leader)
    await asyncio.sleep(_FROZEN_S)
    last = await run.probe.described(STRICT, leader)
    run.counters["appended_above_frozen_hw"] += last.log_end_offset - last.high_watermark
    run.check(
        first.high_watermark == last.high_watermark,
        f"HW moved from {first.high_watermark} to {last.high_watermark} with one replica alive and no controller",
    )


async def _older_store(run: Run) -> None:
    """A store from before some elections must not be served."""
    run.cluster.controller.kill()
    older = run.directory / "store-older"
    _keep(run.cluster, older)
    await run.cluster.start_controller()
    async with run.fault(Kill(await run.leader())):
        await asyncio.sleep(1.0)
    await run.in_sync()
    before = await _led(run)
    fault = _StoreReplaced(older=older, current=run.directory / "store-current")
    async with run.fault(fault):
        await _must_refuse(run, "older")
        run.check(await _led(run, before) == before, "the older store changed what nodes do")
        run.expect_acks("controller with an older store", clients=EVERYBODY)
        await run.load.acked(5, clients=EVERYBODY)


async def _no_store(run: Run) -> None:
    """An empty store must not be served either; `controller recover` rebuilds it from the nodes' directories."""
    before = {index: await run.probe.partition(STRICT, index) for index in range(STRICT_PARTITIONS)}
    led = await _led(run)
    fault = _StoreReplaced(older=None, current=run.directory / "store-lost")
    async with run.fault(fault):
        await _must_refuse(run, "empty")
        run.check(await _led(run, led) == led, "the empty store changed what nodes do")
        run.expect_acks("controller with an empty store", clients=EVERYBODY)
        await run.load.acked(5, clients=EVERYBODY)
        run.cluster.controller.kill()
        fault.forget()
        run.recover()
    await run.in_sync()
    for index, then in before.items():
        now = await run.probe.partition(STRICT, index)
        run.check(
            now.leader_epoch >= then.leader_epoch and now.partition_epoch >= then.partition_epoch,
            f"epochs of {STRICT}-{index} went back from {then} to {now}",
        )


async def _must_refuse(run: Run, which: str) -> None:
    """Health is NOT_SERVING and stays so once a node has sent its position."""
    health = health_pb2_grpc.HealthStub(run.probe.channels.to(parse_endpoint(run.cluster.bootstrap)))

    async def look() -> bool:
        answer = await health.Check(health_pb2.HealthCheckRequest(service=""), timeout=CALL_S)
        return answer.status == health_pb2.HealthCheckResponse.NOT_SERVING

    await until(look, f"a controller with an {which} store refuses to serve", timeout_s=_REFUSES_S)
    run.counters["refused_to_serve"] += 1


async def _nothing_pending(run: Run) -> None:
    """L3: each proposal has ended, accepted or rejected."""
    for index in range(STRICT_PARTITIONS):

        async def look(index: int = index) -> bool:
            led = await run.probe.described(STRICT, await run.leader(index), index)
            return set(led.isr) == set(led.maximal_isr) == {1, 2, 3}

        await until(look, f"no proposal of {STRICT}-{index} is open")


def _epochs_rise(run: Run, directory: Path) -> None:
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows(directory):
        if row["event_type"] not in ("LEADER_CHANGE", "ISR_CHANGE"):
            continue
        key, now = (row["topic_id"], row["partition"]), (row["leader_epoch"], row["partition_epoch"])
        then = last.get(key, (-1, -1))
        run.check(now[0] >= then[0] and now[1] >= then[1], f"epochs of {key} went back from {then} to {now}")
        last[key] = now


def _keep(cluster: Cluster, target: Path) -> None:
    """Copies the store of a stopped controller."""
    assert not cluster.controller.running
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in cluster.controller.directory.glob(_STORE):
        shutil.copy2(path, target)


def _put(cluster: Cluster, source: Path | None) -> None:
    """Replaces the store of a stopped controller by a saved one, or by nothing."""
    assert not cluster.controller.running
    for path in cluster.controller.directory.glob(_STORE):
        path.unlink()
    for path in source.glob(_STORE) if source else ():
        shutil.copy2(path, cluster.controller.directory)


@dataclass(slots=True)
class _StoreReplaced(Fault):
    """The controller is killed and started with the store saved in ``older``; None: with an empty one.

    Undone by killing it again and starting it with its original store; `forget` disables that.
    """

    older: Path | None
    current: Path

    async def apply(self, cluster: Cluster) -> None:
        cluster.controller.kill()
        _keep(cluster, self.current)
        _put(cluster, self.older)
        await cluster.start_controller()

    async def undo(self, cluster: Cluster) -> None:
        if self.current.exists():
            cluster.controller.kill()
            _put(cluster, self.current)
            shutil.rmtree(self.current)
        if not cluster.controller.running:
            await cluster.start_controller()

    def forget(self) -> None:
        """The original store is gone for good."""
        shutil.rmtree(self.current)
