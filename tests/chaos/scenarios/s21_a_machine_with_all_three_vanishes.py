"""Scenario 21: a machine vanishes that ran the controller that decides, etcd's leader and a leader of partitions."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.processes import MachineGone
from harness.cluster import SESSION_S
from harness.facilities import ETCD
from harness.fault import Step
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario

_ROUNDS, _ROUNDS_SHORT = 5, 1
_GONE_S, _GONE_SHORT_S = 20.0, 12.0
_PROMISED_S = 6.0
"""To the first change elsewhere, with etcd's leader on the machine."""
_ACKS_S = _PROMISED_S + SESSION_S + 4.0
"""The new reign gives the vanished node a full session first; then elections and the clients' retries."""


def plan(draw: random.Random, form: Form) -> list[Step]:
    """The same machine is gone for a while and comes back."""
    rounds, gone_s = (_ROUNDS_SHORT, _GONE_SHORT_S) if form.is_short else (_ROUNDS, _GONE_S)
    return [Step(what="machine gone", args={"length_s": gone_s + draw.uniform(0.0, 2.0)}) for _ in range(rounds)]


async def play(run: Run) -> None:
    """Which three processes are on it follows from who decides and leads at that moment."""
    for step in run.plan:
        active, member = await run.several.active(), await run.several.etcd_leader()
        node = await run.leader()
        began_s = time.monotonic()
        run.expect_acks("a machine vanishes", since_s=began_s, within_s=_ACKS_S, clients=("p0", "p1", "p2", "p3"))
        async with run.fault(MachineGone([active, member, node])):
            first = await run.several.taken_over("machine gone, with etcd's leader", began_s, from_=active)
            took_s = first.at_s - began_s
            run.note(f"{first.place} decides after {took_s:.3f} s")
            run.check(took_s < _PROMISED_S, f"{took_s:.2f} s from the loss of the machine to a change elsewhere")
            run.counters["led_elsewhere"] += await run.probe.leader("tides", 0, other_than=node) != node
            await run.sleep_until(began_s + step.args["length_s"])
        await run.in_sync()
        await run.load.acked(3)
        await asyncio.sleep(1.0)


def demands(form: Form) -> Mapping[str, int]:
    """Each loss ended a reign and moved a leader."""
    rounds = _ROUNDS_SHORT if form.is_short else _ROUNDS
    return {"MachineGone": rounds, "reigns": rounds + 1, "led_elsewhere": rounds, "elections": rounds}


SCENARIO = Scenario(
    number=21,
    title="A machine with all three vanishes",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
)
