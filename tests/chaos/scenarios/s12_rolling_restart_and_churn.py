"""Scenario 12: every node is restarted cleanly three times under load; then leadership moves as often as it can.

Churn: a topic of 45 partitions; nodes 1 and 2 are killed and started again in turn, and the preferred leaders elected
again each time, while node 3 reaches the controller only half of the time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import grpc
from faults.network import Cut
from faults.processes import Kill, Stop
from harness.cluster import CONTROLLER, namespace
from harness.counters import NOBODY, rows
from harness.fault import Step
from harness.run import Run
from harness.scenario import Form, Scenario
from running_cluster import CALL_S

from strandline.v1 import controller_service_pb2 as controller_pb

_ROUNDS, _ROUNDS_SHORT = 3, 1
_CHURN_S, _CHURN_SHORT_S = 60.0, 12.0
_UNAVAILABLE_S = 1.0
_DEAF_S, _HEARING_S = 1.5, 1.0
"""How long packets from the controller to node 3 are lost, which delays its metadata by 1.5 to 3 s, and are not."""
_CHURNED = "churn"
_EVENTS_WRITTEN_S = 0.5


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Every node once per round, in a drawn order; then the churn."""
    rounds, churn_s = (_ROUNDS_SHORT, _CHURN_SHORT_S) if form.is_short else (_ROUNDS, _CHURN_S)
    restarts = [
        Step(what="clean restart", args={"node": node}) for _ in range(rounds) for node in draw.sample((1, 2, 3), k=3)
    ]
    return [*restarts, Step(what="churn", args={"length_s": churn_s})]


async def play(run: Run) -> None:
    """The restarts one after the other, each in a whole cluster."""
    gaps = []
    for step in run.plan:
        if step.what == "clean restart":
            gaps.append(await _restart(run, step.args["node"]))
        else:
            await _churn(run, step.args["length_s"])
    run.measured["restart_gaps_s"] = [round(gap, 2) for gap in gaps]


async def _restart(run: Run, node: int) -> float:
    """The longest time without an acknowledgement in one partition, from the stop to the return of leadership."""
    await run.prefer_leaders()
    await run.load.acked(5)
    await asyncio.sleep(_EVENTS_WRITTEN_S)
    known = sum(1 for _ in rows(run.cluster.controller.directory))
    began_s = time.monotonic()
    async with run.fault(Stop(node)):
        pass
    await run.in_sync()
    await run.prefer_leaders()
    ended_s = time.monotonic()
    await run.load.acked(3)
    await asyncio.sleep(_EVENTS_WRITTEN_S)
    _only_it_left(run, node, list(rows(run.cluster.controller.directory))[known:])
    gap_s, partition = _longest_gap(run, began_s, ended_s)
    run.check(
        gap_s <= _UNAVAILABLE_S,
        f"restart of node {node}: partition {partition} had no ack for {gap_s:.2f} s, {_UNAVAILABLE_S:g} s allowed",
    )
    run.counters["clean_restarts"] += 1
    return gap_s


def _only_it_left(run: Run, node: int, events: list[dict[str, Any]]) -> None:
    """A handover removes no other node from an ISR."""
    changes = [(set(row["old_isr"]), set(row["new_isr"])) for row in events if row["event_type"] == "ISR_CHANGE"]
    others = [(old, new) for old, new in changes if old - new - {node}]
    run.check(not others, f"while node {node} was restarted, others left ISRs: {others}")


def _longest_gap(run: Run, began_s: float, ended_s: float) -> tuple[float, int]:
    """Between two acknowledgements of one partition, and which one; the ones around the span included."""
    longest = (0.0, -1)
    for partition, times in run.load.acks_since(began_s - 1.0, clients=("p0", "p1", "p2", "p3")).items():
        within = [at_s for at_s in times if began_s - 1.0 <= at_s <= ended_s + 1.0]
        for before, after in pairwise(within):
            longest = max(longest, (after - before, partition))
    return longest


async def _churn(run: Run, length_s: float) -> None:
    await run.probe.create_topic(_CHURNED, partitions=45)
    before = _elections(run)
    until_s = time.monotonic() + length_s
    delaying = asyncio.create_task(_delay(run, until_s))
    try:
        turn = 0
        while time.monotonic() < until_s:
            async with run.fault(Kill(1 + turn % 2)):
                await asyncio.sleep(0.3)
            await _prefer(run)
            turn += 1
    finally:
        await delaying
    await asyncio.sleep(_EVENTS_WRITTEN_S)
    run.counters["churn_elections"] = _elections(run) - before
    run.measured["churn_turns"] = turn


async def _prefer(run: Run) -> None:
    """Requests the preferred leaders of everything, until the restarted nodes are in sync again and lead."""
    request = controller_pb.ElectLeadersRequest(timeout_ms=2_000)
    for _ in range(20):
        try:
            await run.probe.controller.ElectLeaders(request, timeout=CALL_S)
        except grpc.aio.AioRpcError:
            continue
        topics = (await run.probe.metadata()).topics
        if all(each.leader_id == each.replicas[0] for topic in topics for each in topic.partitions):
            return
        await asyncio.sleep(0.1)


async def _delay(run: Run, until_s: float) -> None:
    while time.monotonic() < until_s:
        cut = Cut([(CONTROLLER, namespace(3))])
        async with run.fault(cut):
            await asyncio.sleep(_DEAF_S)
        run.counters["dropped_packets"] += cut.dropped
        await asyncio.sleep(_HEARING_S)


def _elections(run: Run) -> int:
    """Leader changes between two nodes so far."""
    return sum(
        row["event_type"] == "LEADER_CHANGE"
        and row.get("old_leader") not in NOBODY
        and row.get("new_leader") not in NOBODY
        and row["old_leader"] != row["new_leader"]
        for row in rows(run.cluster.controller.directory)
    )


async def after(run: Run) -> None:
    """No committed record was ever truncated."""
    run.check(run.counters["committed_cut"] == 0, f"{run.counters['committed_cut']} committed records were cut")


def demands(form: Form) -> Mapping[str, int]:
    """All restarts were clean, leadership moved often, and something was truncated."""
    if form.is_short:
        return {"clean_restarts": 3, "churn_elections": 20, "dropped_packets": 5}
    return {"clean_restarts": 9, "churn_elections": 150, "truncations": 1, "dropped_packets": 20}


SCENARIO = Scenario(
    number=12,
    title="Rolling restart and churn",
    plan=plan,
    play=play,
    after=after,
    demands=demands,
)
