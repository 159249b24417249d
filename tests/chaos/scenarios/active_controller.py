"""The deciding one of three controllers goes: killed (17), paused (18), cut off (19), with its machine (21).

Scenario 28 measures what each way costs; `tests/chaos/take_over_page.py` makes their table in docs/OPERATIONS.md.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import ClassVar

from faults.network import Cut
from faults.processes import Kill, MachineGone, Pause, Stop
from harness.cluster import SESSION_S
from harness.facilities import ETCD
from harness.load import EVERYBODY, STRICT
from harness.namespaces import MEMBERS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Fault, Form, Scenario, Step
from running_cluster import CALL_S

from strandline.v1 import controller_service_pb2 as pb

HAND_OVER = "hand-over"
SIGTERM = "SIGTERM"
KILLED = "kill -9"
BOTH_KILLED = "kill -9, and of a leader of partitions"
GONE = "its machine is gone"
GONE_WITH_ETCD = "its machine is gone, and etcd's leader with it"
WAYS = (HAND_OVER, SIGTERM, KILLED, BOTH_KILLED, GONE, GONE_WITH_ETCD)

_KILLED_S = 2.0
"""From `kill -9` to the first change that another controller accepts."""
_BY_LEASE_S = 6.0
"""Where the lease of 3 s has to end: 3.5 s after the last renewal, and this machine is busy. So it is for a standby
that took a key, which another one then won: it takes no other for 10 s. With etcd's leader gone it is no longer."""
_CUT_S = 8.0
"""A call that hangs for 1 s at each member, and the lease."""
_ACKS_S = _BY_LEASE_S + SESSION_S + 4.0
"""The new reign gives a vanished node a full session first; then elections and the clients' retries."""
WHOLE_LOG: Mapping[str, str] = {"tune": "log_snapshot_every=1000000"}
"""The whole log is compared at the end: an append of a controller that was replaced would be in it."""


class KillTheActive(Scenario):
    """Scenario 17: the controller that decides is killed every 5 seconds.

    In the short form its successor is killed at once, so that the third one has to take over.
    """

    number, title, has_short_form = 17, "Kill the active controller", True
    needs = (NAMESPACES, IPTABLES, ETCD)
    controller_settings = WHOLE_LOG
    kills = (20, 2)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every kill comes at another moment of the period."""
        times = [form.of(5.0, 1.0) + draw.uniform(-0.5, 0.5) for _ in range(form.of(*self.kills))]
        return [Step(what="kill the active", args={"after_s": after_s}) for after_s in times]

    async def play(self, run: Run) -> None:
        """The killed one is started again as soon as another one decides; in the short form, both at the end."""
        faults = []
        for step in run.plan:
            active = await run.several.active()
            killed_s = time.monotonic()
            run.expect_acks(f"controller {active} is killed", since_s=killed_s)
            fault = Kill(active)
            faults.append(fault)
            await run.begin(fault)
            within_s = _BY_LEASE_S if run.form.is_short and len(faults) > 1 else _KILLED_S
            await run.taken_over("kill -9", killed_s, active, within_s=within_s)
            if not run.form.is_short:
                await run.end(fault)
            await run.sleep_until(killed_s + step.args["after_s"])
        await asyncio.gather(*map(run.end, faults))
        await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """Each kill ended a reign."""
        count = form.of(*self.kills)
        return {"Kill": count, "reigns": count + 1}


class PauseTheActive(Scenario):
    """Scenario 18: the controller that decides is stopped in mid-load for longer than its lease, and then goes on."""

    number, title, has_short_form = 18, "Pause the active controller", True
    needs = (NAMESPACES, IPTABLES, ETCD)
    controller_settings = WHOLE_LOG
    pauses = (5, 1)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """A few milliseconds after a change was asked for, so that some pauses are within an append."""
        delays = [draw.uniform(0.0, 0.04) for _ in range(form.of(*self.pauses))]
        length_s = form.of(15.0, 5.0)
        return [Step(what="pause the active", args={"length_s": length_s, "delay_s": delay}) for delay in delays]

    async def play(self, run: Run) -> None:
        """After each pause, nothing that the controller had begun is stored, and it follows the one after it."""
        for step in run.plan:
            active = await run.several.active()
            await asyncio.sleep(step.args["delay_s"])
            stopped_s = time.monotonic()
            run.expect_acks(f"controller {active} stands still", since_s=stopped_s)
            async with run.fault(Pause(active)):
                first = await run.taken_over("SIGSTOP", stopped_s, active, within_s=_BY_LEASE_S)
                await run.sleep_until(stopped_s + step.args["length_s"])
            went_on_s = time.monotonic()
            await asyncio.sleep(2.0)
            own = run.several.accepted_by(active, stopped_s + 0.1, time.monotonic())
            run.check(not own, f"{active} accepted {len(own)} changes after another one had replaced it")
            still = await run.several.active()
            run.check(still == first.place, f"{still} decides after {active} went on, and not {first.place}")
            run.counters["went_on_replaced"] += went_on_s > first.at_s
        await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """Each pause ended a reign, and each controller went on when another one decided."""
        count = form.of(*self.pauses)
        return {"Pause": count, "reigns": count + 1, "went_on_replaced": count}


class CutTheActive(Scenario):
    """Scenario 19: the controller that decides is cut off from etcd alone, then from the nodes alone, one way each.

    Cut off from etcd it must be replaced; cut off from the nodes it goes on, fences them, and takes them back.
    """

    number, title = 19, "Cut the active controller"
    needs = (NAMESPACES, IPTABLES, ETCD)
    others: ClassVar = {"etcd": MEMBERS, "nodes": ("n1", "n2", "n3")}

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Both directions of both kinds, in any order."""
        steps = [
            Step(what="cut", args={"others": others, "to_them": to_them, "length_s": form.of(15.0, 5.0)})
            for others in self.others
            for to_them in (True, False)
        ]
        draw.shuffle(steps)
        return steps

    async def play(self, run: Run) -> None:
        """One cut after the other, each in a whole cluster."""
        for step in run.plan:
            active = await run.several.active()
            others, to_them = step.args["others"], step.args["to_them"]
            cut = Cut([(active, other) if to_them else (other, active) for other in self.others[others]])
            began_s = time.monotonic()
            if others == "etcd":
                run.expect_acks(f"controller {active} is cut off from etcd", since_s=began_s)
            async with run.fault(cut):
                if others == "etcd":
                    way = "cut to etcd" if to_them else "cut from etcd"
                    await run.taken_over(way, began_s, active, within_s=_CUT_S)
                await run.sleep_until(began_s + step.args["length_s"])
            run.check(cut.dropped > 0, f"{cut.described()} dropped nothing")
            await run.several.active()
            await run.in_sync()
            await run.load.acked(3)
            await asyncio.sleep(1.0)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Two cuts ended a reign, and every cut dropped packets."""
        return {"Cut": 4, "reigns": 3, "dropped_packets": 40}


class MachineVanishes(Scenario):
    """Scenario 21: a machine vanishes that ran the deciding controller, etcd's leader and a leader of partitions."""

    number, title = 21, "A machine with all three vanishes"
    needs = (NAMESPACES, IPTABLES, ETCD)
    rounds = (5, 1)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """The same machine is gone for a while and comes back."""
        lengths = [form.of(20.0, 12.0) + draw.uniform(0.0, 2.0) for _ in range(form.of(*self.rounds))]
        return [Step(what="machine gone", args={"length_s": length_s}) for length_s in lengths]

    async def play(self, run: Run) -> None:
        """Which three processes are on it follows from who decides and leads at that moment."""
        for step in run.plan:
            active, member = await run.several.active(), await run.several.etcd_leader()
            node = await run.leader()
            began_s = time.monotonic()
            run.expect_acks("a machine vanishes", since_s=began_s, within_s=_ACKS_S, clients=EVERYBODY)
            async with run.fault(MachineGone([active, member, node])):
                await run.taken_over("machine gone, with etcd's leader", began_s, active, within_s=_BY_LEASE_S)
                run.counters["led_elsewhere"] += await run.probe.leader(STRICT, 0, other_than=node) != node
                await run.sleep_until(began_s + step.args["length_s"])
            await run.in_sync()
            await run.load.acked(3)
            await asyncio.sleep(1.0)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Each loss ended a reign and moved a leader."""
        rounds = form.of(*self.rounds)
        return {"MachineGone": rounds, "reigns": rounds + 1, "led_elsewhere": rounds, "elections": rounds}


class TakeOvers(Scenario):
    """Scenario 28: what a change of the deciding controller costs, by every way in which it ends.

    Nothing here is promised but what every other scenario checks.
    """

    number, title = 28, "What a take-over costs"
    needs = (NAMESPACES, IPTABLES, ETCD)
    rounds = (5, 1)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every way in turn, round after round, each at another moment: between two take-overs lies more time than a
        standby keeps from taking a second key."""
        ways = WAYS * form.of(*self.rounds)
        return [Step(what=way, args={"after_s": form.of(10.0, 2.0) + draw.uniform(0.0, 1.0)}) for way in ways]

    async def play(self, run: Run) -> None:
        """After each take-over everything is healed and in sync, and the load goes on undisturbed for a while."""
        for step in run.plan:
            await asyncio.sleep(step.args["after_s"])
            active = await run.several.active()
            faults = await _faults(run, step.what, active)
            began_s = time.monotonic()
            run.expect_acks(f"{active}: {step.what}", since_s=began_s, within_s=_ACKS_S, clients=EVERYBODY)
            async with AsyncExitStack() as stack:
                if step.what == HAND_OVER:
                    await _hand_over(run, active)
                await asyncio.gather(*(stack.enter_async_context(run.fault(fault)) for fault in faults))
                await run.taken_over(step.what, began_s, active)
                await run.load.acked(3)
            await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """Each one ended a reign."""
        rounds = form.of(*self.rounds)
        once = dict.fromkeys(("hand_over", "Stop", "elections"), rounds)
        return {**once, "Kill": 3 * rounds, "MachineGone": 2 * rounds, "reigns": len(WAYS) * rounds + 1}


async def _faults(run: Run, way: str, active: str) -> list[Fault]:
    if way == HAND_OVER:
        return []
    if way == SIGTERM:
        return [Stop(active)]
    if way in (KILLED, BOTH_KILLED):
        return [Kill(active), *([Kill(await run.leader())] if way == BOTH_KILLED else [])]
    return [MachineGone([active, *([await run.several.etcd_leader()] if way == GONE_WITH_ETCD else [])])]


async def _hand_over(run: Run, active: str) -> None:
    """As `strandline controller hand-over` asks for it; the answer comes when another one decides."""
    place = list(run.cluster.controllers).index(active)
    run.note(f"begin  hand-over by {active}")
    await run.probe.controller_at(place).HandOver(pb.HandOverRequest(), timeout=CALL_S)
    run.counters["hand_over"] += 1
