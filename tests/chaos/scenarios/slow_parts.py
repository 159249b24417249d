"""Parts that are slow (scenario 13) and clocks that are wrong (scenario 14): nothing is down."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import grpc
from faults.clock import CLOCKS, Clock, WrongClock
from faults.cpu import QUOTA, CpuShare
from faults.disk_power import DISKS, BadDisk, mounted
from faults.disk_rules import Rule
from faults.processes import Pause
from faults.proxy import ProxiedLink, SlowLink
from harness.cluster import LAG_S, NODE_SETTINGS
from harness.counters import ended_sessions, rows
from harness.load import EVERYBODY
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Fault, Form, Scenario, Step
from raw_records import batch, produce

from strandline.v1 import error_pb2, leader_service_pb2 as leader_pb

_INTERNAL_PORT = 9093
_SLOW_NODE = 3
_SETTLE_S = 2 * LAG_S
_FLOOD, _FLOOD_CALLS, _MAY_WAIT = "flood", 300, 60
_WRONG = ({"wall_offset_s": 3600.0}, {"wall_offset_s": -3600.0}, {"rate": 0.5}, {"rate": 2.0})
_CLOCK_S = 5.0


class SlowParts(Scenario):
    """Scenario 13: a slow disk, a slow link, a slow process, and all three in turn; more producers than may wait.

    Nothing is down, so nothing may be lost, no replica may leave and join the ISR again and again, and produces that
    cannot be accepted are rejected with a clear error.
    """

    number, title, needs = 13, "Slow parts", (NAMESPACES, IPTABLES, DISKS, QUOTA)
    node_settings: ClassVar = {"tune": f"{NODE_SETTINGS['tune']},purgatory_max_entries={_MAY_WAIT}"}

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Each slow part alone, then all in turn."""
        kinds = ["disk", "link", "cpu"]
        draw.shuffle(kinds)
        alone = [Step(what="slow", args={"parts": [kind], "length_s": 40.0}) for kind in kinds]
        return [*alone, Step(what="slow", args={"parts": kinds, "length_s": 40.0}), Step(what="flood", args={})]

    async def prepare(self, run: Run) -> None:
        """A disk under the slow node, and its link to node 1 through a proxy."""
        self.disk = mounted(run, [_SLOW_NODE])[_SLOW_NODE]
        self.link = ProxiedLink(run.cluster.namespaces, f"n{_SLOW_NODE}", "n1", _INTERNAL_PORT)
        self.link.start()
        run.stack.callback(self.link.stop)

    def _fault(self, kind: str) -> Fault:
        if kind == "disk":
            return BadDisk(self.disk, _SLOW_NODE, Rule(operation="fsync", delay_ms=200))
        return SlowLink(self.link) if kind == "link" else CpuShare(_SLOW_NODE)

    async def play(self, run: Run) -> None:
        """Measures the normal latency, then one slow phase after the other, and the flood."""
        began_s = time.monotonic()
        await run.sleep_until(began_s + 15)
        normal_s = _p99_s(run, began_s, time.monotonic())
        run.measured["p99_normal_s"] = round(normal_s, 3)
        for step in run.plan:
            if step.what == "flood":
                await _flood(run)
            else:
                await self._slow(run, step, normal_s)
            await run.in_sync()
            await run.load.acked(3)

    async def _slow(self, run: Run, step: Step, normal_s: float) -> None:
        parts, began_s = step.args["parts"], time.monotonic()
        end_s = began_s + step.args["length_s"]
        if len(parts) == 1:
            async with run.fault(self._fault(parts[0])):
                await run.sleep_until(end_s)
        else:
            turn = 0
            while time.monotonic() < end_s:
                async with run.fault(self._fault(parts[turn % len(parts)])):
                    await asyncio.sleep(2.0)
                turn += 1
        name = "+".join(parts)
        p99_s = _p99_s(run, began_s, time.monotonic())
        changes = _isr_changes(run, began_s + _SETTLE_S, time.monotonic())
        worst = max(changes.values(), default=0)
        minutes = (time.monotonic() - began_s - _SETTLE_S) / 60
        run.measured[f"p99_{name}_s"] = round(p99_s, 3)
        run.measured[f"isr_changes_{name}"] = dict(changes)
        is_quick = p99_s <= max(normal_s, LAG_S) + 1
        run.check(is_quick, f"{name}: commit latency p99 {p99_s:.2f} s, normal {normal_s:.2f} s")
        run.check(worst <= max(1, round(2 * minutes)), f"{name}: {worst} ISR changes in {minutes:.1f} min: {changes}")

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every part was slow, and something was rejected."""
        return {"disk_rule_hits": 50, "slow_link_bytes": 50_000, "throttled_periods": 50, "refused_as_too_many": 1}


def _p99_s(run: Run, since_s: float, until_s: float) -> float:
    """99th percentile of the time from send to acknowledgement of acks=all records."""
    run.load.look()
    took = sorted(
        (sent.completed_s or until_s) - sent.invoked_s
        for client in EVERYBODY
        for sent in run.load.sent_between(client, since_s, until_s)
    )
    assert len(took) > 100, f"only {len(took)} sends in {until_s - since_s:.0f} s"
    return took[int(len(took) * 0.99)]


def _isr_changes(run: Run, since_s: float, until_s: float) -> Counter[str]:
    """How often the ISR of each partition changed."""
    return Counter(
        f"{row['topic_id'][:6]}-{row['partition']}"
        for row in rows(run.cluster.controller.directory)
        if row["event_type"] == "ISR_CHANGE" and row["old_isr"] and since_s <= row["ts_mono_us"] / 1e6 <= until_s
    )


async def _flood(run: Run) -> None:
    """With both followers paused more producers wait than allowed: the rest is rejected, and then all recovers."""
    await run.probe.create_topic(_FLOOD, min_insync_replicas="2")
    leader = await run.probe.leader(_FLOOD)
    pauses = [Pause(node_id) for node_id in run.cluster.nodes if node_id != leader]
    for pause in pauses:
        await run.begin(pause)
    calls = [
        asyncio.create_task(produce(run.probe, leader, _FLOOD, batch(b"f" * 1000), timeout_ms=4_000))
        for _ in range(_FLOOD_CALLS)
    ]
    await asyncio.sleep(LAG_S / 2)
    for pause in pauses:
        await run.end(pause)
    codes = Counter(map(_said, await asyncio.gather(*calls, return_exceptions=True)))
    run.measured["flood_answers"] = dict(codes)
    run.counters["refused_as_too_many"] += codes["RESOURCE_EXHAUSTED"]


def _said(answer: leader_pb.ProducePartitionResponse | BaseException) -> str:
    """An answer, or the failure of a call, in few words; an unavailable one has its reason."""
    if isinstance(answer, grpc.aio.AioRpcError):
        code = answer.code()
        return f"{code.name}: {answer.details()}" if code is grpc.StatusCode.UNAVAILABLE else code.name
    if isinstance(answer, BaseException):
        raise answer
    return error_pb2.ErrorCode.Name(answer.error_code)


class Clocks(Scenario):
    """Scenario 14: the clocks of one role are wrong: an hour ahead, an hour behind, half as fast, twice as fast."""

    number, title, needs = 14, "Clocks", (NAMESPACES, CLOCKS)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every wrong clock at every role, in a drawn order."""
        steps = [Step(what=role, args=dict(w)) for role in ("controller", "leader", "follower") for w in _WRONG]
        draw.shuffle(steps)
        return steps

    async def prepare(self, run: Run) -> None:
        """Every process is started with a clock of its own, which is right at first."""
        names = {node_id: run.cluster.service(node_id).name for node_id in range(4)}
        self.clocks = {node_id: Clock(run.directory / "clocks", name) for node_id, name in names.items()}
        for node_id, clock in self.clocks.items():
            run.cluster.wrapping[node_id].environment |= clock.environment

    async def play(self, run: Run) -> None:
        """Five seconds wrong, five seconds right, and so on."""
        for step in run.plan:
            leader = await run.leader()
            follower = next(node_id for node_id in run.cluster.nodes if node_id != leader)
            clock = self.clocks[{"controller": 0, "leader": leader, "follower": follower}[step.what]]
            began_s = time.monotonic()
            before = _unrest(run)
            run.expect_acks(f"wrong clock of the {step.what}")
            reported = clock.wrong_answers
            async with run.fault(WrongClock(clock, **step.args)):
                await run.sleep_until(began_s + _CLOCK_S)
            reported = clock.wrong_answers - reported
            run.counters["wrong_answers"] += reported
            run.counters["clocks_that_were_asked"] += reported > 0
            await run.sleep_until(began_s + 2 * _CLOCK_S)
            fences, elections = (now - then for now, then in zip(_unrest(run), before, strict=True))
            run.check(fences <= 1, f"{fences} nodes were fenced by {step}")
            run.check(elections <= len(run.load.topics) + 2, f"{elections} elections came of {step}")
            run.counters["fences"] += fences
            await run.in_sync()
            await run.load.acked(3)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every clock was wrong in every way, and its process read it meanwhile."""
        return {"WrongClock": 12, "clocks_that_were_asked": 12}


def _unrest(run: Run) -> tuple[int, int]:
    """How many sessions ended and how many leaders were elected up to now."""
    seen = rows(run.cluster.controller.directory)
    elections = (row["event_type"] == "LEADER_CHANGE" and row.get("old_leader_epoch") is not None for row in seen)
    return ended_sessions([run.cluster.controller.directory]), sum(elections)
