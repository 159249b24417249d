"""Disks that lose their power (scenario 2) and that fail or fill up (scenario 10), under any process.

Where an fsync has failed the power is cut as well: pages that the kernel then marks clean are on no disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping

import grpc
from faults.disk import Disk
from faults.disk_power import DISKS, BadDisk, PowerLoss, mounted, slow
from faults.disk_rules import Rule
from faults.processes import Kill
from harness.run import Run
from harness.scenario import NAMESPACES, Form, Scenario, Step
from running_cluster import CALL_S

from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as controller_pb

_STOP_S = 1.0
_HIT_S = 60.0
_DECISIONS = 20
_ROOM_BYTES = 8_192
_ROLES = ("follower", "leader", "controller")
_SYNC_RETRIES = "fsyncs after a failed fsync"


class PowerLosses(Scenario):
    """Scenario 2: power loss at the leader, at a follower, at all nodes and the controller; unsynced data is lost.

    Every second loss leaves a drawn part of the unsynced bytes and names, which causes torn tails and half-written
    files.
    """

    number, title, needs, has_short_form = 2, "Power loss", (NAMESPACES, DISKS), True
    rounds = (10, 1)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """A number of losses of each kind, shuffled."""
        steps = [
            Step(
                what=whose,
                args={
                    "partition": draw.randrange(3),
                    "follower": draw.randrange(2),
                    "seed": draw.randrange(1 << 30) if number % 2 else None,
                    "away_s": draw.choice([0.0, draw.uniform(4.0, 6.0)]) if whose != "all" else 0.0,
                },
            )
            for whose in ("leader", "follower", "all")
            for number in range(form.of(*self.rounds))
        ]
        draw.shuffle(steps)
        return steps

    async def prepare(self, run: Run) -> None:
        """A disk for every process."""
        self.disks = mounted(run, range(4))
        slow(self.disks.values(), 15)

    async def play(self, run: Run) -> None:
        """One loss of power after the other, each in a whole cluster under load."""
        for step in run.plan:
            leader = await run.leader(step.args["partition"])
            followers = [node_id for node_id in run.cluster.nodes if node_id != leader]
            nodes = {"leader": [leader], "follower": [followers[step.args["follower"]]], "all": [1, 2, 3, 0]}[step.what]
            loss = PowerLoss(self.disks, nodes, step.args["seed"])
            began_s = time.monotonic()
            if step.what != "all":
                run.expect_acks(f"power loss of a {step.what}, node {nodes[0]}")
            async with run.fault(loss):
                run.counters[f"{step.what}_losses_that_dropped"] += loss.dropped_bytes > 0
                await run.sleep_until(began_s + step.args["away_s"])
            await run.in_sync()
            await run.load.acked(3)

    async def after(self, run: Run) -> None:
        """What every restart reported as truncated, and that it trusted nothing it should not."""
        cut = [
            line
            for node in run.cluster.nodes.values()
            for line in node.output.read_text(errors="replace").splitlines()
            if "log recovered" in line and "bytes_cut=0" not in line and "bytes_cut" in line
        ]
        run.counters["torn_tails_cut"] += len(cut)
        run.measured["first_cut"] = cut[0][:300] if cut else "none"

    def demands(self, form: Form) -> Mapping[str, int]:
        """Bytes were dropped in at least half of the losses of each kind."""
        least = max(1, form.of(*self.rounds) // 2)
        kinds = {f"{whose}_losses_that_dropped": least for whose in ("leader", "follower", "all")}
        return {"PowerLoss": least * 3, "dropped_record_bytes": 1, **kinds}


class FailingDisks(Scenario):
    """Scenario 10: fsync and write fail with EIO, or there is no space left: at a follower, the leader, the controller.

    In one case the failing operation creates a segment, in another it writes the journal of checkpoints.
    """

    number, title, needs = 10, "Failing disks", (NAMESPACES, DISKS)
    declared_ends = frozenset({ExitCode.STORAGE_FAILED})

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Each failure at each role, then the two special places."""
        failures = (("fsync", "EIO", None), ("write", "EIO", None), ("write", "ENOSPC", _ROOM_BYTES))
        steps = [
            Step(what=role, args={"operation": operation, "error": error, "room_bytes": room, "paths": paths})
            for role in _ROLES
            for paths in (["/metadata.sqlite*"] if role == "controller" else ["*.log"])
            for operation, error, room in failures
        ]
        draw.shuffle(steps)
        roll = {"operation": "create", "error": "EIO", "room_bytes": None, "paths": "*/0*.log"}
        epochs = {"operation": "write", "error": "EIO", "room_bytes": None, "paths": "/checkpoint.journal*"}
        return [*steps, Step(what="leader", args=roll), Step(what="follower", args=epochs)]

    async def prepare(self, run: Run) -> None:
        """A disk for every process."""
        self.disks = mounted(run, range(4))

    async def play(self, run: Run) -> None:
        """One failure after the other, each in a whole cluster under load."""
        for step in run.plan:
            leader = await run.leader()
            follower = next(node_id for node_id in run.cluster.nodes if node_id != leader)
            await _fail(run, {"leader": leader, "follower": follower, "controller": 0}[step.what], self.disks, step)
            await run.in_sync()
            await run.load.acked(5)

    def demands(self, form: Form) -> Mapping[str, int]:
        """Every failure happened at every role."""
        kinds = ("fsync EIO", "write EIO", "write ENOSPC")
        places = {f"{kind} at {role}": 1 for kind in kinds for role in _ROLES}
        return {**places, "create EIO at leader": 1, "dropped_after_a_failed_fsync": 1, "writes_refused": 1}


async def _fail(run: Run, node: int, disks: dict[int, Disk], step: Step) -> None:
    args, disk = step.args, disks[node]
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
        loss = PowerLoss(disks, [node])
        await run.begin(loss)
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
