"""Scenario 2: power loss at the leader, at a follower, at all nodes and the controller; unsynced data is lost.

Every sync takes a few milliseconds, as on a disk, so that there is unsynced data at any time. Every second loss leaves
a drawn part of the unsynced bytes and names, which causes torn tails and half-written files.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from faults.disk import Disk
from faults.disk_power import DISKS, PowerLoss, mounted
from faults.disk_rules import Rule
from harness.fault import Step
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario

_ROUNDS, _ROUNDS_SHORT = 10, 1
_SYNC_MS = 15
_disks: dict[int, Disk] = {}


def plan(draw: random.Random, form: Form) -> list[Step]:
    """A number of losses of each kind, shuffled."""
    rounds = _ROUNDS_SHORT if form.is_short else _ROUNDS
    steps = [
        Step(
            what=whose,
            args={
                "partition": draw.randrange(3),
                "follower": draw.randrange(2),
                "seed": draw.randrange(1 << 30) if number % 2 else None,
                "away_s": draw.choice([0.0, draw.uniform(4.0, 6.0)]) if whose != "all" else 0.0,
            },
        )
        for whose in ("leader", "follower", "all")
        for number in range(rounds)
    ]
    draw.shuffle(steps)
    return steps


async def prepare(run: Run) -> None:
    """A disk for every process."""
    _disks.update(mounted(run, range(4)))
    for disk in _disks.values():
        disk.add(Rule(operation="fsync", delay_ms=_SYNC_MS))


async def play(run: Run) -> None:
    """One loss of power after the other, each in a whole cluster under load."""
    for step in run.plan:
        leader = await run.leader(step.args["partition"])
        followers = [node_id for node_id in run.cluster.nodes if node_id != leader]
        nodes = {"leader": [leader], "follower": [followers[step.args["follower"]]], "all": [1, 2, 3, 0]}[step.what]
        loss = PowerLoss(_disks, nodes, step.args["seed"])
        began_s = time.monotonic()
        if step.what != "all":
            run.expect_acks(f"power loss of a {step.what}, node {nodes[0]}")
        async with run.fault(loss):
            run.note(f"       {loss.described()}")
            run.counters["dropped_bytes"] += loss.dropped_bytes
            run.counters["dropped_record_bytes"] += loss.dropped_record_bytes
            run.counters[f"{step.what}_losses_that_dropped"] += loss.dropped_bytes > 0
            run.counters[f"{step.what}_losses_that_dropped_records"] += loss.dropped_record_bytes > 0
            await run.sleep_until(began_s + step.args["away_s"])
        await run.in_sync()
        await run.load.acked(3)


async def after(run: Run) -> None:
    """What every restart reported as truncated, and that it trusted nothing it should not."""
    cut = [
        line
        for node in run.cluster.nodes.values()
        for line in node.output.read_text(errors="replace").splitlines()
        if "log recovered" in line and "bytes_cut=0" not in line and "bytes_cut" in line
    ]
    run.counters["torn_tails_cut"] += len(cut)
    run.measured["first_cut"] = cut[0][:300] if cut else "none"


def demands(form: Form) -> Mapping[str, int]:
    """Bytes were dropped in at least half of the losses of each kind."""
    least = max(1, (_ROUNDS_SHORT if form.is_short else _ROUNDS) // 2)
    kinds = {f"{whose}_losses_that_dropped": least for whose in ("leader", "follower", "all")}
    return {"PowerLoss": least * 3, "dropped_record_bytes": 1, **kinds}


SCENARIO = Scenario(
    number=2,
    title="Power loss",
    plan=plan,
    prepare=prepare,
    play=play,
    after=after,
    demands=demands,
    needs=(NAMESPACES, DISKS),
    has_short_form=True,
)
