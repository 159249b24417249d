"""Case 4: a leader loses the network of the nodes while clients still reach it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from container_case import Case, case
from container_cluster import ContainerCluster
from harness.stale_client import NAME
from running_cluster import until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_500)]

_GRACE_S = 1.0
"""An answer under way when the epoch moved may still arrive; it was right when it was given."""
_ZOMBIE_S = 4.0
"""How long clients meet both leaders."""


async def test_a_leader_off_the_network_of_nodes_acknowledges_nothing(
    cluster: ContainerCluster, tmp_path: Path
) -> None:
    """Cut off, it keeps new records to itself; another leads; healed, its tail is gone and no acked record is.

    The client that knows only the old leader gets no acks=all once the new one leads.
    """
    async with case(cluster, "zombie", tmp_path) as run:
        before = await run.probe.partition(run.load.strict)
        leader = before.leader_id
        cut_s = time.monotonic()
        await run.do(cluster.disconnect, leader)
        await run.probe.new_epoch(run.load.strict, before.leader_epoch)
        deposed_s = time.monotonic()
        await _both_lead(run, deposed_s)
        tail = await run.probe.replica(run.load.strict, leader)
        now = await run.probe.partition(run.load.strict)
        begun = (await run.probe.replica(run.load.strict, now.leader_id)).epochs[-1]
        healed_s = time.monotonic()
        await run.do(cluster.connect, leader)
        asked = run.load.sent_between(NAME, deposed_s + _GRACE_S, healed_s)
        await _ended(run, healed_s)
        await run.settle()
        cuts = [row for row in run.events("TRUNCATION") if row["node_id"] == leader and row["partition"] == 0]

    reported = [each for each in asked if each.outcome == "ok" and (each.completed_s or 0.0) < healed_s]
    assert asked, "the client went on to ask the old leader"
    assert reported == []
    assert deposed_s - cut_s <= run.limit_s(cut_s)
    assert tail.leo > begun[1], "the old leader held a tail of its own"
    assert sum(row["from_leo"] - row["to_leo"] for row in cuts) >= tail.leo - begun[1]
    assert [row for row in cuts if row["committed_cut"]] == []


async def _both_lead(run: Case, since_s: float) -> None:
    """Waits until the new leader has acknowledged, and the old one has received requests for long enough."""
    await run.load.acked(5)

    async def look() -> bool:
        return time.monotonic() - since_s >= _ZOMBIE_S

    await until(look, "the old leader was asked for some seconds")


async def _ended(run: Case, before_s: float) -> None:
    """Waits until every record that the old leader's client sent before has an outcome."""

    async def look() -> bool:
        return all(each.outcome for each in run.load.sent_between(NAME, 0.0, before_s))

    await until(look, "what was sent to the old leader has ended")
