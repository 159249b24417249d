"""Scenario 1: the leader of one partition is killed again and again, before and after its session ends."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from faults.processes import Kill
from harness.counters import rows
from harness.fault import Step
from harness.run import Run
from harness.scenario import Form, Scenario

_KILLS, _KILLS_SHORT = 20, 5


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Half of the leaders are restarted at once, half after their session has ended."""
    count = _KILLS_SHORT if form.is_short else _KILLS
    aways = [0.0 if number % 2 else draw.uniform(5.0, 8.0) for number in range(count)]
    draw.shuffle(aways)
    return [Step(what="kill the leader", args={"partition": draw.randrange(3), "away_s": away}) for away in aways]


async def play(run: Run) -> None:
    """Kills the current leader; the load must continue each time."""
    for step in run.plan:
        node = await run.leader(step.args["partition"])
        killed_s = time.monotonic()
        run.expect_acks(f"kill of leader {node}")
        async with run.fault(Kill(node)):
            await run.sleep_until(killed_s + step.args["away_s"])
        await run.in_sync()
        await run.load.acked(5)


async def after(run: Run) -> None:
    """Every election raised the epoch by one, and no epoch was assigned twice."""
    for row in rows(run.cluster.controller.directory):
        if row["event_type"] == "LEADER_CHANGE" and row.get("old_leader_epoch") is not None:
            run.check(
                row["new_leader_epoch"] == row["old_leader_epoch"] + 1,
                f"leader epoch went from {row['old_leader_epoch']} to {row['new_leader_epoch']}: {row}",
            )


def demands(form: Form) -> Mapping[str, int]:
    """At least one new leader epoch per kill."""
    count = _KILLS_SHORT if form.is_short else _KILLS
    return {"Kill": count, "leader_epochs": count}


SCENARIO = Scenario(
    number=1,
    title="Chase the leader",
    plan=plan,
    play=play,
    after=after,
    demands=demands,
    has_short_form=True,
)
