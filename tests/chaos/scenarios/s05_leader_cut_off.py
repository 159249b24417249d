"""Scenario 5: a leader is cut off from followers and controller, with clients on both sides of the cut."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.network import Cut, both_ways
from harness.cluster import CONTROLLER, namespace
from harness.fault import Step
from harness.run import AVAILABLE_S, Run
from harness.scenario import Form, Scenario
from harness.zombie import deposed, must_have_refused, watched

_TIMES, _TIMES_SHORT = 5, 1
_LENGTH_S, _LENGTH_SHORT_S = 30.0, 10.0


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Always the leader that the stale client uses, and to which the acks=1 producer writes."""
    count, length_s = (_TIMES_SHORT, _LENGTH_SHORT_S) if form.is_short else (_TIMES, _LENGTH_S)
    return [Step(what="cut off", args={"length_s": length_s})] * count


async def play(run: Run) -> None:
    """cli1 stays with the old leader, cli0 with the others."""
    for step in run.plan:
        leader = await run.prefer_leaders()
        await run.load.acked(5, clients=("p0", "p1", "p2", "p3"))
        cut_s = time.monotonic()
        before = await watched(run, cut_s)
        run.expect_acks(f"leader {leader} cut off, seen from the majority's side")
        cut = Cut(_links(leader))
        async with run.fault(cut):
            deposed_s = await deposed(run, before)
            await asyncio.sleep(AVAILABLE_S)
            await run.load.acked(5, timeout_s=AVAILABLE_S)
            await run.sleep_until(cut_s + step.args["length_s"])
            healed_s = time.monotonic()
        run.expect_acks(f"clients that were cut off with leader {leader}, healed", clients=("p2", "p3"))
        run.counters["dropped_packets"] += cut.dropped
        await must_have_refused(run, before, deposed_s, healed_s)
        await run.in_sync()


def _links(leader: int) -> list[tuple[str, str]]:
    """All links between {leader, cli1} and the others."""
    minority = [namespace(leader), "cli1"]
    majority = [CONTROLLER, "cli0", *(namespace(each) for each in (1, 2, 3) if each != leader)]
    return [link for one in minority for other in majority for link in both_ways(one, other)]


def demands(form: Form) -> Mapping[str, int]:
    """Each cut made the old leader lose a tail."""
    count = _TIMES_SHORT if form.is_short else _TIMES
    return {
        "Cut": count,
        "dropped_packets": 20 * count,
        "elections": count,
        "truncations": count,
        "truncated_records": count,
        "zombie_refused": count,
    }


SCENARIO = Scenario(number=5, title="Leader cut off", plan=plan, play=play, demands=demands)
