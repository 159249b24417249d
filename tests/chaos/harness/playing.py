"""From a scenario to its verdict: start, warm up, play, heal, settle, read everything, stop, judge.

Invariant: every criterion is judged in every run, also when the scenario itself has already failed; a run whose faults
had no effect is void, never green.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harness import criteria
from harness.cluster import Cluster
from harness.controllers import Controllers
from harness.counters import counted
from harness.load import Load
from harness.namespaces import Namespaces
from harness.run import Run
from harness.scenario import Form, Scenario, Step
from running_cluster import Probe
from stored_reigns import stored_reigns

_WARM_S = 10.0
_WARM_SHORT_S = 3.0
_PULSE_S = 0.1
_EVENTS_WRITTEN_S = 0.5
"""Longer than a process keeps state events to itself; the last stop is no fault and must not be counted."""


class Verdict(StrEnum):
    GREEN = "green"
    RED = "red"
    VOID = "void"
    """Nothing was wrong, but the faults did not bite: it proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    scenario: Scenario
    form: Form
    seed: int
    plan: list[Step]
    directory: Path


async def play(wanted: Wanted, namespaces: Namespaces) -> tuple[Run, Verdict]:
    """One run; the namespaces are there and the process is in the hub."""
    scenario = wanted.scenario
    cluster = Cluster(
        wanted.directory / "cluster",
        namespaces,
        controller_settings=scenario.controller_settings,
        node_settings=scenario.node_settings,
        has_several=scenario.has_several,
        etcd_arguments=scenario.etcd_arguments,
        node_ids=scenario.node_ids,
        has_tls=scenario.has_tls,
    )
    async with AsyncExitStack() as stack:
        probe = await stack.enter_async_context(Probe(cluster))
        load = Load(
            cluster=cluster, probe=probe, directory=wanted.directory, seed=wanted.seed, pause_s=scenario.pause_s
        )
        run = Run(
            scenario=scenario,
            form=wanted.form,
            seed=wanted.seed,
            plan=wanted.plan,
            directory=wanted.directory,
            cluster=cluster,
            probe=probe,
            load=load,
            controllers=Controllers(cluster, probe, load) if scenario.has_several else None,
            stack=stack,
        )
        await scenario.prepare(run)
        stack.callback(cluster.kill)
        stack.push_async_callback(load.close)
        stack.push_async_callback(run.undo_everything)
        began_s = time.monotonic()
        feeling = asyncio.create_task(_feel_the_machine(run))
        stack.callback(feeling.cancel)
        stopped, warm, cold = await _live(run)
        await _attempt(run, scenario.after(run))
        run.failures += [
            *criteria.v1_history(run),
            *criteria.v3_processes(run, warm, cold, stopped),
            *criteria.v4_available(run),
        ]
        run.measured["seconds"] = round(time.monotonic() - began_s)
        run.measured["sends"] = len(load.sends)
        return run, _verdict(run)


def _verdict(run: Run) -> Verdict:
    if run.failures:
        return Verdict.RED
    not_real = criteria.v5_real(run)
    for sentence in not_real:
        run.note(f"VOID   {sentence}")
    run.measured["void"] = not_real
    return Verdict.VOID if not_real else Verdict.GREEN


async def _live(run: Run) -> tuple[list[str], dict[str, criteria.Footprint], dict[str, criteria.Footprint]]:
    """Everything between the first start and the last stop; returns unclean stops, and footprints before and after."""
    await run.cluster.start()
    if run.controllers is not None:
        run.stack.push_async_callback(run.controllers.close)
        await run.controllers.begin()
    await run.scenario.ready(run)
    await run.load.create_topics()
    await run.load.start()
    await run.load.acked(10)
    await asyncio.sleep(_WARM_SHORT_S if run.form.is_short else _WARM_S)
    warm = criteria.footprints(run.cluster)
    run.note("warm   the load runs, the faults begin")
    await _attempt(run, run.scenario.play(run))
    await _attempt(run, run.heal())
    healed_s = time.monotonic()
    run.healed_s = run.healed_s or healed_s
    await _attempt(run, run.in_sync())
    run.measured["in_sync_after_heal_s"] = round(time.monotonic() - healed_s, 1)
    run.note(f"healed all replicas in sync {run.measured['in_sync_after_heal_s']} s later")
    await _attempt(run, run.load.acked(10))
    await _attempt(run, run.load.stop_producing())
    run.failures += await criteria.v2_settled(run)
    await _attempt(run, _no_purgatory(run))
    await _attempt(run, run.load.read_everything())
    cold = criteria.footprints(run.cluster)
    await asyncio.sleep(_EVENTS_WRITTEN_S)
    controllers = [service.directory for service in run.cluster.controllers.values()]
    run.counters += counted(controllers, sorted(run.cluster.directory.glob("node-*")))
    if run.controllers is not None:
        await _attempt(run, _one_history(run, run.controllers))
        await run.controllers.close()
    run.note("read   everything was read; stopping")
    return [end.sentence for end in await run.cluster.stop() if end.forced or end.code != 0], warm, cold


async def _feel_the_machine(run: Run) -> None:
    """The longest pause of the driver itself: it limits what V4 can show of a cluster that got no CPU."""
    while True:
        began_s = time.monotonic()
        await asyncio.sleep(_PULSE_S)
        stall_s = round(time.monotonic() - began_s - _PULSE_S, 2)
        run.measured["driver_stall_max_s"] = max(stall_s, run.measured.get("driver_stall_max_s", 0.0))


async def _no_purgatory(run: Run) -> None:
    run.failures += await criteria.v3_nothing_waits(run)


async def _one_history(run: Run, controllers: Controllers) -> None:
    """I19: of the store's log, no reign begins again after another one, and no offset is missing or there twice."""
    reigns = await stored_reigns(run.cluster.etcd_endpoints)
    run.check(len(reigns) == len(set(reigns)), f"a reign wrote after the next one had begun: {reigns}")
    run.counters["reigns"] += len(reigns)
    run.measured |= controllers.measured()


async def _attempt(run: Run, work: Awaitable[None]) -> None:
    """Executes a part of the run; a failure is recorded, and the run continues to be judged."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in a scenario makes the run red, and is reported
        run.check(False, f"{type(error).__name__}: {error}")
        with contextlib.suppress(Exception):
            run.load.look()
