"""Replicas move while everything is restarted in turn (24), and while nodes and controllers fail at random (31)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any

from faults.network import Cut, both_ways
from faults.processes import Kill, Pause, Stop, Wipe
from harness.cluster import Place, namespace
from harness.facilities import ETCD
from harness.load import EVERYBODY
from harness.moves import Moves, drawn, staying_in_sync
from harness.namespaces import CONTROLLERS, MEMBERS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Fault, Form, Scenario, Step
from scenarios.active_controller import WHOLE_LOG
from scenarios.soak import checkpoint, nothing_grew

_KEPT: Mapping[str, str] = {"stray_keep_ms": "5000"}
"""So that the logs of moved replicas are removed within the run."""


class RollingRestartWithMoves(Scenario):
    """Scenario 24: etcd, controllers and nodes are restarted in turn, again and again, while every partition moves."""

    number, title, has_short_form = 24, "Rolling restart with moves", True
    needs = (NAMESPACES, IPTABLES, ETCD)
    controller_settings = WHOLE_LOG
    node_settings = _KEPT
    node_ids = (1, 2, 3, 4, 5)
    moves = (200, 24)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """The order of the restarts, and the moves. All controllers, so that the one that decides is among them."""
        members, controllers, nodes = form.of((3, 3, 5), (1, 3, 2))
        places: list[Place] = [*draw.sample(MEMBERS, k=members), *draw.sample(CONTROLLERS, k=controllers)]
        places += draw.sample(self.node_ids, k=nodes)
        restarts = [Step(what="restart", args={"place": place}) for place in places]
        return [*restarts, *drawn(draw, form.of(*self.moves), self.node_ids)]

    async def play(self, run: Run) -> None:
        """Every process once, and then again for as long as moves are left."""
        moving = asyncio.create_task(Moves(run, [step for step in run.plan if step.what == "move"]).play())
        places = [step.args["place"] for step in run.plan if step.what == "restart"]
        try:
            for number, place in enumerate(cycle(places)):
                if number >= len(places) and moving.done():
                    break
                await self._restart(run, place)
            await moving
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)

    async def _restart(self, run: Run, place: Place) -> None:
        await staying_in_sync(run)
        began_s = time.monotonic()
        run.expect_acks(f"{place} is restarted", since_s=began_s, clients=EVERYBODY)
        async with run.fault(Stop(place)):
            pass
        await run.several.goes_on(f"{place} was restarted", began_s)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every process was restarted, or half of them, most moves ended elsewhere, and reigns changed."""
        count = form.of(*self.moves)
        return {"Stop": form.of(11, 6), "moves": count // 2, "moves_cancelled": 1, "reigns": 2}


class MovesUnderFaults(Scenario):
    """Scenario 31: moves at random for a given time, while nodes and controllers are killed, paused, cut and wiped.

    Every two minutes all moves end, everything heals, and everything is compared; at the end the whole history.
    """

    number, title, pause_s = 31, "Moves under faults", 0.04
    needs = (NAMESPACES, IPTABLES, ETCD)
    controller_settings = WHOLE_LOG
    node_settings = _KEPT
    node_ids = (1, 2, 3, 4, 5)
    period_s = 120.0
    kinds = (
        "kill node",
        "stop node",
        "pause node",
        "cut node",
        "wipe node",
        "kill active",
        "pause active",
        "kill both",
    )

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Periods of faults and moves; the kinds in turn, so that each comes about equally often."""
        steps: list[Step] = []
        kinds = cycle(draw.sample(self.kinds, k=len(self.kinds)))
        for _ in range(max(1, round(form.minutes * 60 / self.period_s))):
            steps += drawn(draw, 200, self.node_ids)
            for _ in range(12):
                args: dict[str, Any] = {"kind": next(kinds), "node": draw.choice(self.node_ids)}
                steps.append(Step(what="fault", args=args | {"length_s": draw.uniform(0.5, 6.0)}))
            steps.append(Step(what="checkpoint", args={}))
        return steps

    async def play(self, run: Run) -> None:
        """Period after period."""
        period: list[Step] = []
        for step in run.plan:
            if step.what != "checkpoint":
                period.append(step)
                continue
            await self._period(run, period)
            await checkpoint(run, reads=False)
            period.clear()

    async def _period(self, run: Run, steps: list[Step]) -> None:
        """Faults until they or the time are over; then the moves under way end."""
        until_s = time.monotonic() + self.period_s
        moves = Moves(run, [step for step in steps if step.what == "move"])
        moving = asyncio.create_task(moves.play())
        try:
            for step in steps:
                if step.what == "fault" and time.monotonic() < until_s:
                    await self._fault(run, step)
            moves.stop()
            await moving
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)

    async def _fault(self, run: Run, step: Step) -> None:
        """One at a time, each from a cluster whose staying replicas are in sync, so that no wipe takes a last copy."""
        kind, node = step.args["kind"], step.args["node"]
        await staying_in_sync(run)
        active = await run.several.active()
        faults: Mapping[str, list[Fault]] = {
            "kill node": [Kill(node)],
            "stop node": [Stop(node)],
            "pause node": [Pause(node)],
            "cut node": [Cut([link for other in self._others(node) for link in both_ways(namespace(node), other)])],
            "wipe node": [Wipe(node)],
            "kill active": [Kill(active)],
            "pause active": [Pause(active)],
            "kill both": [Kill(node), Kill(active)],
        }
        async with AsyncExitStack() as stack:
            for fault in faults[kind]:
                await stack.enter_async_context(run.fault(fault))
            await asyncio.sleep(step.args["length_s"])
        run.counters[kind] += 1

    def _others(self, node: int) -> list[str]:
        return [*CONTROLLERS, *(namespace(other) for other in self.node_ids if other != node)]

    async def after(self, run: Run) -> None:
        """Nothing grows over the run."""
        nothing_grew(run)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every kind of fault, and several moves a minute."""
        least = max(1, round(form.minutes / 10))
        counted = {"moves": round(5 * form.minutes), "moves_cancelled": 1, "elections": 1}
        return {**dict.fromkeys(self.kinds, least), **counted, "checkpoints": max(1, round(form.minutes / 3))}
