"""Scenario 29: the coordinator of a group of six members is hit again and again, and members now and then.

A topic of nine partitions is produced to all the time; six processes work on it as one group and commit behind what
they have worked on. Each time the node is hit that FindCoordinator names. What members did and saw is judged by
`strandline_sim.checks.member_history`: every acknowledged record was worked on, no committed offset went back, was lost
or was written by a member that did not hold the partition, and no two worked on one partition at a time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from faults.members import MemberKilled, MemberPaused
from faults.network import Cut, both_ways
from faults.processes import Kill, Pause
from harness.cluster import namespace
from harness.fault import Fault, Step
from harness.group import HALF, REBALANCE_MS, SESSION_MS, TOPIC, Group
from harness.run import AVAILABLE_S, Run
from harness.scenario import Form, Scenario
from settled_logs import assert_settled

from strandline.client.groups.coordinator import ATTEMPT_MS

_MEMBERS = 6
_STEPS, _STEPS_SHORT = 100, 4
_EVERY_S, _EVERY_SHORT_S = 12.0, 6.0
_PAUSED_S = 4.5
"""Longer than the session of a node: another one leads when it goes on."""
_MEMBER_PAUSED_S = (7.0, 9.0)
"""Longer than the session of a member: its partitions are others' when it goes on."""
_CUT_S = 9.0
"""Longer than the session of a member, whose partitions are then others'."""
_AVAILABLE_AFTER_PAUSE_S = ATTEMPT_MS / 1000 + 2.0
"""A commit that was sent to a node that stands still is given up, and sent to the next one, after this attempt."""
_STABLE_S = (SESSION_MS + REBALANCE_MS) / 1000
_LAG_S = 30.0


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Of four coordinators one is paused, one cut off, two are killed; every second time a member is hit at once."""
    count = _STEPS_SHORT if form.is_short else _STEPS
    faults = [("pause", "cut", "kill", "kill")[number % 4] for number in range(count)]
    hits = [(None, "kill", None, "pause")[number % 4] for number in range(count)]
    draw.shuffle(faults)
    draw.shuffle(hits)
    return [
        Step(
            what=f"{fault} the coordinator",
            args={
                "fault": fault,
                "away_s": _away_s(draw, fault),
                "member": _hit(draw, hit),
            },
        )
        for fault, hit in zip(faults, hits, strict=True)
    ]


def _away_s(draw: random.Random, fault: str) -> float:
    if fault == "kill":
        return draw.choice((0.0, draw.uniform(3.5, 5.0)))
    return _PAUSED_S if fault == "pause" else _CUT_S


def _hit(draw: random.Random, fault: str | None) -> dict[str, Any] | None:
    if fault is None:
        return None
    away_s = draw.uniform(*_MEMBER_PAUSED_S) if fault == "pause" else draw.uniform(0.0, 3.0)
    return {"fault": fault, "slot": draw.randrange(_MEMBERS), "away_s": away_s}


async def play(run: Run) -> None:
    """After each step the group goes on; after the last it becomes stable and works off what is left."""
    group = Group(run=run, slots=_MEMBERS)
    await group.start()
    try:
        await group.stable(_STABLE_S)
        await group.commits(5)
        first = await group.coordinator_epoch()
        for step in run.plan:
            began_s = time.monotonic()
            await asyncio.gather(_chase(run, group, step.args), _trouble(run, group, step.args["member"]))
            await run.in_sync()
            await group.in_sync()
            await group.commits(5)
            await run.sleep_until(began_s + (_EVERY_SHORT_S if run.form.is_short else _EVERY_S))
        run.counters["coordinator_epochs"] = await group.coordinator_epoch() - first
        run.measured["stable_after_s"] = round(await group.stable(_STABLE_S), 1)
        await group.finish(_LAG_S)
        run.measured[f"records_{TOPIC}"] = await assert_settled(run.probe, TOPIC)
    finally:
        group.judge()


async def _chase(run: Run, group: Group, args: dict[str, Any]) -> None:
    node = await group.coordinator()
    hit_s = time.monotonic()
    why = f"{args['fault']} of coordinator {node} after {len(group.awaited)} others"
    run.expect_acks(why, since_s=hit_s)
    group.expect_commits(why, hit_s, _AVAILABLE_AFTER_PAUSE_S if args["fault"] == "pause" else AVAILABLE_S)
    fault = _fault(args["fault"], node)
    async with run.fault(fault):
        await run.sleep_until(hit_s + args["away_s"])
    if isinstance(fault, Cut):
        run.counters["dropped_packets"] += fault.dropped


def _fault(name: str, node: int) -> Fault:
    if name == "cut":
        return Cut(both_ways(HALF, namespace(node)))
    return Pause(node) if name == "pause" else Kill(node)


async def _trouble(run: Run, group: Group, hit: dict[str, Any] | None) -> None:
    if hit is None:
        return
    kind = MemberPaused if hit["fault"] == "pause" else MemberKilled
    async with run.fault(kind(group, hit["slot"])):
        await asyncio.sleep(hit["away_s"])


def demands(form: Form) -> Mapping[str, int]:
    """Kills and pauses began leader epochs; partitions changed hands, and the group went on committing."""
    steps = _STEPS_SHORT if form.is_short else _STEPS
    return {
        "Kill": steps // 2,
        "Pause": steps // 4,
        "Cut": steps // 4,
        "dropped_packets": 5 * (steps // 4),
        "MemberKilled": steps // 4,
        "MemberPaused": steps // 4,
        "coordinator_epochs": steps * 3 // 4,
        "members_taken": 9 + 2 * (steps // 2),
        "commits": 20 * steps,
    }


SCENARIO = Scenario(
    number=29,
    title="Chase the coordinator",
    plan=plan,
    play=play,
    demands=demands,
    has_short_form=True,
    # Six members and their producer share the processor with the common load.
    pause_s=0.05,
)
