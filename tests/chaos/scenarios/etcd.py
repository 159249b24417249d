"""etcd in trouble under three controllers: members gone (20), no space (22), restored (23), slow (25)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from faults.disk import Disk
from faults.disk_power import DISKS, slow
from faults.processes import Kill, Pause
from harness.cluster import ETCD_PORT, initial_cluster, peer_url
from harness.counters import ended_sessions
from harness.facilities import ETCD
from harness.load import EVERYBODY, STRICT
from harness.namespaces import ADDRESSES, MEMBERS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario, Step
from running_cluster import until

from strandline.cli.local.processes import ServiceDied
from strandline.controller.store_health import FILE_NAME
from strandline.etcd.client import Etcd
from strandline.etcd.errors import NoSpace
from strandline.runtime.exit_codes import ExitCode

_COMMAND_S = 120
_QUOTA = 16 << 20
_FILLING = (b"/somebody-else/", b"/somebody-else0")


class LosesMembers(Scenario):
    """Scenario 20: etcd's leader is killed, then stopped, then most of its members are: acknowledgements go on."""

    number, title, has_short_form = 20, "etcd loses members", True
    needs = (NAMESPACES, IPTABLES, ETCD)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """The leader first, then two members, of which one is the leader.

        etcd before 3.4.31 and 3.5.13 lets a leader that went on revoke leases in use: another reign may begin then.
        """
        leader_s, away_s = form.of((10.0, 60.0), (2.5, 5.0))
        return [
            Step(what="kill the leader", args={"length_s": leader_s}),
            Step(what="pause the leader", args={"length_s": leader_s}),
            Step(what="pause the majority", args={"length_s": away_s, "other": draw.randrange(2)}),
        ]

    async def play(self, run: Run) -> None:
        """One after the other; without a majority nothing is decided, and no node is fenced for it afterwards."""
        kill, pause, majority = run.plan
        await self._leader(run, kill, Kill)
        await self._leader(run, pause, Pause)
        await self._majority(run, majority)
        await run.in_sync()

    async def _leader(self, run: Run, step: Step, kind: type[Kill | Pause]) -> None:
        leader = await run.several.etcd_leader()
        began_s = time.monotonic()
        run.expect_acks(f"etcd's leader {leader}: {step.what}", since_s=began_s)
        async with run.fault(kind(leader)):
            first = await run.several.goes_on(step.what, began_s)
            run.note(f"{first.place} decides after {first.at_s - began_s:.3f} s without etcd's leader {leader}")
            await run.sleep_until(began_s + step.args["length_s"])

    async def _majority(self, run: Run, step: Step) -> None:
        leader = await run.several.etcd_leader()
        other = [name for name in MEMBERS if name != leader][step.args["other"]]
        await run.several.active()
        directories = [service.directory for service in run.cluster.controllers.values()]
        before, fenced = await run.leader_epochs(), ended_sessions(directories)
        began_s = time.monotonic()
        run.expect_acks("etcd has no majority", since_s=began_s, clients=EVERYBODY)
        async with run.fault(Pause(leader)), run.fault(Pause(other)):
            await run.acked_until(began_s + step.args["length_s"])
            run.nothing_decided(began_s + 1.0, "without a majority of etcd", "refused_without_majority")
            ended_s = time.monotonic()
        first = await run.several.goes_on("majority of etcd back", ended_s)
        run.note(f"{first.place} decides {first.at_s - ended_s:.3f} s after the majority came back")
        await run.load.acked(3, clients=EVERYBODY)
        after = await run.leader_epochs()
        run.check(after == before, f"leader epochs changed from {before} to {after} by an outage of etcd alone")
        run.check(ended_sessions(directories) == fenced, "a node that sent heartbeats was fenced after the outage")

    def demands(self, form: Form) -> Mapping[str, int]:
        """The leader was gone twice, and nothing was decided without a majority."""
        return {"Kill": 1, "Pause": 3, "refused_without_majority": 1}


class WithoutSpace(Scenario):
    """Scenario 22: etcd is filled until it refuses every write, and cleared by the commands that are printed."""

    number, title = 22, "etcd without space"
    needs = (NAMESPACES, IPTABLES, ETCD)
    etcd_arguments = ("--quota-backend-bytes", str(_QUOTA))
    declared_alarms = ("etcd has no space", "remedy")

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """How long etcd stays full."""
        return [Step(what="full", args={"length_s": form.of(60.0, 5.0)})]

    async def play(self, run: Run) -> None:
        """Acknowledgements go on, nothing is decided, no controller takes over; the printed commands end it."""
        (step,) = run.plan
        active = await run.several.active()
        client = Etcd(run.cluster.etcd_endpoints)
        try:
            await _fill(client)
            began_s = time.monotonic()
            run.expect_acks("etcd has no space", since_s=began_s, clients=EVERYBODY)
            commands = await until(lambda: _printed(run, active), "the controller prints the remedy")
            await run.acked_until(began_s + step.args["length_s"])
            run.nothing_decided(began_s + 1.0, "without space in etcd", "refused_without_space")
            # The space belongs to another user of etcd, who gives it back.
            await client.delete(*_FILLING)
        finally:
            await client.close()
        cleared_s = time.monotonic()
        for command in commands:
            run.note(f"runs    {command}")
            done = await asyncio.to_thread(_run, command)
            run.check(done.returncode == 0, f"`{command}` failed: {done.stderr.strip()}")
            run.counters["commands"] += 1
        first = await run.several.goes_on("etcd cleared by the printed commands", cleared_s)
        run.check(first.place == active, f"{first.place} decides after {active} had no space: none may take over")
        await run.load.acked(3, clients=EVERYBODY)
        await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """Nothing was decided, and the commands were there to be run."""
        return {"refused_without_space": 1, "commands": 3}


async def _fill(client: Etcd) -> None:
    """Write until etcd refuses: it compares the quota with the size at its last commit, up to 100 ms ago."""
    try:
        for number in range(32 * _QUOTA >> 20):
            await client.put(_FILLING[0] + b"%d" % number, b"x" * (1 << 20))
    except NoSpace:
        return
    raise AssertionError("etcd was never full")


async def _printed(run: Run, active: str) -> list[str]:
    """The three commands, in their order, from the controller's own output."""
    lines = run.cluster.controllers[active].output.read_text(errors="replace").splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{") and '"remedy"' in line]
    return [row["run"] for row in sorted(rows, key=lambda row: int(row["step"]))[:3]] if len(rows) >= 3 else []


def _run(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command.split(), check=False, capture_output=True, text=True, timeout=_COMMAND_S)


class Restored(Scenario):
    """Scenario 23: etcd is restored from a snapshot that is some seconds old, under running nodes and controllers.

    Nothing may be decided from it; `controller recover` rebuilds it from the nodes' directories.
    """

    number, title = 23, "etcd restored"
    needs = (NAMESPACES, IPTABLES, ETCD)
    declared_ends = frozenset({ExitCode.STORAGE_FAILED, ExitCode.FENCED})
    declared_alarms = ("controller stopped", "stopped serving", "older snapshot", "recover")

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """How old the snapshot is, and how long the refusals are watched."""
        return [Step(what="restore", args={"old_s": form.of(10.0, 4.0), "look_s": form.of(15.0, 6.0)})]

    async def play(self, run: Run) -> None:
        """An election lies between the snapshot and its restore, so that the snapshot lacks what nodes were sent."""
        (step,) = run.plan
        await run.several.active()
        saved = run.directory / "saved.db"
        saved_s = time.monotonic()
        _etcdctl("--endpoints", f"{ADDRESSES[MEMBERS[0]]}:{ETCD_PORT}", "snapshot", "save", str(saved))
        async with run.fault(Kill(await run.leader())):
            await asyncio.sleep(step.args["old_s"] / 2)
        await run.in_sync()
        await run.sleep_until(saved_s + step.args["old_s"])
        before = await run.leader_epochs()
        restored_s = time.monotonic()
        await _restore(run, saved)
        run.expect_acks("a store that went back", since_s=restored_s, clients=EVERYBODY)
        await run.acked_until(restored_s + step.args["look_s"])
        # A change that was asked for before etcd stopped may have been stored by it.
        run.nothing_decided(restored_s, "from a store that had gone back", "nothing_decided")
        await _refused_at_start(run)
        run.recover("--etcd-endpoints", ",".join(f"{ADDRESSES[name]}:{ETCD_PORT}" for name in MEMBERS))
        for service in list(run.cluster.controllers.values())[1:]:
            (service.directory / FILE_NAME).unlink(missing_ok=True)
        recovered_s = time.monotonic()
        await asyncio.gather(*(run.cluster.start_again(name) for name in run.cluster.controllers))
        await run.several.goes_on("recovered", recovered_s)
        await run.in_sync()
        after = await run.leader_epochs()
        rose = all(now >= then for now, then in zip(after, before, strict=True))
        run.check(rose, f"leader epochs went back from {before} to {after}")
        await run.load.acked(5, clients=EVERYBODY)

    def demands(self, form: Form) -> Mapping[str, int]:
        """The store went back, nothing was decided from it, and it was recovered."""
        return dict.fromkeys(("restored", "nothing_decided", "refused_at_start", "recovered", "elections"), 1)


async def _restore(run: Run, saved: Path) -> None:
    """Stops every member, replaces what it has, and starts it again."""
    for name in MEMBERS:
        run.cluster.members[name].kill()
    for name in MEMBERS:
        data = run.cluster.members[name].directory / "data"
        shutil.rmtree(data)
        _etcdctl(
            "snapshot", "restore", str(saved), "--name", name, "--data-dir", str(data),
            "--initial-cluster", initial_cluster(), "--initial-advertise-peer-urls", peer_url(name),
            "--initial-cluster-token", "strandline",
        )  # fmt: skip
    await run.cluster.start_members(*MEMBERS)
    run.note("etcd was restored from the older snapshot")
    run.counters["restored"] += 1


async def _refused_at_start(run: Run) -> None:
    """A controller that is started on the restored store ends, and names the remedy; the others are stopped."""
    for service in run.cluster.controllers.values():
        service.kill()
    name = next(iter(run.cluster.controllers))
    service = run.cluster.controllers[name]
    try:
        await run.cluster.start_node(name)
    except ServiceDied as error:
        service.end_expected = True
        run.counters["refused_at_start"] += "recover" in str(error)
        run.note(f"refused {error}")
    else:
        run.check(False, "a controller started on a store that had gone back")
        service.kill()


def _etcdctl(*words: str) -> None:
    done = subprocess.run(
        ["etcdctl", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        env={**os.environ, "ETCDCTL_API": "3"},
    )
    assert done.returncode == 0, done.stderr


class SlowSyncs(Scenario):
    """Scenario 25: every sync of etcd's disks takes 100 ms; decisions are late, and nothing else is."""

    number, title = 25, "Slow syncs of etcd"
    needs = (NAMESPACES, IPTABLES, ETCD, DISKS)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """A while of slow syncs; within it a leader and then the controller that decides are killed."""
        return [Step(what="slow syncs", args={"length_s": form.of(60.0, 10.0)})]

    async def prepare(self, run: Run) -> None:
        """A disk of our own under each member of etcd."""
        self.disks = [Disk(run.cluster.members[name].directory) for name in MEMBERS]
        for disk in self.disks:
            disk.mount()
            run.stack.callback(disk.unmount)

    async def play(self, run: Run) -> None:
        """Elections and a take-over on slow disks."""
        (step,) = run.plan
        active = await run.several.active()
        began_s = time.monotonic()
        slow(self.disks, 100)
        run.note("begin  every sync of etcd is slow")
        run.expect_acks("etcd's syncs are slow", since_s=began_s)
        await asyncio.sleep(step.args["length_s"] / 2)
        node = await run.leader()
        run.expect_acks(f"leader {node} is killed while etcd is slow", within_s=10.0, clients=("p0", "p1"))
        async with run.fault(Kill(node)):
            await run.probe.leader(STRICT, 0, other_than=node)
            await run.load.acked(3)
        active = await run.several.active()
        killed_s = time.monotonic()
        async with run.fault(Kill(active)):
            await run.taken_over("kill -9 while etcd is slow", killed_s, active)
        await run.sleep_until(began_s + step.args["length_s"])
        for disk in self.disks:
            run.counters["slow_syncs"] += disk.hits
            disk.heal()
        run.note("end    etcd's syncs are fast again")
        await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """Syncs were late, and there was a take-over meanwhile."""
        return {"slow_syncs": 100, "Kill": 2, "reigns": 2, "elections": 1}
