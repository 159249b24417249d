"""Everything is killed at once (scenario 3); every node is restarted in turn, and leadership churns (scenario 12)."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
from faults.network import Cut
from faults.processes import Kill, Stop
from harness.cluster import CONTROLLER, namespace
from harness.counters import NO_LEADER, rows
from harness.load import STRICT
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario, Step
from running_cluster import CALL_S

from strandline.client import Producer
from strandline.core.types import Offset
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.inspect import dump_log
from strandline.v1 import controller_service_pb2 as controller_pb

_LARGE, _LARGE_BYTES, _VALUE_BYTES = "large", 1 << 30, 1_000_000
_START_S = 10.0
_RECOVERED = re.compile(r'"event": "log recovered".*"bytes_cut": (\d+)')
_UNAVAILABLE_S = 1.0
_DEAF_S, _HEARING_S = 1.5, 1.0
"""How long packets from the controller to node 3 are lost, which delays its metadata by 1.5 to 3 s, and are not."""
_EVENTS_WRITTEN_S = 0.5


class KillEverything(Scenario):
    """Scenario 3: every process is killed in the middle of its writes, all start again in a drawn order.

    A killed process leaves whole writes in the page cache, so in every second round a torn tail is appended to one log:
    half a batch, like a write that was interrupted. At the end one node starts with a log of 1 GiB.
    """

    number, title, needs = 3, "Kill everything", (NAMESPACES,)
    rounds = (10, 2)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """The order of the starts (0 is the controller), the pauses between them, and whose log gets half a batch."""
        steps = []
        for number in range(form.of(*self.rounds)):
            order = draw.sample(range(4), k=4)
            args = {"order": order, "gaps_s": [draw.uniform(0, 1) for _ in order], "partition": draw.randrange(3)}
            args["torn"] = draw.randrange(1, 4) if number % 2 else None
            steps.append(Step(what="kill everything", args=args))
        return steps if form.is_short else [*steps, Step(what="start over 1 GiB", args={"node": draw.randrange(1, 4)})]

    async def play(self, run: Run) -> None:
        """One round after the other, each in a whole cluster."""
        for step in run.plan:
            if step.what == "kill everything":
                await _round(run, step)
            else:
                await _start_over_a_large_log(run, step.args["node"])
            await run.in_sync()
            await run.load.acked(3)

    def demands(self, form: Form) -> Mapping[str, int]:
        """All processes were killed often enough, and every torn tail was reported."""
        rounds = form.of(*self.rounds)
        large = {} if form.is_short else {"large_log_mib": 1024}
        return {"Kill": rounds * 4, "torn_tails_reported": rounds // 2, **large}


async def _round(run: Run, step: Step) -> None:
    await run.load.burst(50)
    kills = [Kill(node_id) for node_id in range(4)]
    await asyncio.gather(*(run.begin(kill) for kill in kills))
    torn_bytes = _tear(run, step.args["torn"], step.args["partition"]) if step.args["torn"] else 0
    for node_id, gap_s in zip(step.args["order"], step.args["gaps_s"], strict=True):
        run.cluster.launch(node_id)
        await asyncio.sleep(gap_s)
    await asyncio.gather(*(run.cluster.service(node_id).serving(60_000) for node_id in range(4)))
    for kill in kills:
        await run.end(kill)
    if torn_bytes:
        said = run.cluster.nodes[step.args["torn"]].output.read_text(errors="replace")
        reported = [int(cut) for cut in _RECOVERED.findall(said)]
        sentence = f"half a batch of {torn_bytes} bytes was not reported as cut; reported: {reported}"
        run.check(torn_bytes in reported, sentence)
        run.counters["torn_tails_reported"] += torn_bytes in reported


def _tear(run: Run, node_id: int, partition: int) -> int:
    """Appends half of the last batch to a log; returns how many bytes that is."""
    last = list(dump_log(run.cluster.nodes[node_id].directory / f"{STRICT}-{partition}"))[-1]
    assert last.header is not None
    content = last.path.read_bytes()[last.position : last.position + last.header.size_bytes]
    half = content[: len(content) // 2]
    with last.path.open("ab") as log:
        log.write(half)
    run.counters["torn_tails_laid"] += 1
    return len(half)


async def _start_over_a_large_log(run: Run, node_id: int) -> None:
    """Fills a topic of one replica, kills its node, and measures two starts: unchanged, and with every CRC to check."""
    await run.probe.create_topic(_LARGE, assignment=[node_id], min_insync_replicas="1")
    value = random.Random(node_id).randbytes(_VALUE_BYTES)
    async with Producer(run.cluster.bootstrap, delivery_timeout_ms=120_000) as producer:
        for _ in range(_LARGE_BYTES // _VALUE_BYTES // 10 + 1):
            await asyncio.gather(*[await producer.send(_LARGE, value, partition=0) for _ in range(10)])
    directory = run.cluster.nodes[node_id].directory
    size = sum(path.stat().st_size for path in (directory / f"{_LARGE}-0").glob("*.log"))
    run.measured["large_log_bytes"] = size
    run.counters["large_log_mib"] = size >> 20
    for what in ("start_large_s", "start_large_all_crcs_s"):
        async with run.fault(Kill(node_id)):
            if what == "start_large_all_crcs_s":
                _trust_nothing(directory)
            began_s = time.monotonic()
            await run.cluster.start_node(node_id)
            run.measured[what] = round(time.monotonic() - began_s, 2)
        # Without the recovery points every byte is tail, and is written again: that start is only measured.
        is_quick = run.measured[what] < _START_S or what != "start_large_s"
        run.check(is_quick, f"the start over {size} bytes took {run.measured[what]} s")
        await run.in_sync()


def _trust_nothing(directory: Path) -> None:
    """Take back what a stopped node knows to be durable."""
    checkpoints = Checkpoints.load(directory)
    for name in list(checkpoints.recovery_points.offsets):
        checkpoints.recovery_points.put(name, Offset(0))
    checkpoints.save(checkpoints.recovery_points)
    checkpoints.settle()
    checkpoints.close()


class RollingRestartAndChurn(Scenario):
    """Scenario 12: every node is restarted cleanly three times under load; then leadership moves as often as it can.

    Churn: a topic of 45 partitions; nodes 1 and 2 are killed and started again in turn, and the preferred leaders
    elected again each time, while node 3 reaches the controller only half of the time.
    """

    number, title = 12, "Rolling restart and churn"

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every node once per round, in a drawn order; then the churn."""
        order = [node for _ in range(form.of(3, 1)) for node in draw.sample((1, 2, 3), k=3)]
        restarts = [Step(what="clean restart", args={"node": node}) for node in order]
        return [*restarts, Step(what="churn", args={"length_s": form.of(60.0, 12.0)})]

    async def play(self, run: Run) -> None:
        """The restarts one after the other, each in a whole cluster."""
        gaps = []
        for step in run.plan:
            if step.what == "clean restart":
                gaps.append(await _restart(run, step.args["node"]))
            else:
                await _churn(run, step.args["length_s"])
        run.measured["restart_gaps_s"] = [round(gap, 2) for gap in gaps]

    async def after(self, run: Run) -> None:
        """No committed record was ever truncated."""
        run.check(run.counters["committed_cut"] == 0, f"{run.counters['committed_cut']} committed records were cut")

    def demands(self, form: Form) -> Mapping[str, int]:
        """All restarts were clean, leadership moved often, and something was truncated."""
        if form.is_short:
            return {"clean_restarts": 3, "churn_elections": 20, "dropped_packets": 5}
        return {"clean_restarts": 9, "churn_elections": 150, "truncations": 1, "dropped_packets": 20}


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
    for partition, times in run.load.acks_since(began_s - 1.0).items():
        for before, after in pairwise([at_s for at_s in times if began_s - 1.0 <= at_s <= ended_s + 1.0]):
            longest = max(longest, (after - before, partition))
    return longest


async def _churn(run: Run, length_s: float) -> None:
    await run.probe.create_topic("churn", partitions=45)
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
        async with run.fault(Cut([(CONTROLLER, namespace(3))])):
            await asyncio.sleep(_DEAF_S)
        await asyncio.sleep(_HEARING_S)


def _elections(run: Run) -> int:
    """Leader changes between two nodes so far."""
    return sum(
        row["event_type"] == "LEADER_CHANGE"
        and row.get("old_leader") not in NO_LEADER
        and row.get("new_leader") not in NO_LEADER
        and row["old_leader"] != row["new_leader"]
        for row in rows(run.cluster.controller.directory)
    )
