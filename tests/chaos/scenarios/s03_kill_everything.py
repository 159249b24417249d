"""Scenario 3: every process is killed in the middle of its writes, all start again in a drawn order.

A killed process leaves whole writes in the page cache, so in every second round a torn tail is appended to one log:
half a batch, like a write that was interrupted. At the end one node starts with a log of 1 GiB.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from pathlib import Path

from faults.processes import Kill
from harness.fault import Step
from harness.load import STRICT
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario

from strandline.client import Producer
from strandline.core.types import Offset
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.inspect import dump_log

_ROUNDS, _ROUNDS_SHORT = 10, 2
_LARGE, _LARGE_BYTES, _VALUE_BYTES = "large", 1 << 30, 1_000_000
_START_S = 10.0
_RECOVERED = re.compile(r'"event": "log recovered".*"bytes_cut": (\d+)')


def plan(draw: random.Random, form: Form) -> list[Step]:
    """The order of the starts (0 is the controller), the pauses between them, and whose log gets half a batch."""
    steps = []
    for number in range(_ROUNDS_SHORT if form.is_short else _ROUNDS):
        order = draw.sample(range(4), k=4)
        args = {"order": order, "gaps_s": [draw.uniform(0, 1) for _ in order], "partition": draw.randrange(3)}
        steps.append(Step(what="kill everything", args=args | {"torn": draw.randrange(1, 4) if number % 2 else None}))
    return steps if form.is_short else [*steps, Step(what="start over 1 GiB", args={"node": draw.randrange(1, 4)})]


async def play(run: Run) -> None:
    """One round after the other, each in a whole cluster."""
    for step in run.plan:
        if step.what == "kill everything":
            await _round(run, step)
        else:
            await _start_over_a_large_log(run, step.args["node"])
        await run.in_sync()
        await run.load.acked(3)


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
        reported = _reported_cuts(run, step.args["torn"])
        run.check(
            torn_bytes in reported, f"half a batch of {torn_bytes} bytes was not reported as cut; reported: {reported}"
        )
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


def _reported_cuts(run: Run, node_id: int) -> list[int]:
    """The truncations that the node reported at its starts."""
    return [int(cut) for cut in _RECOVERED.findall(run.cluster.nodes[node_id].output.read_text(errors="replace"))]


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


def demands(form: Form) -> Mapping[str, int]:
    """All processes were killed often enough, and every torn tail was reported."""
    rounds = _ROUNDS_SHORT if form.is_short else _ROUNDS
    large = {} if form.is_short else {"large_log_mib": 1024}
    return {"Kill": rounds * 4, "torn_tails_reported": rounds // 2, **large}


SCENARIO = Scenario(
    number=3, title="Kill everything", plan=plan, play=play, demands=demands, needs=(NAMESPACES,)
)  # fmt: skip
