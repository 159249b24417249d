"""Scenario 23: etcd is restored from a snapshot that is some seconds old, under running nodes and controllers.

Nothing may be decided from it; `controller recover` rebuilds it from the nodes' directories.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from faults.processes import Kill
from harness.cluster import ETCD_PORT, initial_cluster, peer_url
from harness.facilities import ETCD
from harness.fault import Step
from harness.load import STRICT, STRICT_PARTITIONS
from harness.namespaces import ADDRESSES, MEMBERS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario
from running_cluster import until

from strandline.cli.local.processes import ServiceDied
from strandline.controller.store_health import FILE_NAME
from strandline.runtime.exit_codes import ExitCode

_OLD_S, _OLD_SHORT_S = 10.0, 4.0
_LOOK_S, _LOOK_SHORT_S = 15.0, 6.0
_COMMAND_S = 120
_EVERYBODY = ("p0", "p1", "p2", "p3")


def plan(draw: random.Random, form: Form) -> list[Step]:
    """How old the snapshot is, and how long the refusals are watched."""
    old_s, look_s = (_OLD_SHORT_S, _LOOK_SHORT_S) if form.is_short else (_OLD_S, _LOOK_S)
    return [Step(what="restore", args={"old_s": old_s, "look_s": look_s})]


async def play(run: Run) -> None:
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
    before = await _epochs(run)
    restored_s = time.monotonic()
    await _restore(run, saved)
    run.expect_acks("a store that went back", since_s=restored_s, clients=_EVERYBODY)
    while time.monotonic() < restored_s + step.args["look_s"]:
        await run.load.acked(3, clients=_EVERYBODY)
        await asyncio.sleep(1.0)
    # A change that was asked for before etcd stopped may have been stored by it.
    decided = [each for each in run.several.accepted if each.invoked_s > restored_s]
    run.check(not decided, f"{len(decided)} changes were accepted from a store that had gone back")
    run.counters["nothing_decided"] += not decided
    await _refused_at_start(run)
    _recover(run)
    recovered_s = time.monotonic()
    await asyncio.gather(*(run.cluster.start_again(name) for name in run.cluster.controllers))
    await run.several.goes_on("recovered", recovered_s)
    await run.in_sync()
    after = await _epochs(run)
    rose = all(now >= then for now, then in zip(after, before, strict=True))
    run.check(rose, f"leader epochs went back from {before} to {after}")
    await run.load.acked(5, clients=_EVERYBODY)


async def _epochs(run: Run) -> list[int]:
    async def look() -> list[int]:
        return [(await run.probe.partition(STRICT, index)).leader_epoch for index in range(STRICT_PARTITIONS)]

    return await until(look, "a controller tells the leader epochs")


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


def _recover(run: Run) -> None:
    """The command of OPERATIONS, on the directories of running nodes."""
    first, *others = run.cluster.controllers.values()
    members = ",".join(f"{ADDRESSES[name]}:{ETCD_PORT}" for name in MEMBERS)
    command = [sys.executable, "-m", "strandline.controller", "recover", "--data-dir", str(first.directory)]
    directories = [str(node.directory) for node in run.cluster.nodes.values()]
    done = subprocess.run(
        [*command, "--etcd-endpoints", members, *directories],
        check=False,
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
    )
    run.note(f"recover {(done.stdout + done.stderr).strip()}")
    assert done.returncode == 0, done.stderr
    for service in others:
        (service.directory / FILE_NAME).unlink(missing_ok=True)
    run.counters["recovered"] += 1


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


def demands(form: Form) -> Mapping[str, int]:
    """The store went back, nothing was decided from it, and it was recovered."""
    return {"restored": 1, "nothing_decided": 1, "refused_at_start": 1, "recovered": 1, "elections": 1}


SCENARIO = Scenario(
    number=23,
    title="etcd restored",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
    declared_ends=frozenset({ExitCode.STORAGE_FAILED, ExitCode.FENCED}),
    declared_alarms=("controller stopped", "stopped serving", "older snapshot", "recover"),
)
