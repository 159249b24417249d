"""Scenario 11: bytes on a disk change, at a running node and at a killed one, and a whole directory is lost.

Damage that no start checks for is found by reading the log through its node; the node ends with STORAGE_DAMAGED, is
started again, and repairs itself from its peers. At the end every byte of every replica is compared (V2).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
from faults.processes import Kill
from harness.history_file import decode
from harness.load import STRICT
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario, Step
from raw_records import fetch, values_of
from running_cluster import CALL_S, until

from strandline.cli.local.processes import ServiceDied
from strandline.runtime.exit_codes import ExitCode
from strandline.storage.journal import JOURNAL_NAMES
from strandline.v1 import follower_service_pb2 as follower_pb, partition_pb2

_MET_S = 40.0
_SEGMENTS = 3
_CUT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class _Target:
    """One file of a data directory, and how to find it."""

    find: Callable[[Path, int], Path]
    while_running: bool
    """Whether a running node ever reads it again."""


def _segment(directory: Path, partition: int, number: int) -> Path:
    return _segments(directory / f"{STRICT}-{partition}")[number]


def _beside(name: str) -> Callable[[Path, int], Path]:
    return lambda directory, partition: directory / f"{STRICT}-{partition}" / name


def _at_top(name: str) -> Callable[[Path, int], Path]:
    return lambda directory, _: directory / name


_TARGETS = {
    "closed segment": _Target(lambda directory, partition: _segment(directory, partition, 0), True),
    "active segment": _Target(lambda directory, partition: _segment(directory, partition, -1), True),
    "index": _Target(lambda d, p: _segment(d, p, 0).with_suffix(".index"), False),
    "time index": _Target(lambda d, p: _segment(d, p, 0).with_suffix(".timeindex"), False),
    "partition.metadata": _Target(_beside("partition.metadata"), False),
    # The other small files follow the journal after 4 MiB, which no run writes.
    "journal of checkpoints": _Target(_at_top(JOURNAL_NAMES[0]), False),
}


class DamagedDisks(Scenario):
    """Scenario 11, as the module describes it."""

    number, title, needs = 11, "Damaged disks", (NAMESPACES,)
    declared_ends = frozenset({ExitCode.STORAGE_DAMAGED})

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every file, flipped and truncated, at a killed node; segments also at a running one, leader or follower."""
        steps = []
        for target, what in _TARGETS.items():
            for how in ("flip", "cut"):
                for state in ("killed", *(["leading", "following"] if what.while_running else [])):
                    args = {"target": target, "how": how, "at": draw.uniform(0.3, 0.7), "partition": draw.randrange(3)}
                    steps.append(Step(what=state, args=args))
        draw.shuffle(steps)
        return [*steps, Step(what="replaced", args={"partition": 0})]

    async def play(self, run: Run) -> None:
        """Fills the logs with several segments, then one damage after the other, each in a whole cluster under load."""
        await _filled(run)
        for step in run.plan:
            run.note(f"damage {step.what}: {step.args}")
            partition = step.args["partition"]
            leader = await run.leader(partition)
            node = leader if step.what == "leading" else next(n for n in run.cluster.nodes if n != leader)
            if step.what == "replaced":
                await _replace(run, node)
            elif step.what == "killed":
                async with run.fault(Kill(node)):
                    _damage(run, node, step)
                    await _started(run, node)
                await _read_through(run, node, partition)
            else:
                _damage(run, node, step)
                await _read_through(run, node, partition)
            run.healed_s = time.monotonic()
            await run.in_sync()
            await run.load.acked(3)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every kind of file was damaged, and damage that no start checks for was found by reading."""
        kinds = {f"damaged {target}": 1 for target in _TARGETS}
        segments = {"damaged closed segment": 4, "damaged active segment": 4}
        return {**kinds, **segments, "fail-stops on reading": 1, "replaced": 1}


async def _filled(run: Run) -> None:
    async def look() -> bool:
        await run.load.burst(200)
        return all(
            len(_segments(node.directory / f"{STRICT}-{partition}")) >= _SEGMENTS
            for node in run.cluster.nodes.values()
            for partition in range(3)
        )

    await until(look, f"every log has {_SEGMENTS} segments", timeout_s=240)


def _damage(run: Run, node: int, step: Step) -> None:
    path = _TARGETS[step.args["target"]].find(run.cluster.nodes[node].directory, step.args["partition"])
    if not path.exists() or not path.stat().st_size:
        # An index file that was removed with a truncation, or is not written yet: there is nothing to damage.
        run.counters["nothing there"] += 1
        return
    at = _flip_bit(path, step.args["at"]) if step.args["how"] == "flip" else _cut_end(path)
    run.note(f"       {path.parent.name}/{path.name} at byte {at}")
    run.counters[f"damaged {step.args['target']}"] += 1


async def _started(run: Run, node: int) -> None:
    """Starts a node with its damage; a start that ends with a fail-stop is retried once, as by a supervisor."""
    try:
        await run.cluster.start_node(node)
    except ServiceDied:
        run.cluster.notice_ends()
        run.counters["fail-stops at the start"] += 1
        await run.cluster.start_node(node)


async def _read_through(run: Run, node: int, partition: int) -> None:
    """Reads a node's log from its beginning to the current HW; if that ends the node, it is started again.

    No value that is read may differ from what was sent: values are the clients' own, and contain their sender.
    """
    deadline_s = time.monotonic() + _MET_S
    with contextlib.suppress(grpc.aio.AioRpcError, LookupError):
        end = (await run.probe.replica(STRICT, node, partition)).hw
        offset = 0
        while offset < end and time.monotonic() < deadline_s:
            leads = (await run.probe.partition(STRICT, partition)).leader_id == node
            answer = await (_at_leader if leads else _at_follower)(run, node, partition, offset)
            if answer.error_code or not answer.records:
                await asyncio.sleep(0.1)
                continue
            values = values_of(answer.records)
            strange = [value for value in values if decode(value).seq < 0]
            run.check(not strange, f"node {node} served damaged values: {strange[:1]!r:.80}")
            offset += len(values)
    await asyncio.sleep(0.2)
    if not run.cluster.service(node).running:
        run.cluster.notice_ends()
        run.counters["fail-stops on reading"] += 1
        await _started(run, node)


async def _at_leader(run: Run, node: int, partition: int, offset: int) -> partition_pb2.FetchPartitionResponse:
    return await fetch(run.probe, node, STRICT, offset, partition=partition)


async def _at_follower(run: Run, node: int, partition: int, offset: int) -> partition_pb2.FetchPartitionResponse:
    row = partition_pb2.FetchPartition(partition=partition, fetch_offset=offset)
    wanted = partition_pb2.FetchTopic(topic=STRICT, partitions=[row])
    answer = await run.probe.follower_service(node).Fetch(
        follower_pb.FollowerServiceFetchRequest(topics=[wanted]), timeout=CALL_S
    )
    return answer.responses[0].partitions[0]


async def _replace(run: Run, node: int) -> None:
    """A new, empty disk: another directory id, a new node epoch, in no ISR before it has caught up."""
    before = (await run.probe.node(node)).node_epoch
    async with run.fault(Kill(node)):
        shutil.rmtree(run.cluster.nodes[node].directory)
        await run.cluster.start_node(node)
    await run.in_sync()
    after = (await run.probe.node(node)).node_epoch
    run.check(after > before, f"the node epoch went from {before} to {after} with another disk")
    run.counters["replaced"] += 1


def _flip_bit(path: Path, at: float) -> int:
    """Flips one bit at a fraction of the file's size; returns the byte's position."""
    size = path.stat().st_size
    assert size > 0, f"{path} is empty"
    position = min(size - 1, int(size * at))
    fd = os.open(path, os.O_RDWR)
    try:
        (byte,) = os.pread(fd, 1, position)
        os.pwrite(fd, bytes([byte ^ 0x10]), position)
    finally:
        os.close(fd)
    return position


def _cut_end(path: Path) -> int:
    """Removes 1 KiB, or all there is, from the end; returns the new end of the file."""
    size = path.stat().st_size
    assert size > 0, f"{path} is empty"
    kept = max(0, size - _CUT_BYTES)
    os.truncate(path, kept)
    return kept


def _segments(log: Path) -> list[Path]:
    """The segments of a log, oldest first; the last is active."""
    return sorted(log.glob("*.log"))
