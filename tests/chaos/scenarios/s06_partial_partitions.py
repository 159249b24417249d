"""Scenario 6: one link is cut and all others work: leader-controller, leader-one follower, follower-controller."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.network import Cut, both_ways
from harness.cluster import CONTROLLER, LAG_S, namespace
from harness.fault import Step
from harness.load import STRICT
from harness.run import AVAILABLE_S, Run
from harness.scenario import Form, Scenario
from harness.zombie import deposed, must_have_refused, watched
from running_cluster import until

_LENGTH_S, _LENGTH_SHORT_S = 30.0, 10.0
_NORMAL_S = 10.0
_SHRINK_S = LAG_S + 2.0
_LEAST_P99_S = 0.1
"""Below this, twice the normal latency says more about the machine than about the cluster."""


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Each of the three once."""
    length_s = _LENGTH_SHORT_S if form.is_short else _LENGTH_S
    kinds = ("leader-controller", "leader-follower", "follower-controller")
    return [Step(what=kind, args={"length_s": length_s, "follower": draw.randrange(2)}) for kind in kinds]


async def play(run: Run) -> None:
    """One after the other, each from a whole cluster."""
    for step in run.plan:
        leader = await run.prefer_leaders()
        replicas = (await run.probe.partition(STRICT)).replicas
        follower = [each for each in replicas if each != leader][step.args["follower"]]
        length_s = step.args["length_s"]
        if step.what == "leader-controller":
            await _leader_without_controller(run, leader, length_s)
        elif step.what == "leader-follower":
            await _leader_without_one_follower(run, leader, follower, length_s)
        else:
            await _follower_without_controller(run, follower, length_s)
        await run.in_sync()
        await run.load.acked(5)


async def _leader_without_controller(run: Run, leader: int, length_s: float) -> None:
    """The followers still reach the old leader, so only the epoch makes it lose them."""
    cut_s = time.monotonic()
    before = await watched(run, cut_s)
    run.expect_acks(f"leader {leader} without controller")
    cut = Cut(both_ways(namespace(leader), CONTROLLER))
    async with run.fault(cut):
        deposed_s = await deposed(run, before)
        await run.sleep_until(cut_s + length_s)
        healed_s = time.monotonic()
    run.counters["dropped_packets"] += cut.dropped
    await must_have_refused(run, before, deposed_s, healed_s)


async def _leader_without_one_follower(run: Run, leader: int, follower: int, length_s: float) -> None:
    """Only the leader can detect it, by lag; then commits are as fast as before."""
    await asyncio.sleep(_NORMAL_S)
    cut_s = time.monotonic()
    run.expect_acks(f"leader {leader} without follower {follower}", within_s=_SHRINK_S)
    cut = Cut(both_ways(namespace(leader), namespace(follower)))
    async with run.fault(cut):
        await _left(run, follower, _SHRINK_S)
        run.measured["shrunk_after_s"] = round(time.monotonic() - cut_s, 2)
        # Requests that had waited for the shrink end now.
        await asyncio.sleep(1.0)
        quiet_s = time.monotonic()
        await run.sleep_until(cut_s + length_s)
        normal, during = _p99(run, cut_s - _NORMAL_S, cut_s), _p99(run, quiet_s, time.monotonic() - 1.0)
    run.counters["dropped_packets"] += cut.dropped
    run.measured |= {"p99_normal_ms": round(normal * 1000), "p99_without_follower_ms": round(during * 1000)}
    run.check(
        during < max(2 * normal, _LEAST_P99_S),
        f"without follower {follower}, p99 of commits was {during * 1000:.0f} ms, before {normal * 1000:.0f} ms",
    )


async def _follower_without_controller(run: Run, follower: int, length_s: float) -> None:
    """It continues to replicate, and counts nowhere."""
    cut_s = time.monotonic()
    run.expect_acks(f"follower {follower} without controller")
    cut = Cut(both_ways(namespace(follower), CONTROLLER))
    async with run.fault(cut):
        await _left(run, follower, AVAILABLE_S)
        fetched = False
        while time.monotonic() < cut_s + length_s:
            isrs = [list(each.isr) for each in (await run.probe.topic(STRICT)).partitions]
            run.check(not any(follower in isr for isr in isrs), f"fenced node {follower} came into an ISR: {isrs}")
            fetched = fetched or await _fetches(run, follower)
            await asyncio.sleep(0.2)
        run.counters["fenced_node_fetched"] += fetched
    run.counters["dropped_packets"] += cut.dropped


async def _left(run: Run, node: int, within_s: float) -> None:
    """Waits until a node has left the ISR of partition 0."""

    async def look() -> bool:
        partition = await run.probe.partition(STRICT)
        return node not in partition.isr

    await until(look, f"node {node} has left the ISR of {STRICT}-0", timeout_s=within_s)


async def _fetches(run: Run, node: int) -> bool:
    """Whether the leader of partition 0 has received a fetch of ``node`` within the last second."""
    led = await run.probe.described(STRICT, await run.leader())
    return any(each.replica_id == node and each.last_fetch_age_ms < 1_000 for each in led.replicas)


def _p99(run: Run, since_s: float, until_s: float) -> float:
    """The 99th percentile of the time from send to acknowledgement in partition 0."""
    took = sorted(
        each.completed_s - each.invoked_s
        for name in ("p0", "p1", "p2", "p3")
        for each in run.load.sent_between(name, since_s, until_s)
        if each.partition == 0 and each.outcome == "ok" and each.completed_s is not None
    )
    assert took, "no acknowledgement in the whole span"
    return took[int(len(took) * 0.99)]


def demands(form: Form) -> Mapping[str, int]:
    """Links lost packets, a leader was replaced, ISRs shrank and grew, and the fenced follower kept fetching."""
    return {
        "Cut": 3,
        "dropped_packets": 20,
        "elections": 1,
        "isr_shrinks": 3,
        "isr_grows": 3,
        "zombie_refused": 1,
        "fenced_node_fetched": 1,
    }


SCENARIO = Scenario(number=6, title="Partial partitions", plan=plan, play=play, demands=demands)
