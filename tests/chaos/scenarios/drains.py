"""A node is emptied and removed under load, while the controllers that decide are killed: scenario 27."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

from faults.processes import Kill
from harness.facilities import ETCD
from harness.moves import nothing_left, traces
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario, Step
from running_cluster import until
from scenarios.active_controller import WHOLE_LOG

from strandline.client import Producer

_BEGUN_S, _REMOVED_S = 60.0, 300.0


class DrainAndRemove(Scenario):
    """Scenario 27: `node drain ID --remove` empties and removes a node while the deciding controllers are killed.

    Then the node comes back as a new one, and `rebalance` gives it replicas again.
    """

    number, title, has_short_form = 27, "Drain and remove", True
    needs = (NAMESPACES, IPTABLES, ETCD)
    controller_settings = WHOLE_LOG
    node_ids = (1, 2, 3, 4)
    rounds = (6, 1)
    topic, partitions, rate = "bulk", 12, "1MB"

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Which nodes, and after which pauses the controllers are killed."""
        nodes = draw.sample(self.node_ids, k=4) + draw.sample(self.node_ids, k=4)
        return [
            Step(what="drain", args={"node": node, "pauses_s": [draw.uniform(0.5, 3.0) for _ in range(100)]})
            for node in nodes[: form.of(*self.rounds)]
        ]

    async def play(self, run: Run) -> None:
        """One node after the other, each from a whole cluster."""
        await run.probe.create_topic(self.topic, partitions=self.partitions, min_insync_replicas="2")
        await self._fill(run, run.form.of(8, 3) << 20)
        for step in run.plan:
            await self._drain(run, step.args["node"], step.args["pauses_s"])
            await self._bring_back(run, step.args["node"])

    async def _fill(self, run: Run, bytes_each: int) -> None:
        async with Producer(run.cluster.bootstrap, delivery_timeout_ms=60_000) as producer:
            for index in range(self.partitions):
                values = [os.urandom(100_000) for _ in range(bytes_each // 100_000)]
                await asyncio.gather(*[await producer.send(self.topic, value, partition=index) for value in values])

    async def _drain(self, run: Run, node_id: int, pauses_s: list[float]) -> None:
        """The command must succeed through every take-over, and refuse no record."""
        service = run.cluster.nodes[node_id]
        service.end_expected = True
        words = ("node", "drain", str(node_id), "--remove", "--throttle", self.rate, "--yes")
        command = asyncio.create_task(_strandline(run, *words))
        async with AsyncExitStack() as stack:
            stack.callback(command.cancel)
            await until(lambda: self._moves_or_ended(run, command), "the drain has begun", timeout_s=_BEGUN_S)
            for pause_s in pauses_s:
                await asyncio.wait({command}, timeout=pause_s)
                if command.done():
                    break
                await self._kill_active(run)
                run.counters["killed_meanwhile"] += not command.done()
            await command
        left = await until(lambda: self._nodes_without(run, node_id), f"the controller has no node {node_id}")
        assert service.process is not None
        run.check(service.process.poll() == 0, f"the drained node {node_id} did not end cleanly: {service.epitaph()}")
        run.check(left == len(self.node_ids) - 1, f"{left} nodes are left")
        await nothing_left(run)
        run.counters["removed"] += 1

    async def _kill_active(self, run: Run) -> None:
        active = await run.several.active()
        killed_s = time.monotonic()
        run.expect_acks(f"controller {active} is killed", since_s=killed_s)
        async with run.fault(Kill(active)):
            await run.taken_over("kill -9", killed_s, active)

    async def _moves_or_ended(self, run: Run, command: asyncio.Task[str]) -> bool:
        partitions = (await run.probe.topic(self.topic)).partitions
        return command.done() or any(traces(each) for each in partitions)

    async def _nodes_without(self, run: Run, node_id: int) -> int:
        known = [node.node_id for node in (await run.probe.metadata()).nodes]
        return 0 if node_id in known else len(known)

    async def _bring_back(self, run: Run, node_id: int) -> None:
        """Start it as a new node: with its id and its directory, whose logs are not replicas of anything."""
        await run.cluster.start_node(node_id)
        await until(lambda: run.probe.is_unfenced(node_id), f"node {node_id} is a member again")
        plan = json.loads(await _strandline(run, "rebalance", "--yes", "-o", "json"))
        run.counters["moves"] += len(plan["moves"])
        await nothing_left(run)
        await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every node was removed, controllers were killed while it was emptied, and it got replicas again."""
        rounds = form.of(*self.rounds)
        return {"removed": rounds, "killed_meanwhile": rounds, "moves": rounds, "reigns": 1 + rounds}


async def _strandline(run: Run, *words: str) -> str:
    """A command of an operator; its output."""
    command = [sys.executable, "-m", "strandline.cli", *words, "--bootstrap", run.cluster.bootstrap]
    run.note(f"runs    strandline {' '.join(words)}")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_REMOVED_S):
            said, complained = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    run.note(f"ended   strandline {words[0]} with {process.returncode}")
    assert process.returncode == 0, f"strandline {' '.join(words)}: {complained.decode()[-600:]}"
    return said.decode()
