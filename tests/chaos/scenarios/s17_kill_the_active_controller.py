"""Scenario 17: of three controllers, the one that decides is killed every 5 seconds.

In the short form its successor is killed at once, so that the third one has to take over.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.processes import Kill
from harness.facilities import ETCD
from harness.fault import Step
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario

_KILLS, _KILLS_SHORT = 20, 2
_EVERY_S, _EVERY_SHORT_S = 5.0, 1.0
_PROMISED_S = 2.0
"""From `kill -9` to the first change that another controller accepts."""
_BY_LEASE_S = 6.0
"""A standby that took a key, which another one then won, takes no other for 10 s: the lease of 3 s has to end."""


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Every kill comes at another moment of the period."""
    count, every_s = (_KILLS_SHORT, _EVERY_SHORT_S) if form.is_short else (_KILLS, _EVERY_S)
    return [Step(what="kill the active", args={"after_s": every_s + draw.uniform(-0.5, 0.5)}) for _ in range(count)]


async def play(run: Run) -> None:
    """The killed one is started again as soon as another one decides; in the short form, both at the end."""
    faults = []
    for step in run.plan:
        active = await run.several.active()
        killed_s = time.monotonic()
        run.expect_acks(f"controller {active} is killed", since_s=killed_s)
        fault = Kill(active)
        faults.append(fault)
        await run.begin(fault)
        first = await run.several.taken_over("kill -9", killed_s, from_=active)
        took_s = first.at_s - killed_s
        run.note(f"{first.place} decides after {took_s:.3f} s")
        promised_s = _BY_LEASE_S if run.form.is_short and len(faults) > 1 else _PROMISED_S
        run.check(took_s < promised_s, f"{took_s:.2f} s from kill -9 of {active} to a change, {promised_s:g} s")
        if not run.form.is_short:
            await run.end(fault)
        await run.sleep_until(killed_s + step.args["after_s"])
    await asyncio.gather(*map(run.end, faults))
    await run.in_sync()


def demands(form: Form) -> Mapping[str, int]:
    """Each kill ended a reign."""
    count = _KILLS_SHORT if form.is_short else _KILLS
    return {"Kill": count, "reigns": count + 1}


SCENARIO = Scenario(
    number=17,
    title="Kill the active controller",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
    has_short_form=True,
    # The whole log is compared at the end.
    controller_settings={"tune": "log_snapshot_every=1000000"},
)
