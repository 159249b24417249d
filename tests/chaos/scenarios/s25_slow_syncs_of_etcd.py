"""Scenario 25: every sync of etcd's disks takes 100 ms; decisions are late, and nothing else is."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.disk import Disk
from faults.disk_power import DISKS
from faults.disk_rules import Rule
from faults.processes import Kill
from harness.facilities import ETCD
from harness.fault import Step
from harness.namespaces import MEMBERS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario

_SLOW_S, _SLOW_SHORT_S = 60.0, 10.0
_SYNC_MS = 100
_disks: dict[str, Disk] = {}


def plan(draw: random.Random, form: Form) -> list[Step]:
    """A while of slow syncs; within it a leader and then the controller that decides are killed."""
    return [Step(what="slow syncs", args={"length_s": _SLOW_SHORT_S if form.is_short else _SLOW_S})]


async def prepare(run: Run) -> None:
    """A disk of our own under each member of etcd."""
    for name in MEMBERS:
        disk = Disk(run.cluster.members[name].directory)
        disk.mount()
        run.stack.callback(disk.unmount)
        _disks[name] = disk


async def play(run: Run) -> None:
    """Elections and a take-over on slow disks."""
    (step,) = run.plan
    active = await run.several.active()
    began_s = time.monotonic()
    for disk in _disks.values():
        disk.add(Rule(operation="fsync", delay_ms=_SYNC_MS))
    run.note(f"begin  every sync of etcd takes {_SYNC_MS} ms")
    run.expect_acks("etcd's syncs are slow", since_s=began_s)
    await asyncio.sleep(step.args["length_s"] / 2)
    node = await run.leader()
    run.expect_acks(f"leader {node} is killed while etcd is slow", within_s=10.0, clients=("p0", "p1"))
    async with run.fault(Kill(node)):
        await run.probe.leader("tides", 0, other_than=node)
        await run.load.acked(3)
    active = await run.several.active()
    killed_s = time.monotonic()
    async with run.fault(Kill(active)):
        first = await run.several.taken_over("kill -9 while etcd is slow", killed_s, from_=active)
        run.note(f"{first.place} decides after {first.at_s - killed_s:.3f} s")
    await run.sleep_until(began_s + step.args["length_s"])
    for disk in _disks.values():
        run.counters["slow_syncs"] += disk.hits
        disk.heal()
    run.note("end    etcd's syncs are fast again")
    await run.in_sync()


def demands(form: Form) -> Mapping[str, int]:
    """Syncs were late, and there was a take-over meanwhile."""
    return {"slow_syncs": 100, "Kill": 2, "reigns": 2, "elections": 1}


SCENARIO = Scenario(
    number=25,
    title="Slow syncs of etcd",
    plan=plan,
    play=play,
    prepare=prepare,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD, DISKS),
    has_several=True,
)
