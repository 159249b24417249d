"""Scenario 10: fsync and write fail with EIO, or there is no space left: at a follower, the leader, the controller.

In one case the failing operation creates a segment, in another it writes the journal of checkpoints. Where an fsync has
failed the power is cut as well: pages that the kernel then marks clean are on no disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping

import grpc
from faults.disk import Disk
from faults.disk_power import DISKS, BadDisk, PowerLoss, mounted
from faults.disk_rules import Rule
from faults.processes import Kill
from harness.fault import Step
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario
from running_cluster import CALL_S

from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as controller_pb

_STOP_S = 1.0
_HIT_S = 60.0
_DECISIONS = 20
_ROOM_BYTES = 8_192
_ROLES = ("follower", "leader", "controller")
_SYNC_RETRIES = "fsyncs after a failed fsync"
_STORE = "/metadata.sqlite*"
_disks: dict[int, Disk] = {}


def plan(draw: random.Random, form: Form) -> list[Step]:
    """Each failure at each role, then the two special places."""
    steps = [
        Step(what=role, args={"operation": operation, "error": error, "room_bytes": room, "paths": paths})
        for role in _ROLES
        for paths in ([_STORE] if role == "controller" else ["*.log"])
        for operation, error, room in (("fsync", "EIO", None), ("write", "EIO", None), ("write", "ENOSPC", _ROOM_BYTES))
    ]
    draw.shuffle(steps)
    roll = {"operation": "create", "error": "EIO", "room_bytes": None, "paths": "*/0*.log"}
    epochs = {"operation": "write", "error": "EIO", "room_bytes": None, "paths": "/checkpoint.journal*"}
    return [*steps, Step(what="leader", args=roll), Step(what="follower", args=epochs)]


async def prepare(run: Run) -> None:
    """A disk for every process."""
    _disks.update(mounted(run, range(4)))


async def play(run: Run) -> None:
    """One failure after the other, each in a whole cluster under load."""
    for step in run.plan:
        leader = await run.leader()
        follower = next(node_id for node_id in run.cluster.nodes if node_id != leader)
        node = {"leader": leader, "follower": follower, "controller": 0}[step.what]
        await _fail(run, node, step)
        await run.in_sync()
        await run.load.acked(5)


async def _fail(run: Run, node: int, step: Step) -> None:
    args, disk = step.args, _disks[node]
    is_full = args["room_bytes"] is not None
    rule = None if is_full else Rule(operation=args["operation"], paths=args["paths"], error=args["error"])
    retried = disk.counts.get(_SYNC_RETRIES, 0)
    before = len(run.cluster.ends)
    async with run.fault(BadDisk(disk, node, rule, args["room_bytes"])):
        ending = asyncio.create_task(_ended(run, node, disk, is_full=is_full))
        await _provoke(run, node, args)
        hit_s, ended_s = await ending
        if node and "epoch" not in args["paths"]:
            # Where an epoch was changed, by a kill, two of three nodes were away.
            run.expect_acks(f"{args['error']} at {step.what} {node}", since_s=ended_s)
        run.check(is_full or ended_s - hit_s <= _STOP_S, f"{step}: the process went on for {ended_s - hit_s:.2f} s")
        ends = [end.code for end in run.cluster.ends[before:]]
        run.check(ends == [ExitCode.STORAGE_FAILED], f"{step}: ends {ends}")
        retries = disk.counts.get(_SYNC_RETRIES, 0) - retried
        run.check(retries == 0, f"{step}: {retries} fsyncs after the one that failed")
        run.counters[f"{args['operation']} {args['error']} at {step.what}"] += 1
    run.measured["stop_max_s"] = max(run.measured.get("stop_max_s", 0.0), round(ended_s - hit_s, 2))
    if args["operation"] == "fsync":
        loss = PowerLoss(_disks, [node])
        await run.begin(loss)
        run.note(f"       {loss.described()}")
        run.counters["dropped_after_a_failed_fsync"] += loss.dropped_bytes > 0
        await run.end(loss)
    else:
        await run.cluster.start_node(node)
    run.healed_s = time.monotonic()


async def _provoke(run: Run, node: int, args: Mapping[str, object]) -> None:
    """Makes the process do what fails: change an epoch, decide something. The load writes and begins segments."""
    if node == 0:
        await _decide(run)
    elif "epoch" in str(args["paths"]):
        await run.begin(away := Kill(await run.leader()))
        await run.end(away)


async def _decide(run: Run) -> None:
    """Requests decisions that must be stored, until the controller ends; it ends before it answers."""
    service = run.cluster.controller
    for number in range(_DECISIONS):
        name = f"decision-{len(run.cluster.ends)}-{number}"
        wanted = controller_pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await run.probe.controller.CreateTopics(controller_pb.CreateTopicsRequest(topics=[wanted]), timeout=CALL_S)
        if not service.running:
            return


async def _ended(run: Run, node: int, disk: Disk, *, is_full: bool) -> tuple[float, float]:
    """When the failure first happened, and when the process was gone; waits for both."""
    deadline_s = time.monotonic() + _HIT_S
    service = run.cluster.service(node)
    while service.running:
        assert time.monotonic() < deadline_s, f"{service.name} lives on {_HIT_S:g} s after its disk began to fail"
        await asyncio.sleep(0.01)
    ended_s = time.monotonic()
    run.cluster.notice_ends()
    hit_s = ended_s if is_full else disk.first_hit_s
    assert hit_s is not None, f"{service.name} ended, and its disk had not failed"
    if is_full:
        run.counters["writes_refused"] += disk.counts.get("write refused, disk full", 0)
    return hit_s, ended_s


def demands(form: Form) -> Mapping[str, int]:
    """Every failure happened at every role."""
    kinds = ("fsync EIO", "write EIO", "write ENOSPC")
    places = {f"{kind} at {role}": 1 for kind in kinds for role in _ROLES}
    return {**places, "create EIO at leader": 1, "dropped_after_a_failed_fsync": 1, "writes_refused": 1}


SCENARIO = Scenario(
    number=10,
    title="Failing disks",
    plan=plan,
    prepare=prepare,
    play=play,
    demands=demands,
    needs=(NAMESPACES, DISKS),
    declared_ends=frozenset({ExitCode.STORAGE_FAILED}),
)
