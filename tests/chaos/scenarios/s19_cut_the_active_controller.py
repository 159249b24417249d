"""Scenario 19: the controller that decides is cut off from etcd alone, then from the nodes alone, one way each.

Cut off from etcd it must be replaced; cut off from the nodes it goes on, fences them, and takes them back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.network import Cut
from harness.facilities import ETCD
from harness.fault import Step
from harness.namespaces import MEMBERS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario

_NODES = ("n1", "n2", "n3")
_CUT_S, _CUT_SHORT_S = 15.0, 5.0
_PROMISED_S = 8.0
"""A call that hangs for 1 s at each member, and the lease."""


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Both directions of both kinds, in any order."""
    length_s = _CUT_SHORT_S if form.is_short else _CUT_S
    steps = [
        Step(what="cut", args={"others": others, "to_them": to_them, "length_s": length_s})
        for others in ("etcd", "nodes")
        for to_them in (True, False)
    ]
    draw.shuffle(steps)
    return steps


async def play(run: Run) -> None:
    """One cut after the other, each in a whole cluster."""
    for step in run.plan:
        active = await run.several.active()
        others = MEMBERS if step.args["others"] == "etcd" else _NODES
        links = [(active, other) if step.args["to_them"] else (other, active) for other in others]
        cut = Cut(links)
        began_s = time.monotonic()
        if step.args["others"] == "etcd":
            run.expect_acks(f"controller {active} is cut off from etcd", since_s=began_s)
        async with run.fault(cut):
            if step.args["others"] == "etcd":
                way = "to etcd" if step.args["to_them"] else "from etcd"
                first = await run.several.taken_over(f"cut {way}", began_s, from_=active)
                took_s = first.at_s - began_s
                run.note(f"{first.place} decides after {took_s:.3f} s")
                run.check(took_s < _PROMISED_S, f"{took_s:.2f} s from the cut of {active} {way} to a change elsewhere")
            await run.sleep_until(began_s + step.args["length_s"])
        run.counters["dropped"] += cut.dropped
        run.check(cut.dropped > 0, f"{cut.described()} dropped nothing")
        await run.several.active()
        await run.in_sync()
        await run.load.acked(3)
        await asyncio.sleep(1.0)


def demands(form: Form) -> Mapping[str, int]:
    """Two cuts ended a reign, and every cut dropped packets."""
    return {"Cut": 4, "reigns": 3, "dropped": 40}


SCENARIO = Scenario(
    number=19,
    title="Cut the active controller",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
)
