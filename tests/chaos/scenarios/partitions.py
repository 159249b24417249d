"""Links that are cut: one way (scenario 4), around a leader (scenario 5), one link alone (scenario 6)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from faults.network import Cut, both_ways, one_way
from harness.cluster import CONTROLLER, LAG_S, namespace
from harness.load import EVERYBODY, STRICT
from harness.run import AVAILABLE_S, Run
from harness.scenario import Form, Scenario, Step
from harness.stale_client import NAME
from running_cluster import until

_GRACE_S = 1.0
"""An answer under way when the epoch moved may still arrive; it was right when it was given."""
_NORMAL_S = 10.0
_SHRINK_S = LAG_S + 2.0
_LEAST_P99_S = 0.1
"""Below this, twice the normal latency says more about the machine than about the cluster."""


@dataclass(slots=True)
class _Leader:
    """A leader of partition 0 that is replaced without knowing it, by the client that uses only it.

    Judged is the client's history; the node's own state does not count.
    """

    run: Run
    node: int
    epoch: int
    deposed_s: float = 0.0

    @classmethod
    async def watched(cls, run: Run) -> _Leader:
        """Call it before the fault."""
        now = await run.probe.partition(STRICT)
        return cls(run, now.leader_id, now.leader_epoch)

    async def deposed(self) -> None:
        """Waits until another node leads."""

        async def look() -> list[float]:
            now = await self.run.probe.partition(STRICT)
            is_new = now.HasField("leader_id") and now.leader_id != self.node and now.leader_epoch > self.epoch
            return [time.monotonic()] if is_new else []

        (self.deposed_s,) = await until(look, f"another node than {self.node} leads {STRICT}-0")

    async def must_have_refused(self, healed_s: float) -> None:
        """It acknowledges no send that began after another leader was there, up to the healing."""
        sends = self.run.load.sent_between(NAME, self.deposed_s + _GRACE_S, healed_s)

        async def look() -> bool:
            return all(each.outcome for each in sends)

        await until(look, "what was sent to the old leader has ended")
        accepted = [each for each in sends if each.outcome == "ok" and (each.completed_s or 0) < healed_s]
        self.run.counters["zombie_refused"] += sum(each.outcome in ("definite", "indefinite") for each in sends)
        self.run.check(
            not accepted,
            f"node {self.node} acknowledged {len(accepted)} sends after it had been replaced, first {accepted[:1]}",
        )


class OneWayPartitions(Scenario):
    """Scenario 4: packets of one direction are lost: a leader or a follower can only send, or can only receive."""

    number, title, has_short_form = 4, "One-way partitions", True

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Each of the four once; followers are drawn."""
        length_s = form.of(30.0, 8.0)
        steps = [Step(what=what, args={"length_s": length_s}) for what in ("leader mute", "leader deaf")]
        for what in ("follower deaf", "follower mute"):
            steps.append(Step(what=what, args={"length_s": length_s, "follower": draw.randrange(2)}))
        return steps

    async def play(self, run: Run) -> None:
        """One after the other, each from a cluster that is whole and led by its preferred leaders."""
        for step in run.plan:
            leader = await run.prefer_leaders()
            role, direction = step.what.split()
            node = leader if role == "leader" else await run.follower(leader, step.args["follower"])
            until_s = time.monotonic() + step.args["length_s"]
            watched = await _Leader.watched(run)
            run.expect_acks(f"{role} {node} cut off one way", since_s=until_s - step.args["length_s"])
            async with run.fault(Cut(one_way(node, direction))):
                if role == "leader":
                    await watched.deposed()
                await _both_others_go_on(run, until_s)
                healed_s = time.monotonic()
                if role == "follower":
                    isrs = [list(each.isr) for each in (await run.probe.topic(STRICT)).partitions]
                    run.check(all(node not in isr for isr in isrs), f"node {node}, cut off, is still in an ISR: {isrs}")
            if role == "leader":
                await watched.must_have_refused(healed_s)
            await run.in_sync()
            await run.load.acked(5)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Packets were lost, leaders were replaced, followers left, and the old leaders acknowledged nothing."""
        return {"Cut": 4, "dropped_packets": 40, "elections": 4, "isr_shrinks": 8, "zombie_refused": 2}


async def _both_others_go_on(run: Run, until_s: float) -> None:
    """L8: the two remaining nodes accept records during the fault, from every client, up to its end."""
    await asyncio.sleep(AVAILABLE_S)
    await run.load.acked(5, timeout_s=AVAILABLE_S, clients=EVERYBODY)
    await run.sleep_until(until_s - 2.0)
    await run.load.acked(3, timeout_s=AVAILABLE_S, clients=EVERYBODY)
    await run.sleep_until(until_s)


class LeaderCutOff(Scenario):
    """Scenario 5: a leader is cut off from followers and controller, with clients on both sides of the cut."""

    number, title = 5, "Leader cut off"
    times = (5, 1)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Always the leader that the stale client uses, and to which the acks=1 producer writes."""
        return [Step(what="cut off", args={"length_s": form.of(30.0, 10.0)})] * form.of(*self.times)

    async def play(self, run: Run) -> None:
        """cli1 stays with the old leader, cli0 with the others."""
        for step in run.plan:
            leader = await run.prefer_leaders()
            await run.load.acked(5, clients=EVERYBODY)
            cut_s = time.monotonic()
            watched = await _Leader.watched(run)
            run.expect_acks(f"leader {leader} cut off, seen from the majority's side")
            minority = [namespace(leader), "cli1"]
            majority = [CONTROLLER, "cli0", *(namespace(each) for each in (1, 2, 3) if each != leader)]
            async with run.fault(
                Cut([link for one in minority for other in majority for link in both_ways(one, other)])
            ):
                await watched.deposed()
                await asyncio.sleep(AVAILABLE_S)
                await run.load.acked(5, timeout_s=AVAILABLE_S)
                await run.sleep_until(cut_s + step.args["length_s"])
                healed_s = time.monotonic()
            run.expect_acks(f"clients that were cut off with leader {leader}, healed", clients=("p2", "p3"))
            await watched.must_have_refused(healed_s)
            await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """Each cut made the old leader lose a tail."""
        count = form.of(*self.times)
        each = ("Cut", "elections", "truncations", "truncated_records", "zombie_refused")
        return {**dict.fromkeys(each, count), "dropped_packets": 20 * count}


class PartialPartitions(Scenario):
    """Scenario 6: one link is cut and all others work: leader-controller, leader-one follower, follower-controller."""

    number, title = 6, "Partial partitions"

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Each of the three once."""
        length_s = form.of(30.0, 10.0)
        kinds = ("leader-controller", "leader-follower", "follower-controller")
        return [Step(what=kind, args={"length_s": length_s, "follower": draw.randrange(2)}) for kind in kinds]

    async def play(self, run: Run) -> None:
        """One after the other, each from a whole cluster."""
        for step in run.plan:
            leader = await run.prefer_leaders()
            follower = await run.follower(leader, step.args["follower"])
            length_s = step.args["length_s"]
            if step.what == "leader-controller":
                await self._leader_without_controller(run, leader, length_s)
            elif step.what == "leader-follower":
                await self._leader_without_one_follower(run, leader, follower, length_s)
            else:
                await self._follower_without_controller(run, follower, length_s)
            await run.in_sync()
            await run.load.acked(5)

    async def _leader_without_controller(self, run: Run, leader: int, length_s: float) -> None:
        """The followers still reach the old leader, so only the epoch makes it lose them."""
        cut_s = time.monotonic()
        watched = await _Leader.watched(run)
        run.expect_acks(f"leader {leader} without controller")
        async with run.fault(Cut(both_ways(namespace(leader), CONTROLLER))):
            await watched.deposed()
            await run.sleep_until(cut_s + length_s)
            healed_s = time.monotonic()
        await watched.must_have_refused(healed_s)

    async def _leader_without_one_follower(self, run: Run, leader: int, follower: int, length_s: float) -> None:
        """Only the leader can detect it, by lag; then commits are as fast as before."""
        await asyncio.sleep(_NORMAL_S)
        cut_s = time.monotonic()
        run.expect_acks(f"leader {leader} without follower {follower}", within_s=_SHRINK_S)
        async with run.fault(Cut(both_ways(namespace(leader), namespace(follower)))):
            await _left(run, follower, _SHRINK_S)
            run.measured["shrunk_after_s"] = round(time.monotonic() - cut_s, 2)
            # Requests that had waited for the shrink end now.
            await asyncio.sleep(1.0)
            quiet_s = time.monotonic()
            await run.sleep_until(cut_s + length_s)
            normal, during = _p99(run, cut_s - _NORMAL_S, cut_s), _p99(run, quiet_s, time.monotonic() - 1.0)
        run.measured |= {"p99_normal_ms": round(normal * 1000), "p99_without_follower_ms": round(during * 1000)}
        run.check(
            during < max(2 * normal, _LEAST_P99_S),
            f"without follower {follower}, p99 of commits was {during * 1000:.0f} ms, before {normal * 1000:.0f} ms",
        )

    async def _follower_without_controller(self, run: Run, follower: int, length_s: float) -> None:
        """It continues to replicate, and counts nowhere."""
        cut_s = time.monotonic()
        run.expect_acks(f"follower {follower} without controller")
        async with run.fault(Cut(both_ways(namespace(follower), CONTROLLER))):
            await _left(run, follower, AVAILABLE_S)
            fetched = False
            while time.monotonic() < cut_s + length_s:
                isrs = [list(each.isr) for each in (await run.probe.topic(STRICT)).partitions]
                run.check(not any(follower in isr for isr in isrs), f"fenced node {follower} came into an ISR: {isrs}")
                fetched = fetched or await _fetches(run, follower)
                await asyncio.sleep(0.2)
            run.counters["fenced_node_fetched"] += fetched

    def demands(self, form: Form) -> Mapping[str, int]:
        """Links lost packets, a leader was replaced, ISRs shrank and grew, and the fenced follower kept fetching."""
        once = dict.fromkeys(("elections", "zombie_refused", "fenced_node_fetched"), 1)
        return {"Cut": 3, "dropped_packets": 20, "isr_shrinks": 3, "isr_grows": 3, **once}


async def _left(run: Run, node: int, within_s: float) -> None:
    """Waits until a node has left the ISR of partition 0."""

    async def look() -> bool:
        return node not in (await run.probe.partition(STRICT)).isr

    await until(look, f"node {node} has left the ISR of {STRICT}-0", timeout_s=within_s)


async def _fetches(run: Run, node: int) -> bool:
    """Whether the leader of partition 0 has received a fetch of ``node`` within the last second."""
    led = await run.probe.described(STRICT, await run.leader())
    return any(each.replica_id == node and each.last_fetch_age_ms < 1_000 for each in led.replicas)


def _p99(run: Run, since_s: float, until_s: float) -> float:
    """The 99th percentile of the time from send to acknowledgement in partition 0."""
    took = sorted(
        each.completed_s - each.invoked_s
        for name in EVERYBODY
        for each in run.load.sent_between(name, since_s, until_s)
        if each.partition == 0 and each.outcome == "ok" and each.completed_s is not None
    )
    assert took, "no acknowledgement in the whole span"
    return took[int(len(took) * 0.99)]
