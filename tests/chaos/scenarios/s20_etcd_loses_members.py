"""Scenario 20: etcd's leader is killed, then stopped, then the majority of its members is: acknowledgements go on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

from faults.processes import Kill, Pause
from harness.counters import rows
from harness.facilities import ETCD
from harness.fault import Step
from harness.load import STRICT, STRICT_PARTITIONS
from harness.namespaces import MEMBERS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario
from running_cluster import until

_AWAY_S, _AWAY_SHORT_S = 60.0, 5.0
_LEADER_S, _LEADER_SHORT_S = 10.0, 2.5
_EVERYBODY = ("p0", "p1", "p2", "p3")
_LOOK_S = 1.0


def plan(draw: random.Random, form: Form) -> list[Step]:
    """The leader first, then two members, of which one is the leader.

    etcd before 3.4.31 and 3.5.13 lets a leader that went on revoke leases in use: another reign may begin then.
    """
    leader_s, away_s = (_LEADER_SHORT_S, _AWAY_SHORT_S) if form.is_short else (_LEADER_S, _AWAY_S)
    return [
        Step(what="kill the leader", args={"length_s": leader_s}),
        Step(what="pause the leader", args={"length_s": leader_s}),
        Step(what="pause the majority", args={"length_s": away_s, "other": draw.randrange(2)}),
    ]


async def play(run: Run) -> None:
    """One after the other; without a majority nothing is decided, and nobody is fenced for it afterwards."""
    kill, pause, majority = run.plan
    await _leader(run, kill, Kill)
    await _leader(run, pause, Pause)
    await _majority(run, majority)
    await run.in_sync()


async def _leader(run: Run, step: Step, kind: type[Kill | Pause]) -> None:
    leader = await run.several.etcd_leader()
    began_s = time.monotonic()
    run.expect_acks(f"etcd's leader {leader}: {step.what}", since_s=began_s)
    async with run.fault(kind(leader)):
        first = await run.several.goes_on(step.what, began_s)
        run.note(f"{first.place} decides after {first.at_s - began_s:.3f} s without etcd's leader {leader}")
        await run.sleep_until(began_s + step.args["length_s"])


async def _majority(run: Run, step: Step) -> None:
    leader = await run.several.etcd_leader()
    other = [name for name in MEMBERS if name != leader][step.args["other"]]
    await run.several.active()
    before = await _epochs(run)
    fenced = _fenced(run)
    began_s = time.monotonic()
    run.expect_acks("etcd has no majority", since_s=began_s, clients=_EVERYBODY)
    async with run.fault(Pause(leader)), run.fault(Pause(other)):
        while time.monotonic() < began_s + step.args["length_s"]:
            await run.load.acked(3, clients=_EVERYBODY)
            await asyncio.sleep(_LOOK_S)
        decided = [each for each in run.several.accepted if each.invoked_s > began_s + _LOOK_S]
        run.check(not decided, f"{len(decided)} changes were accepted without a majority of etcd")
        run.counters["refused_without_majority"] += not decided
        ended_s = time.monotonic()
    first = await run.several.goes_on("majority of etcd back", ended_s)
    run.note(f"{first.place} decides {first.at_s - ended_s:.3f} s after the majority came back")
    await run.load.acked(3, clients=_EVERYBODY)
    after = await _epochs(run)
    run.check(after == before, f"leader epochs changed from {before} to {after} by an outage of etcd alone")
    run.check(_fenced(run) == fenced, "a node that sent heartbeats was fenced after the outage")


async def _epochs(run: Run) -> list[int]:
    """The leader epoch of each partition; a take-over may be under way."""

    async def look() -> list[int]:
        return [(await run.probe.partition(STRICT, index)).leader_epoch for index in range(STRICT_PARTITIONS)]

    return await until(look, "a controller tells the leader epochs")


def _fenced(run: Run) -> int:
    """How many sessions ended so far, as the controllers' events say."""
    found = [row for service in run.cluster.controllers.values() for row in rows(service.directory)]
    return sum(row["event_type"] == "NODE_SESSION" and row.get("phase") == "fence" for row in found)


def demands(form: Form) -> Mapping[str, int]:
    """The leader was gone twice, and nothing was decided without a majority."""
    return {"Kill": 1, "Pause": 3, "refused_without_majority": 1}


SCENARIO = Scenario(
    number=20,
    title="etcd loses members",
    plan=plan,
    play=play,
    demands=demands,
    needs=(NAMESPACES, IPTABLES, ETCD),
    has_several=True,
    has_short_form=True,
)
