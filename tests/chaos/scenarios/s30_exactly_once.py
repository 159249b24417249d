"""Scenario 30: three processes consume, transform and produce in transactions while the data nodes are hit.

They are one group; each has a transactional id. The node that is hit is the coordinator of the group, or that of a
transactional id: killed, paused, or cut off from the other nodes and the controller in one direction. A process is
killed or paused now and then. Of every input that was acknowledged there must be exactly one output for those who
read committed records, and the group's offsets must be behind exactly these (I39, `harness/exactly_once.py`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from faults.members import MemberKilled, MemberPaused
from faults.network import Cut
from faults.processes import Kill, Pause
from harness.cluster import CONTROLLER, namespace
from harness.coordinator import Coordinated, coordinator, coordinator_epoch, group, transactional_id
from harness.fault import Fault, Step
from harness.run import Run
from harness.scenario import Form, Scenario
from harness.transformers import GROUP, INPUTS, OUTPUTS, Transformers, transactional_id_of
from settled_logs import assert_settled

from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE

_SLOTS = 3
_STEPS, _STEPS_SHORT = 240, 3
_EVERY_S, _EVERY_SHORT_S = 15.0, 4.0
"""The full form takes an hour."""
_PAUSED_S = 4.5
"""Longer than the session of a node: another one leads when it goes on."""
_CUT_S = 8.0
"""Longer than the session of a node and of a group's member."""
_MEMBER_PAUSED_S = (7.0, 12.0)
"""Longer than the session of a member, and now and then than the time of a transaction."""
_LAG_S = 60.0


def plan(draw: random.Random, form: Form) -> list[Step]:
    """A third of the nodes are killed, paused and cut off; every third time a process is hit at once."""
    count = _STEPS_SHORT if form.is_short else _STEPS
    faults = [("kill", "pause", "cut")[number % 3] for number in range(count)]
    hits = [("kill", None, None, "pause", None, None)[number % 6] for number in range(count)]
    targets = [("transactions", "group")[number % 2] for number in range(count)]
    for each in (faults, hits, targets):
        draw.shuffle(each)
    return [_step(draw, *each) for each in zip(faults, targets, hits, strict=True)]


def _step(draw: random.Random, fault: str, target: str, hit: str | None) -> Step:
    slot = draw.randrange(_SLOTS)
    args: dict[str, Any] = {
        "fault": draw.choice(("mute", "deaf")) if fault == "cut" else fault,
        "away_s": {"kill": draw.choice((0.0, draw.uniform(3.5, 5.0))), "pause": _PAUSED_S, "cut": _CUT_S}[fault],
        "slot": slot if target == "transactions" else None,
        "member": None,
    }
    if hit is not None:
        away_s = draw.uniform(*_MEMBER_PAUSED_S) if hit == "pause" else draw.uniform(0.0, 3.0)
        # Not the one whose coordinator is hit, because its commits are measured.
        args["member"] = {"fault": hit, "slot": (slot + draw.randrange(1, _SLOTS)) % _SLOTS, "away_s": away_s}
    return Step(what=f"{args['fault']} the coordinator of {target}", args=args)


async def play(run: Run) -> None:
    """After each step every process commits again; after the last one the group works off what is left."""
    transformers = Transformers(run=run, slots=_SLOTS)
    await transformers.start()
    try:
        await transformers.everybody_commits(1)
        first = await _epochs(run)
        for step in run.plan:
            began_s = time.monotonic()
            await asyncio.gather(_chase(run, transformers, step), _trouble(run, transformers, step.args["member"]))
            await run.in_sync()
            for topic in (GROUP_STATE, TRANSACTION_STATE, INPUTS, OUTPUTS):
                await run.probe.in_sync(topic)
            again_s = await transformers.everybody_commits(1)
            run.measured["everybody_again_max_s"] = max(
                round(again_s, 1), run.measured.get("everybody_again_max_s", 0.0)
            )
            await run.sleep_until(began_s + (_EVERY_SHORT_S if run.form.is_short else _EVERY_S))
        run.counters["coordinator_epochs"] = await _epochs(run) - first
        await transformers.finish(_LAG_S)
        for topic in (INPUTS, OUTPUTS):
            run.measured[f"records_{topic}"] = await assert_settled(run.probe, topic)
    finally:
        transformers.judge()


def _coordinated(slot: int | None) -> Coordinated:
    return group(GROUP) if slot is None else transactional_id(transactional_id_of(slot))


async def _epochs(run: Run) -> int:
    """Of all coordinators of the scenario together."""
    return sum([await coordinator_epoch(run, _coordinated(slot)) for slot in (None, *range(_SLOTS))])


async def _chase(run: Run, transformers: Transformers, step: Step) -> None:
    name, slot = step.args["fault"], step.args["slot"]
    node = await coordinator(run, _coordinated(slot))
    hit_s = time.monotonic()
    what = f"{step.what} on node {node}, step {len(transformers.awaited)}"
    run.expect_acks(what, since_s=hit_s)
    # The group's coordinator takes the offsets of everybody, another one decides for its transactional id.
    transformers.await_commit(what, hit_s, range(_SLOTS) if slot is None else range(slot, slot + 1))
    fault = _fault(name, node)
    async with run.fault(fault):
        await run.sleep_until(hit_s + step.args["away_s"])
    if isinstance(fault, Cut):
        run.counters["dropped_packets"] += fault.dropped


def _fault(name: str, node: int) -> Fault:
    if name == "kill":
        return Kill(node)
    if name == "pause":
        return Pause(node)
    own = namespace(node)
    others = [CONTROLLER, *(namespace(each) for each in (1, 2, 3) if each != node)]
    return Cut([(own, other) if name == "mute" else (other, own) for other in others])


async def _trouble(run: Run, transformers: Transformers, hit: dict[str, Any] | None) -> None:
    if hit is None:
        return
    kind = MemberPaused if hit["fault"] == "pause" else MemberKilled
    async with run.fault(kind(transformers, hit["slot"])):
        await asyncio.sleep(hit["away_s"])


def demands(form: Form) -> Mapping[str, int]:
    """Coordinators changed, transactions were committed and aborted meanwhile, and outputs were read."""
    steps = _STEPS_SHORT if form.is_short else _STEPS
    return {
        "Kill": steps // 3,
        "Pause": steps // 3,
        "Cut": steps // 3,
        "dropped_packets": 5 * (steps // 3),
        "MemberKilled": steps // 6 if steps >= 6 else 1,
        "MemberPaused": steps // 6,
        "coordinator_epochs": steps * 2 // 3,
        "transactions_committed": 10 * steps,
        "transactions_aborted": steps,
        "inputs": 100 * steps,
        "outputs": 100 * steps,
    }


SCENARIO = Scenario(
    number=30,
    title="Exactly once",
    plan=plan,
    play=play,
    demands=demands,
    has_short_form=True,
    # Three processes with transactions and their producer share the processor with the common load.
    pause_s=0.05,
)
