"""Leaders that are killed (scenario 1) and nodes that stand still (scenario 7), again and again under load."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from faults.processes import Kill, Pause
from harness.cluster import LAG_S, SESSION_S
from harness.counters import rows
from harness.load import STRICT
from harness.run import Run
from harness.scenario import Form, Scenario, Step

_BURST = 300
_EVENTS_WRITTEN_S = 0.5


class ChaseTheLeader(Scenario):
    """Scenario 1: the leader of one partition is killed again and again, before and after its session ends."""

    number, title, has_short_form = 1, "Chase the leader", True
    kills = (20, 5)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Half of the leaders are restarted at once, half after their session has ended."""
        aways = [0.0 if number % 2 else draw.uniform(5.0, 8.0) for number in range(form.of(*self.kills))]
        draw.shuffle(aways)
        return [Step(what="kill the leader", args={"partition": draw.randrange(3), "away_s": away}) for away in aways]

    async def play(self, run: Run) -> None:
        """Kills the current leader; the load must continue each time."""
        for step in run.plan:
            node = await run.leader(step.args["partition"])
            killed_s = time.monotonic()
            run.expect_acks(f"kill of leader {node}")
            async with run.fault(Kill(node)):
                await run.sleep_until(killed_s + step.args["away_s"])
            await run.in_sync()
            await run.load.acked(5)

    async def after(self, run: Run) -> None:
        """Every election raised the epoch by one, and no epoch was assigned twice."""
        for row in rows(run.cluster.controller.directory):
            if row["event_type"] == "LEADER_CHANGE" and row.get("old_leader_epoch") is not None:
                run.check(
                    row["new_leader_epoch"] == row["old_leader_epoch"] + 1,
                    f"leader epoch went from {row['old_leader_epoch']} to {row['new_leader_epoch']}: {row}",
                )

    def demands(self, form: Form) -> Mapping[str, int]:
        """At least one new leader epoch per kill."""
        return dict.fromkeys(("Kill", "leader_epochs"), form.of(*self.kills))


class Pauses(Scenario):
    """Scenario 7: processes are paused: leaders beyond their session, a follower for less and for more than its lag."""

    number, title = 7, "Pauses"
    pauses = (20, 3)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every second leader is paused within a burst, a few ms after it began: in the middle of an append."""
        leaders = [
            Step(
                what="leader",
                args={"length_s": 1.5 * SESSION_S, "burst": bool(number % 2), "delay_s": draw.uniform(0.01, 0.12)},
            )
            for number in range(form.of(*self.pauses))
        ]
        followers = [
            Step(what="follower, short", args={"length_s": 0.5 * LAG_S, "follower": draw.randrange(2)}),
            Step(what="follower, long", args={"length_s": 2.0 * LAG_S, "follower": draw.randrange(2)}),
        ]
        return [*followers, *leaders]

    async def play(self, run: Run) -> None:
        """One pause after the other, each in a whole cluster."""
        for step in run.plan:
            if step.what == "leader":
                await self._leader(run, step.args)
            else:
                await self._follower(run, step)
            await run.in_sync()
            await run.load.acked(5)

    async def _leader(self, run: Run, args: dict[str, Any]) -> None:
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

    async def _follower(self, run: Run, step: Step) -> None:
        await run.prefer_leaders()
        await asyncio.sleep(_EVENTS_WRITTEN_S)
        node = await run.follower(await run.leader(), step.args["follower"])
        topic_id = (await run.probe.topic(STRICT)).topic_id
        before = len(_isr_changes(run, topic_id))
        began_s = time.monotonic()
        async with run.fault(Pause(node)):
            await run.sleep_until(began_s + step.args["length_s"])
        await run.in_sync()
        await asyncio.sleep(_EVENTS_WRITTEN_S)
        shown = _isr_changes(run, topic_id)[before:]
        if step.what == "follower, short":
            run.check(not shown, f"a pause of {step.args['length_s']:g} s changed ISRs of partition 0: {shown}")
        else:
            left = sum(node in old and node not in new for old, new in shown)
            joined = sum(node in new and node not in old for old, new in shown)
            is_once = left == 1 and joined == 1
            run.check(is_once, f"by one long pause node {node} left {left}, joined {joined} times: {shown}")
            run.counters["long_pause_shrinks"] += left

    def demands(self, form: Form) -> Mapping[str, int]:
        """Each long pause deposed a leader, and pauses overlapped with open sends."""
        count = form.of(*self.pauses)
        return {
            "Pause": count + 2,
            "leader_epochs": count,
            "stopped_with_open_sends": count // 2,
            "long_pause_shrinks": 1,
        }


def _isr_changes(run: Run, topic_id: str) -> list[tuple[list[int], list[int]]]:
    """Committed changes of the ISR of a topic's partition 0, from the controller's decisions: before and after."""
    return [
        (row["old_isr"], row["new_isr"])
        for row in rows(run.cluster.controller.directory)
        if row["event_type"] == "ISR_CHANGE" and row["partition"] == 0 and row["topic_id"] == topic_id
    ]
