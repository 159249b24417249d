"""Scenario 15: one to three faults at a time, of all kinds, for a given time; healed every three minutes.

At each checkpoint everything must be in sync within 30 s and equal on the disks; every 15 minutes, and at the end, one
more consumer reads everything, and the whole history is checked.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from faults.network import Cut, both_ways, one_way
from faults.processes import Blackout, Kill, Pause, Stop, Wipe
from harness.cluster import CONTROLLER, namespace
from harness.criteria import footprints, v1_history, v2_settled
from harness.run import Run
from harness.scenario import Fault, Form, Scenario, Step

_PERIOD_S, _HEALED_S = 180.0, 20.0
_READ_EVERY = 5
"""Checkpoints from one reading of everything to the next: 15 minutes."""
_WIPE_EVERY = 2

_NODES = (1, 2, 3)


KINDS: dict[str, Callable[[int], Fault]] = {
    "kill node": Kill,
    "stop node": Stop,
    "pause node": Pause,
    "blackout": lambda node: Blackout(),
    "node mute": lambda node: Cut(one_way(node, "mute")),
    "node deaf": lambda node: Cut(one_way(node, "deaf")),
    "node cut off": lambda node: Cut([*one_way(node, "mute"), *one_way(node, "deaf")]),
    "node without controller": lambda node: Cut(both_ways(namespace(node), CONTROLLER)),
    "two nodes apart": lambda node: Cut(both_ways(namespace(node), namespace(node % 3 + 1))),
    "clients of cli1 cut off": lambda node: Cut(both_ways("cli1", namespace(node))),
    "kill controller": lambda node: Kill(0),
    "pause controller": lambda node: Pause(0),
}
"""What is drawn, in the order in which faults of one episode begin. They end the other way round: controller, network,
nodes, because a node does not serve before it has reached the controller."""
_OF_A_PROCESS = ("kill node", "stop node", "pause node", "blackout", "kill controller", "pause controller")


class Soak(Scenario):
    """Scenario 15, as the module describes it."""

    number, title, pause_s = 15, "Soak", 0.04

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Periods of episodes, each with a checkpoint at its end."""
        steps: list[Step] = []
        for period in range(round(form.minutes * 60 / _PERIOD_S)):
            if period % _WIPE_EVERY == 0:
                steps.append(Step(what="wipe", args={"node": draw.choice(_NODES), "length_s": 1.0}))
            at_s = 0.0
            while at_s < _PERIOD_S - _HEALED_S:
                gap_s = draw.uniform(5.0, 15.0)
                length_s = draw.uniform(2.0, gap_s - 2.0)
                steps.append(Step(what="episode", args={"faults": _drawn(draw), "length_s": length_s, "gap_s": gap_s}))
                at_s += gap_s
            steps.append(Step(what="checkpoint", args={"reads": (period + 1) % _READ_EVERY == 0}))
        return steps

    async def play(self, run: Run) -> None:
        """The plan; a period that has lasted too long goes to its checkpoint at once."""
        period_s = time.monotonic()
        for step in run.plan:
            if step.what == "checkpoint":
                await checkpoint(run, reads=step.args["reads"])
                period_s = time.monotonic()
            elif time.monotonic() < period_s + _PERIOD_S - _HEALED_S:
                await _episode(run, [Wipe(step.args["node"])] if step.what == "wipe" else _faults(step), step)

    async def after(self, run: Run) -> None:
        """Nothing grows over the run."""
        nothing_grew(run)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every kind at least 20 times in three hours, and in proportion."""
        least = max(1, round(form.minutes * 20 / 180))
        return {f"soak: {kind}": least for kind in [*KINDS, "wipe"]} | {
            "checkpoints": int(form.minutes // 3),
            "dropped_packets": round(form.minutes * 10),
            "elections": round(form.minutes),
            "isr_shrinks": round(form.minutes),
            "truncated_records": 1,
        }


def nothing_grew(run: Run) -> None:
    """The last third of the checkpoints against the first."""
    samples = run.measured.pop("footprints", [])
    run.store("footprints.json", samples)
    third = len(samples) // 3
    if not third:
        return
    for name in sorted(samples[0]):
        for what, factor, slack in (("rss_kb", 1.5, 65_536), ("files", 1.0, 32), ("threads", 1.0, 8)):
            first = statistics.median(sample[name][what] for sample in samples[:third] if name in sample)
            last = statistics.median(sample[name][what] for sample in samples[-third:] if name in sample)
            run.check(last <= first * factor + slack, f"{what} of {name} grew from {first:g} to {last:g}")
            run.measured[f"{name} {what}"] = f"{first:g} -> {last:g}"


def _drawn(draw: random.Random) -> list[dict[str, Any]]:
    """One to three faults; at most one per process, so that each can be undone without the others."""
    names = sorted(draw.sample(list(KINDS), k=draw.choice((1, 1, 2, 3))), key=list(KINDS).index)
    chosen = [{"kind": name, "node": node} for name, node in zip(names, draw.sample(_NODES, k=3), strict=False)]
    of_processes = [each for each in chosen if each["kind"] in _OF_A_PROCESS]
    clash = {each["kind"] for each in of_processes if len(of_processes) > 1} & {"blackout"}
    both = {"kill controller", "pause controller"} <= {each["kind"] for each in chosen}
    return [each for each in chosen if each["kind"] not in clash and not (both and each["kind"] == "pause controller")]


def _faults(step: Step) -> list[Fault]:
    return [KINDS[each["kind"]](each["node"]) for each in step.args["faults"]]


async def _episode(run: Run, faults: list[Fault], step: Step) -> None:
    began_s = time.monotonic()
    for fault in faults:
        await run.begin(fault)
    for kind in ["wipe"] if step.what == "wipe" else [each["kind"] for each in step.args["faults"]]:
        run.counters[f"soak: {kind}"] += 1
    await asyncio.sleep(step.args["length_s"])
    for fault in reversed(faults):
        await run.end(fault)
    await run.sleep_until(began_s + step.args.get("gap_s", 0.0))


async def checkpoint(run: Run, *, reads: bool) -> None:
    """Everything heals and is checked; a failure ends the soak, because later failures would only follow from it."""
    await run.heal()
    healed_s = time.monotonic()
    await run.in_sync()
    took_s = time.monotonic() - healed_s
    await run.load.acked(10)
    await run.sleep_until(healed_s + _HEALED_S)
    await run.load.pause()
    wrong = await v2_settled(run)
    if reads:
        await run.load.read_again()
        wrong += v1_history(run)
    run.measured.setdefault("footprints", []).append(
        {name: asdict(each) for name, each in footprints(run.cluster).items()}
    )
    run.counters["checkpoints"] += 1
    run.note(
        f"checkpoint {run.counters['checkpoints']}: in sync after {took_s:.1f} s, {len(run.load.sends)} sends so far"
    )
    assert not wrong, wrong
    await run.load.go_on()
