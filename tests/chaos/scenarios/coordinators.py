"""Coordinators that are hit again and again: of a consumer group (scenario 29) and of transactions (scenario 30)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from faults.network import Cut, both_ways, one_way
from faults.processes import Kill, MemberKilled, MemberPaused, Pause
from harness import members as harness_members, transformers
from harness.cluster import namespace
from harness.group import GROUP, TOPIC, Group
from harness.run import AVAILABLE_S, Run
from harness.scenario import Fault, Form, Scenario, Step
from settled_logs import assert_settled

from strandline.client.groups.coordinator import ATTEMPT_MS
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE

_PAUSED_S = 4.5
"""Longer than the session of a node: another one leads when it goes on."""
_AVAILABLE_AFTER_PAUSE_S = ATTEMPT_MS / 1000 + 2.0
"""A commit that was sent to a node that stands still is given up, and sent to the next one, after this attempt."""
_STABLE_S = (harness_members.SESSION_MS + harness_members.REBALANCE_MS) / 1000
_LATER_S = (3.5, 5.0)
"""When a killed node is started again, if not at once."""


def _hit(draw: random.Random, fault: str | None, slot: int, paused_s: tuple[float, float]) -> dict[str, Any] | None:
    """What is done to a member meanwhile."""
    if fault is None:
        return None
    return {"fault": fault, "slot": slot, "away_s": draw.uniform(*(paused_s if fault == "pause" else (0.0, 3.0)))}


async def _trouble(run: Run, members: harness_members.Members, hit: dict[str, Any] | None) -> None:
    if hit is not None:
        kind = MemberPaused if hit["fault"] == "pause" else MemberKilled
        async with run.fault(kind(members, hit["slot"])):
            await asyncio.sleep(hit["away_s"])


def _fault(name: str, node: int) -> Fault:
    if name == "cut":
        return Cut(both_ways(harness_members.HALF, namespace(node)))
    if name in ("mute", "deaf"):
        return Cut(one_way(node, name))
    return Pause(node) if name == "pause" else Kill(node)


class ChaseTheCoordinator(Scenario):
    """Scenario 29: the coordinator of a group of six members is hit again and again, and members now and then.

    A topic of nine partitions is produced to all the time; six processes work on it as one group and commit behind what
    they have worked on. Each time the node is hit that FindCoordinator names. What members did and saw is judged by
    `strandline_sim.checks.group_history`: every acknowledged record was worked on, no committed offset went back, was
    lost or was written by a member that did not hold the partition, and no two worked on one partition at a time.
    """

    number, title, has_short_form = 29, "Chase the coordinator", True
    # Six members and their producer share the processor with the common load.
    pause_s = 0.05
    members = 6
    steps = (100, 4)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Of four coordinators one is paused, one cut off, two are killed; every second time a member is hit at once.

        A member is paused, and its half cut off, for longer than its session: its partitions are then others'.
        """
        count = form.of(*self.steps)
        faults = [("pause", "cut", "kill", "kill")[number % 4] for number in range(count)]
        hits = [(None, "kill", None, "pause")[number % 4] for number in range(count)]
        draw.shuffle(faults)
        draw.shuffle(hits)
        steps = []
        for fault, hit in zip(faults, hits, strict=True):
            away_s = {"kill": draw.choice((0.0, draw.uniform(*_LATER_S))), "pause": _PAUSED_S, "cut": 9.0}[fault]
            member = _hit(draw, hit, draw.randrange(self.members), (7.0, 9.0))
            args = {"fault": fault, "away_s": away_s, "member": member}
            steps.append(Step(what=f"{fault} the coordinator", args=args))
        return steps

    async def play(self, run: Run) -> None:
        """After each step the group goes on; after the last it becomes stable and works off what is left."""
        group, coordinated = Group(run, self.members), harness_members.consumer_group(GROUP)
        await group.start()
        try:
            await group.stable(_STABLE_S)
            await group.commits(5)
            first = await harness_members.coordinator_epoch(run, coordinated)
            for step in run.plan:
                began_s = time.monotonic()
                await asyncio.gather(self._chase(run, group, step.args), _trouble(run, group, step.args["member"]))
                await run.in_sync()
                await group.in_sync()
                await group.commits(5)
                await run.sleep_until(began_s + run.form.of(12.0, 6.0))
            run.counters["coordinator_epochs"] = await harness_members.coordinator_epoch(run, coordinated) - first
            run.measured["stable_after_s"] = round(await group.stable(_STABLE_S), 1)
            await group.finish(30.0)
            run.measured[f"records_{TOPIC}"] = await assert_settled(run.probe, TOPIC)
        finally:
            group.judge()

    async def _chase(self, run: Run, group: Group, args: dict[str, Any]) -> None:
        node = await harness_members.coordinator(run, harness_members.consumer_group(GROUP))
        hit_s = time.monotonic()
        why = f"{args['fault']} of coordinator {node} after {len(group.awaited)} others"
        run.expect_acks(why, since_s=hit_s)
        group.expect_commits(why, hit_s, _AVAILABLE_AFTER_PAUSE_S if args["fault"] == "pause" else AVAILABLE_S)
        async with run.fault(_fault(args["fault"], node)):
            await run.sleep_until(hit_s + args["away_s"])

    def demands(self, form: Form) -> Mapping[str, int]:
        """Kills and pauses began leader epochs; partitions changed hands, and the group went on committing."""
        steps = form.of(*self.steps)
        return {
            "Kill": steps // 2,
            **dict.fromkeys(("Pause", "Cut", "MemberKilled", "MemberPaused"), steps // 4),
            "dropped_packets": 5 * (steps // 4),
            "coordinator_epochs": steps * 3 // 4,
            "members_taken": 9 + 2 * (steps // 2),
            "commits": 20 * steps,
        }


class ExactlyOnce(Scenario):
    """Scenario 30: three processes consume, transform and produce in transactions while the data nodes are hit.

    They are one group; each has a transactional id. The node that is hit is the coordinator of the group, or that of a
    transactional id: killed, paused, or cut off from the other nodes and the controller in one direction. A process is
    killed or paused now and then. Of every input that was acknowledged there must be exactly one output for those who
    read committed records, and the group's offsets must be behind exactly these (I39, `harness/transformers.py`).
    """

    number, title, has_short_form = 30, "Exactly once", True
    # Three processes with transactions and their producer share the processor with the common load.
    pause_s = 0.05
    slots = 3
    steps = (240, 3)
    """The full form takes an hour."""

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """A third of the nodes are killed, paused and cut off; every third time a process is hit at once.

        A cut is longer than the session of a node and of a group's member; a pause of a process is longer than that of
        a member, and now and then than the time of a transaction.
        """
        count = form.of(*self.steps)
        faults = [("kill", "pause", "cut")[number % 3] for number in range(count)]
        hits = [("kill", None, None, "pause", None, None)[number % 6] for number in range(count)]
        targets = [("transactions", "group")[number % 2] for number in range(count)]
        for each in (faults, hits, targets):
            draw.shuffle(each)
        return [self._step(draw, *each) for each in zip(faults, targets, hits, strict=True)]

    def _step(self, draw: random.Random, fault: str, target: str, hit: str | None) -> Step:
        slot = draw.randrange(self.slots)
        # Not the one whose coordinator is hit, because its commits are measured.
        other = (slot + draw.randrange(1, self.slots)) % self.slots
        args: dict[str, Any] = {
            "fault": draw.choice(("mute", "deaf")) if fault == "cut" else fault,
            "away_s": {"kill": draw.choice((0.0, draw.uniform(*_LATER_S))), "pause": _PAUSED_S, "cut": 8.0}[fault],
            "slot": slot if target == "transactions" else None,
            "member": _hit(draw, hit, other, (7.0, 12.0)),
        }
        return Step(what=f"{args['fault']} the coordinator of {target}", args=args)

    async def play(self, run: Run) -> None:
        """After each step every process commits again; after the last one the group works off what is left."""
        processes = transformers.Transformers(run, self.slots)
        topics = (transformers.INPUTS, transformers.OUTPUTS)
        await processes.start()
        try:
            await processes.everybody_commits(1)
            first = await self._epochs(run)
            for step in run.plan:
                began_s = time.monotonic()
                await asyncio.gather(self._chase(run, processes, step), _trouble(run, processes, step.args["member"]))
                await run.in_sync()
                for topic in (GROUP_STATE, TRANSACTION_STATE, *topics):
                    await run.probe.in_sync(topic)
                again_s = round(await processes.everybody_commits(1), 1)
                longest_s = run.measured.get("everybody_again_max_s", 0.0)
                run.measured["everybody_again_max_s"] = max(again_s, longest_s)
                await run.sleep_until(began_s + run.form.of(15.0, 4.0))
            run.counters["coordinator_epochs"] = await self._epochs(run) - first
            await processes.finish(60.0)
            for topic in topics:
                run.measured[f"records_{topic}"] = await assert_settled(run.probe, topic)
        finally:
            processes.judge()

    async def _epochs(self, run: Run) -> int:
        """The epochs of all coordinators of the scenario together."""
        return sum(
            [await harness_members.coordinator_epoch(run, _coordinated(slot)) for slot in (None, *range(self.slots))]
        )

    async def _chase(self, run: Run, processes: transformers.Transformers, step: Step) -> None:
        slot = step.args["slot"]
        node = await harness_members.coordinator(run, _coordinated(slot))
        hit_s = time.monotonic()
        what = f"{step.what} on node {node}, step {len(processes.awaited)}"
        run.expect_acks(what, since_s=hit_s)
        # The group's coordinator takes the offsets of everybody, another one decides for its transactional id.
        processes.await_commit(what, hit_s, range(self.slots) if slot is None else range(slot, slot + 1))
        async with run.fault(_fault(step.args["fault"], node)):
            await run.sleep_until(hit_s + step.args["away_s"])

    def demands(self, form: Form) -> Mapping[str, int]:
        """Coordinators changed, transactions were committed and aborted meanwhile, and outputs were read."""
        steps = form.of(*self.steps)
        return {
            **dict.fromkeys(("Kill", "Pause", "Cut"), steps // 3),
            "dropped_packets": 5 * (steps // 3),
            "MemberKilled": steps // 6 if steps >= 6 else 1,
            "MemberPaused": steps // 6,
            "coordinator_epochs": steps * 2 // 3,
            "transactions_committed": 10 * steps,
            "transactions_aborted": steps,
            **dict.fromkeys(("inputs", "outputs"), 100 * steps),
        }


def _coordinated(slot: int | None) -> harness_members.Coordinated:
    if slot is None:
        return harness_members.consumer_group(transformers.GROUP)
    return harness_members.transactional_id(transformers.transactional_id_of(slot))
