"""Scenario 28: what a change of the deciding controller costs, by every way in which it ends.

Nothing here is promised but what every other scenario checks; `tests/chaos/take_over_page.py` makes
their table in docs/OPERATIONS.md.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

from faults.processes import Kill, MachineGone, Stop
from harness.cluster import SESSION_S
from harness.facilities import ETCD
from harness.fault import Fault, Step
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario
from running_cluster import CALL_S

from strandline.v1 import controller_service_pb2 as pb

HAND_OVER = "hand-over"
SIGTERM = "SIGTERM"
KILLED = "kill -9"
BOTH_KILLED = "kill -9, and of a leader of partitions"
GONE = "its machine is gone"
GONE_WITH_ETCD = "its machine is gone, and etcd's leader with it"
WAYS = (HAND_OVER, SIGTERM, KILLED, BOTH_KILLED, GONE, GONE_WITH_ETCD)

_ROUNDS, _ROUNDS_SHORT = 5, 1
_QUIET_S, _QUIET_SHORT_S = 10.0, 2.0
"""Between two take-overs; longer than a standby keeps from taking a second key."""
_ACKS_S = 6.0 + SESSION_S + 4.0


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Every way in turn, round after round, each at another moment."""
    rounds, quiet_s = (_ROUNDS_SHORT, _QUIET_SHORT_S) if form.is_short else (_ROUNDS, _QUIET_S)
    return [Step(what=way, args={"after_s": quiet_s + draw.uniform(0.0, 1.0)}) for _ in range(rounds) for way in WAYS]


async def play(run: Run) -> None:
    """After each take-over everything is healed and in sync, and the load goes on undisturbed for a while."""
    for step in run.plan:
        await asyncio.sleep(step.args["after_s"])
        active = await run.several.active()
        faults = await _faults(run, step.what, active)
        began_s = time.monotonic()
        run.expect_acks(f"{active}: {step.what}", since_s=began_s, within_s=_ACKS_S, clients=("p0", "p1", "p2", "p3"))
        async with AsyncExitStack() as stack:
            if step.what == HAND_OVER:
                await _hand_over(run, active)
            await asyncio.gather(*(stack.enter_async_context(run.fault(fault)) for fault in faults))
            first = await run.several.taken_over(step.what, began_s, from_=active)
            run.note(f"{first.place} decides after {first.at_s - began_s:.3f} s")
            await run.load.acked(3)
        await run.in_sync()


async def _faults(run: Run, way: str, active: str) -> list[Fault]:
    if way == HAND_OVER:
        return []
    if way == SIGTERM:
        return [Stop(active)]
    if way == KILLED:
        return [Kill(active)]
    if way == BOTH_KILLED:
        return [Kill(active), Kill(await run.leader())]
    if way == GONE_WITH_ETCD:
        return [MachineGone([active, await run.several.etcd_leader()])]
    return [MachineGone([active])]


async def _hand_over(run: Run, active: str) -> None:
    """As `strandline controller hand-over` asks for it; the answer comes when another one decides."""
    place = list(run.cluster.controllers).index(active)
    run.note(f"begin  hand-over by {active}")
    await run.probe.controller_at(place).HandOver(pb.HandOverRequest(), timeout=CALL_S)
    run.counters["hand_over"] += 1


def demands(form: Form) -> Mapping[str, int]:
    """Each one ended a reign."""
    rounds = _ROUNDS_SHORT if form.is_short else _ROUNDS
    return {
        "hand_over": rounds,
        "Stop": rounds,
        "Kill": 3 * rounds,
        "MachineGone": 2 * rounds,
        "reigns": len(WAYS) * rounds + 1,
        "elections": rounds,
    }


SCENARIO = Scenario(
    number=28,
    title="What a take-over costs",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
)
