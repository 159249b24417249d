"""Three controllers on three members of etcd, three nodes, and a load: the controller that decides goes away."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time

import grpc
import pytest
from client_load import Load
from running_cluster import CALL_S, Probe, until
from settled_logs import assert_settled
from stored_reigns import stored_reigns

from strandline.etcd.members import HOW_TO_INSTALL, is_installed
from strandline.v1 import controller_service_pb2 as pb
from strandline_sim.checks.history import SendOutcome

pytestmark = pytest.mark.skipif(not is_installed(), reason=HOW_TO_INSTALL)

CLUSTER = {"controllers": 3}
_KILLED_S = 2.0
"""From `kill -9` of the controller that decides to the first change that another one accepts, on a quiet machine."""
_LEASE_S, _VANISHED_S = 3.0, 5.0
"""The same for one that is stopped: its lease, and what comes behind it."""


def _longest_gap_s(load: Load, begin_s: float, end_s: float) -> float:
    """The longest time between two acknowledgements that follow each other."""
    acks = sorted(
        s.completed_s for s in load._sends if s.outcome is SendOutcome.OK and s.completed_s and begin_s <= s.completed_s
    )
    within = [at_s for at_s in acks if at_s <= end_s]
    return max((after - before for before, after in itertools.pairwise(within)), default=0.0)


async def _reigns(probe: Probe) -> list[str]:
    """The reign of each transaction of the store, in order, each run of one reign once."""
    assert probe.local.etcd is not None
    return await stored_reigns(probe.local.etcd.endpoints)


async def _back(probe: Probe, place: int) -> None:
    """Start a controller again, and wait until it answers, as a standby."""
    await probe.local.start_controller(number=place + 1)

    async def answers() -> bool:
        try:
            await probe.controller_at(place).GetMetadata(pb.GetMetadataRequest(), timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            return "decides" in (error.details() or "")
        return True

    await until(answers, f"controller {place + 1} knows who decides")


async def test_killing_the_controller_that_decides(probe: Probe, topic: str) -> None:
    """kill -9 of the active controller under load: another one decides at once, acks go on, nothing is lost (C19)."""
    await probe.active()
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        began_s = time.monotonic()
        await load.acked(100)
        active = await probe.active()
        killed_s = time.monotonic()
        probe.local.controllers[active + 1].kill()
        await probe.active(other_than=active)
        took_s = time.monotonic() - killed_s
        await load.acked(100)
        ended_s = time.monotonic()
        before_s, after_s = _longest_gap_s(load, began_s, killed_s), _longest_gap_s(load, killed_s, ended_s)
        print(f"killed: {took_s:.3f} s to a change; gaps of acks {before_s:.3f} s before, {after_s:.3f} s after")
        await load.finish()
    await assert_settled(probe, topic)
    await _back(probe, active)
    reigns = await _reigns(probe)

    assert took_s < load.limit_s(_KILLED_S, killed_s)
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0
    assert len(reigns) == len(set(reigns)) >= 2


async def test_a_controller_that_is_asked_to_stop_hands_over(probe: Probe, topic: str) -> None:
    """SIGTERM of the active controller under load: it exits cleanly, and the next one has every decision (C22)."""
    await probe.active()
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(50)
        active = await probe.active()
        asked_s = time.monotonic()
        stopping = asyncio.create_task(probe.local.controllers[active + 1].stop(10_000))
        await probe.active(other_than=active)
        took_s = time.monotonic() - asked_s
        end = await stopping
        await load.acked(50)
        print(f"handed over: {took_s:.3f} s from SIGTERM to a change accepted elsewhere")
        await load.finish()
    await assert_settled(probe, topic)
    await _back(probe, active)

    assert end is not None
    assert (end.code, end.forced) == (0, False)
    assert took_s < load.limit_s(_KILLED_S, asked_s)


async def test_a_stopped_controller_wakes_up_replaced(probe: Probe, topic: str) -> None:
    """SIGSTOP of the active controller under load, CONT after another one decided: it appends nothing more (C7)."""
    await probe.active()
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(50)
        active = await probe.active()
        process = probe.local.controllers[active + 1].process
        assert process is not None
        stopped_s = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        try:
            await probe.active(other_than=active)
            took_s = time.monotonic() - stopped_s
        finally:
            process.send_signal(signal.SIGCONT)
        await load.acked(50)

        async def refuses() -> bool:
            return not await probe.decides(active)

        await until(refuses, "the controller that was stopped knows that it was replaced")
        print(f"stopped: {took_s:.3f} s to a change accepted elsewhere")
        await load.finish()
    await assert_settled(probe, topic)
    reigns = await _reigns(probe)

    assert took_s < _LEASE_S + load.limit_s(_VANISHED_S, stopped_s)
    assert len(reigns) == len(set(reigns))
    assert load.outcomes[SendOutcome.DEFINITE] == load.outcomes[SendOutcome.INDEFINITE] == 0
