"""Scenario 22: etcd is filled until it refuses every write, and cleared by the commands that the controller prints."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections.abc import Mapping

from harness.facilities import ETCD
from harness.fault import Step
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario
from running_cluster import until

from strandline.etcd.client import Etcd
from strandline.etcd.errors import NoSpace

_QUOTA = 16 << 20
_FULL_S, _FULL_SHORT_S = 60.0, 5.0
_EVERYBODY = ("p0", "p1", "p2", "p3")
_COMMAND_S = 120
_FILLING = (b"/somebody-else/", b"/somebody-else0")


def plan(draw: random.Random, form: Form) -> list[Step]:
    """How long etcd stays full."""
    return [Step(what="full", args={"length_s": _FULL_SHORT_S if form.is_short else _FULL_S})]


async def play(run: Run) -> None:
    """Acknowledgements go on, nothing is decided, nobody takes over; the printed commands end it."""
    (step,) = run.plan
    active = await run.several.active()
    client = Etcd(run.cluster.etcd_endpoints)
    try:
        await _fill(client)
        began_s = time.monotonic()
        run.expect_acks("etcd has no space", since_s=began_s, clients=_EVERYBODY)
        commands = await until(lambda: _printed(run, active), "the controller prints the remedy")
        while time.monotonic() < began_s + step.args["length_s"]:
            await run.load.acked(3, clients=_EVERYBODY)
            await asyncio.sleep(1.0)
        decided = [each for each in run.several.accepted if each.invoked_s > began_s + 1.0]
        run.check(not decided, f"{len(decided)} changes were accepted without space in etcd")
        run.counters["refused_without_space"] += not decided
        # The space belongs to somebody else, who gives it back.
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
    run.check(first.place == active, f"{first.place} decides after {active} had no space: nobody may take over")
    await run.load.acked(3, clients=_EVERYBODY)
    await run.in_sync()


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


def demands(form: Form) -> Mapping[str, int]:
    """Nothing was decided, and the commands were there to be run."""
    return {"refused_without_space": 1, "commands": 3}


SCENARIO = Scenario(
    number=22,
    title="etcd without space",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
    etcd_arguments=("--quota-backend-bytes", str(_QUOTA)),
    declared_alarms=("etcd has no space", "remedy"),
)
