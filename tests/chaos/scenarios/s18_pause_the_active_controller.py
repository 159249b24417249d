"""Scenario 18: the controller that decides is stopped in mid-load for longer than its lease, and then goes on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.processes import Pause
from harness.facilities import ETCD
from harness.fault import Step
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario

_PAUSES, _PAUSES_SHORT = 5, 1
_STOPPED_S, _STOPPED_SHORT_S = 15.0, 5.0
_PROMISED_S = 6.0
"""The lease of 3 s ends 3.5 s after the last renewal, and this machine is busy."""
_AFTER_S = 2.0


def plan(draw: random.Random, form: Form) -> list[Step]:
    """A few milliseconds after a change was asked for, so that some pauses are within an append."""
    count, stopped_s = (_PAUSES_SHORT, _STOPPED_SHORT_S) if form.is_short else (_PAUSES, _STOPPED_S)
    return [
        Step(what="pause the active", args={"length_s": stopped_s, "delay_s": draw.uniform(0.0, 0.04)})
        for _ in range(count)
    ]


async def play(run: Run) -> None:
    """After each pause, nothing that the controller had begun is stored, and it follows the one that replaced it."""
    for step in run.plan:
        active = await run.several.active()
        await asyncio.sleep(step.args["delay_s"])
        stopped_s = time.monotonic()
        run.expect_acks(f"controller {active} stands still", since_s=stopped_s)
        async with run.fault(Pause(active)):
            first = await run.several.taken_over("SIGSTOP", stopped_s, from_=active)
            took_s = first.at_s - stopped_s
            run.note(f"{first.place} decides after {took_s:.3f} s")
            run.check(took_s < _PROMISED_S, f"{took_s:.2f} s from SIGSTOP of {active} to a change elsewhere")
            await run.sleep_until(stopped_s + step.args["length_s"])
        went_on_s = time.monotonic()
        await asyncio.sleep(_AFTER_S)
        own = run.several.accepted_by(active, stopped_s + 0.1, time.monotonic())
        run.check(not own, f"{active} accepted {len(own)} changes after another one had replaced it")
        still = await run.several.active()
        run.check(still == first.place, f"{still} decides after {active} went on, and not {first.place}")
        run.counters["went_on_replaced"] += went_on_s > first.at_s
    await run.in_sync()


def demands(form: Form) -> Mapping[str, int]:
    """Each pause ended a reign, and each controller went on when another one decided."""
    count = _PAUSES_SHORT if form.is_short else _PAUSES
    return {"Pause": count, "reigns": count + 1, "went_on_replaced": count}


SCENARIO = Scenario(
    number=18,
    title="Pause the active controller",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
    has_short_form=True,
    # The whole log is compared at the end: an append of the stopped controller would be in it.
    controller_settings={"tune": "log_snapshot_every=1000000"},
)
