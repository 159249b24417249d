"""Scenario 14: the clocks of one role are wrong: an hour ahead, an hour behind, half as fast, twice as fast."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from faults.clock import CLOCKS, Clock, WrongClock
from harness.counters import rows
from harness.fault import Step
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario

_WRONG = ({"wall_offset_s": 3600.0}, {"wall_offset_s": -3600.0}, {"rate": 0.5}, {"rate": 2.0})
_ROLES = ("controller", "leader", "follower")
_LENGTH_S = 5.0
_clocks: dict[int, Clock] = {}


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Every wrong clock at every role, in a drawn order."""
    steps = [Step(what=role, args=dict(wrong)) for role in _ROLES for wrong in _WRONG]
    draw.shuffle(steps)
    return steps


async def prepare(run: Run) -> None:
    """Every process is started with a clock of its own, which is right at first."""
    for node_id in range(4):
        clock = Clock(run.directory / "clocks", run.cluster.service(node_id).name)
        _clocks[node_id] = clock
        run.cluster.wrapping[node_id].environment |= clock.environment


async def play(run: Run) -> None:
    """Five seconds wrong, five seconds right, and so on."""
    for step in run.plan:
        leader = await run.leader()
        follower = next(node_id for node_id in run.cluster.nodes if node_id != leader)
        node = {"controller": 0, "leader": leader, "follower": follower}[step.what]
        began_s = time.monotonic()
        before = _unrest(run)
        run.expect_acks(f"wrong clock of the {step.what}")
        reported = _clocks[node].wrong_answers
        async with run.fault(WrongClock(_clocks[node], **step.args)):
            await run.sleep_until(began_s + _LENGTH_S)
        reported = _clocks[node].wrong_answers - reported
        run.counters["wrong_answers"] += reported
        run.counters["clocks_that_were_asked"] += reported > 0
        await run.sleep_until(began_s + 2 * _LENGTH_S)
        fences, elections = (now - then for now, then in zip(_unrest(run), before, strict=True))
        run.check(fences <= 1, f"{fences} nodes were fenced by {step}")
        run.check(elections <= len(run.load.topics) + 2, f"{elections} elections came of {step}")
        run.counters["fences"] += fences
        await run.in_sync()
        await run.load.acked(3)


def _unrest(run: Run) -> tuple[int, int]:
    """How many sessions ended and how many leaders were elected up to now."""
    seen = list(rows(run.cluster.controller.directory))
    fences = sum(row["event_type"] == "NODE_SESSION" and row.get("phase") == "fence" for row in seen)
    return fences, sum(row["event_type"] == "LEADER_CHANGE" and row.get("old_leader_epoch") is not None for row in seen)


def demands(form: Form) -> Mapping[str, int]:
    """Every clock was wrong in every way, and its process read it meanwhile."""
    return {"WrongClock": 12, "clocks_that_were_asked": 12}


SCENARIO = Scenario(
    number=14,
    title="Clocks",
    plan=plan,
    prepare=prepare,
    play=play,
    demands=demands,
    needs=(NAMESPACES, CLOCKS),
)
