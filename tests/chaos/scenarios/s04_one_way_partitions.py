"""Scenario 4: packets of one direction are lost: a leader or a follower can only send, or can only receive."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.network import Cut
from harness.cluster import CONTROLLER, namespace
from harness.fault import Step
from harness.load import STRICT
from harness.run import AVAILABLE_S, Run
from harness.scenario import Form, Scenario
from harness.zombie import deposed, must_have_refused, watched

_LENGTH_S, _LENGTH_SHORT_S = 30.0, 8.0
_EVERYBODY = ("p0", "p1", "p2", "p3")


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Each of the four once; followers are drawn."""
    length_s = _LENGTH_SHORT_S if form.is_short else _LENGTH_S
    return [
        Step(what="leader mute", args={"length_s": length_s}),
        Step(what="leader deaf", args={"length_s": length_s}),
        Step(what="follower deaf", args={"length_s": length_s, "follower": draw.randrange(2)}),
        Step(what="follower mute", args={"length_s": length_s, "follower": draw.randrange(2)}),
    ]


async def play(run: Run) -> None:
    """One after the other, each from a cluster that is whole and led by its preferred leaders."""
    for step in run.plan:
        leader = await run.prefer_leaders()
        role, direction = step.what.split()
        if role == "leader":
            await _leader(run, leader, _links(leader, direction), step.args["length_s"])
        else:
            replicas = (await run.probe.partition(STRICT)).replicas
            node = [each for each in replicas if each != leader][step.args["follower"]]
            await _follower(run, node, _links(node, direction), step.args["length_s"])
        await run.in_sync()
        await run.load.acked(5)


def _links(node: int, direction: str) -> list[tuple[str, str]]:
    """All links between a node and the other processes of the cluster, in the direction that is lost."""
    own = namespace(node)
    others = [CONTROLLER, *(namespace(each) for each in (1, 2, 3) if each != node)]
    return [(own, other) if direction == "mute" else (other, own) for other in others]


async def _leader(run: Run, leader: int, links: list[tuple[str, str]], length_s: float) -> None:
    cut_s = time.monotonic()
    before = await watched(run, cut_s)
    run.expect_acks(f"leader {leader} cut off one way")
    cut = Cut(links)
    async with run.fault(cut):
        deposed_s = await deposed(run, before)
        await _both_others_go_on(run, cut_s + length_s)
        healed_s = time.monotonic()
    run.counters["dropped_packets"] += cut.dropped
    await must_have_refused(run, before, deposed_s, healed_s)


async def _follower(run: Run, node: int, links: list[tuple[str, str]], length_s: float) -> None:
    cut_s = time.monotonic()
    run.expect_acks(f"follower {node} cut off one way")
    cut = Cut(links)
    async with run.fault(cut):
        await _both_others_go_on(run, cut_s + length_s)
        isrs = [list(each.isr) for each in (await run.probe.topic(STRICT)).partitions]
        run.check(
            all(node not in isr for isr in isrs), f"node {node}, cut off for {length_s:g} s, is still in an ISR: {isrs}"
        )
    run.counters["dropped_packets"] += cut.dropped


async def _both_others_go_on(run: Run, until_s: float) -> None:
    """L8: the two remaining nodes accept records during the fault, from every client, up to its end."""
    await asyncio.sleep(AVAILABLE_S)
    await run.load.acked(5, timeout_s=AVAILABLE_S, clients=_EVERYBODY)
    await run.sleep_until(until_s - 2.0)
    await run.load.acked(3, timeout_s=AVAILABLE_S, clients=_EVERYBODY)
    await run.sleep_until(until_s)


def demands(form: Form) -> Mapping[str, int]:
    """Packets were lost, leaders were replaced, followers left, and the old leaders acknowledged nothing."""
    return {"Cut": 4, "dropped_packets": 40, "elections": 4, "isr_shrinks": 8, "zombie_refused": 2}


SCENARIO = Scenario(
    number=4,
    title="One-way partitions",
    plan=plan,
    play=play,
    demands=demands,
    has_short_form=True,
)
