"""Scenario 7: processes are paused: leaders beyond their session, a follower for less and for more than its lag."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from faults.processes import Pause
from harness.cluster import LAG_S, SESSION_S
from harness.counters import rows
from harness.fault import Step
from harness.load import STRICT
from harness.run import Run
from harness.scenario import Form, Scenario

_PAUSES, _PAUSES_SHORT = 20, 3
_BURST = 300
_EVENTS_WRITTEN_S = 0.5


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Every second leader is paused within a burst, a few milliseconds after it began: in the middle of an append."""
    count = _PAUSES_SHORT if form.is_short else _PAUSES
    leaders = [
        Step(
            what="leader",
            args={"length_s": 1.5 * SESSION_S, "burst": bool(number % 2), "delay_s": draw.uniform(0.01, 0.12)},
        )
        for number in range(count)
    ]
    followers = [
        Step(what="follower, short", args={"length_s": 0.5 * LAG_S, "follower": draw.randrange(2)}),
        Step(what="follower, long", args={"length_s": 2.0 * LAG_S, "follower": draw.randrange(2)}),
    ]
    return [*followers, *leaders]


async def play(run: Run) -> None:
    """One pause after the other, each in a whole cluster."""
    for step in run.plan:
        if step.what == "leader":
            await _leader(run, step.args)
        else:
            await _follower(run, step)
        await run.in_sync()
        await run.load.acked(5)


async def _leader(run: Run, args: dict[str, Any]) -> None:
    node = await run.leader()
    if args["burst"]:
        await run.load.burst(_BURST)
        await asyncio.sleep(args["delay_s"])
    stopped_s = time.monotonic()
    run.expect_acks(f"leader {node} stands still")
    async with run.fault(Pause(node)):
        await run.sleep_until(stopped_s + 0.3)
        waiting = [each for each in run.load.sends if not each.outcome and each.invoked_s <= stopped_s]
        run.counters["stopped_with_open_sends"] += bool(waiting)
        run.counters["open_sends_at_stops"] += len(waiting)
        await run.sleep_until(stopped_s + args["length_s"])


async def _follower(run: Run, step: Step) -> None:
    await run.prefer_leaders()
    await asyncio.sleep(_EVENTS_WRITTEN_S)
    leader = await run.leader()
    replicas = (await run.probe.partition(STRICT)).replicas
    node = [each for each in replicas if each != leader][step.args["follower"]]
    topic_id = (await run.probe.topic(STRICT)).topic_id
    before = len(_isr_changes(run, topic_id))
    began_s = time.monotonic()
    async with run.fault(Pause(node)):
        await run.sleep_until(began_s + step.args["length_s"])
    await run.in_sync()
    await asyncio.sleep(_EVENTS_WRITTEN_S)
    changes = _isr_changes(run, topic_id)[before:]
    shown = [(row["old_isr"], row["new_isr"]) for row in changes]
    if step.what == "follower, short":
        run.check(not changes, f"a pause of {step.args['length_s']:g} s changed ISRs of partition 0: {shown}")
    else:
        left = [1 for old, new in shown if node in old and node not in new]
        joined = [1 for old, new in shown if node in new and node not in old]
        is_once = len(left) == 1 and len(joined) == 1
        run.check(is_once, f"by one long pause node {node} left {len(left)}, joined {len(joined)} times: {shown}")
        run.counters["long_pause_shrinks"] += len(left)


def _isr_changes(run: Run, topic_id: str) -> list[dict[str, Any]]:
    """Committed changes of the ISR of a topic's partition 0, from the controller's decisions."""
    found = rows(run.cluster.controller.directory)
    return [
        row
        for row in found
        if row["event_type"] == "ISR_CHANGE" and row["partition"] == 0 and row["topic_id"] == topic_id
    ]


def demands(form: Form) -> Mapping[str, int]:
    """Each long pause deposed a leader, and pauses overlapped with open sends."""
    count = _PAUSES_SHORT if form.is_short else _PAUSES
    return {
        "Pause": count + 2,
        "leader_epochs": count,
        "stopped_with_open_sends": count // 2,
        "long_pause_shrinks": 1,
    }


SCENARIO = Scenario(number=7, title="Pauses", plan=plan, play=play, demands=demands)
