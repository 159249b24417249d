"""The figures against real processes: a follower that hangs and a leader that is killed, compared with the test."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from raw_records import append, batch, produce
from running_cluster import Probe, plan, started, stopped, until

from strandline.cli.local.local_cluster import LocalCluster
from strandline_analytics.scope import Scope
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

LAG_US = 2_000_000
"""replica.lag.time.max.ms of the run."""

SLACK_US = 2_500_000
"""What a busy machine may add to a wait that others end."""

_PAUSED_S = 4.0
_ASKED = ("s07", "s08", "s09", "s12", "s13", "s16", "s19")


@dataclass(frozen=True, slots=True)
class Watched:
    """What the test saw from outside; times in us since 1970."""

    start_us: int
    end_us: int
    follower: int
    paused_us: int
    resumed_us: int
    killed: int
    figures: dict[str, list[Row]]


def _now_us() -> int:
    return time.time_ns() // 1_000


@pytest.fixture(scope="module")
def watched(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """One run: a follower hangs for longer than the lag limit, then the leader is killed; and its statistics."""
    directory = tmp_path_factory.mktemp("live")
    # Files end soon, because a process that is killed loses its open file.
    export = directory / "export"
    rules = {"export_dir": str(export), "export_roll_s": "1", "export_format": "jsonl"}
    what = plan(directory / "cluster", rules=rules)
    # The session outlasts the pause: then only the leader can detect it.
    what = replace(
        what,
        controller_settings={**what.controller_settings, "session_timeout_ms": "60000"},
        node_settings={**what.node_settings, "replica_lag_time_max_ms": str(LAG_US // 1_000)},
    )
    cluster = started(what)
    try:
        seen = asyncio.run(_accidents(cluster, export))
        assert stopped(cluster) == []
    finally:
        cluster.kill()
    scope = Scope(start_us=seen["start_us"], end_us=seen["end_us"])
    silver = open_exports(spark, [str(export)])
    return Watched(**seen, figures={name: result(ALL[name], silver, scope).collect() for name in _ASKED})


async def _accidents(cluster: LocalCluster, export: Path) -> dict[str, Any]:
    start_us = _now_us()
    async with Probe(cluster) as probe:
        await probe.everybody()
        await probe.create_topic("t")
        leader = await probe.leader("t")
        follower = next(node_id for node_id in cluster.nodes if node_id != leader)
        await append(probe, "t", b"before")
        paused_us = await _pause(probe, leader, follower)
        await append(probe, "t", b"between")
        await until(lambda: asyncio.to_thread(_reported, export, leader), "the leader reported the removal in a file")
        await _kill(probe, cluster, leader)
        await append(probe, "t", b"after")
        seen = {"follower": follower, "paused_us": paused_us[0], "resumed_us": paused_us[1], "killed": leader}
    return {"start_us": start_us, "end_us": _now_us(), **seen}


async def _pause(probe: Probe, leader: int, follower: int) -> tuple[int, int]:
    """Pauses a follower until it is out of the ISR and the pause is long enough; then resumes it.

    The leader appends something meanwhile: a follower that has all records counts as caught up, however silent.
    """
    paused_us = _now_us()
    probe.pause(follower)
    try:
        answer = await produce(probe, leader, "t", batch(b"unseen"), acks=1)
        assert not answer.error_code

        async def is_out() -> bool:
            isr = (await probe.partition("t")).isr
            return follower not in isr and _now_us() - paused_us >= _PAUSED_S * 1e6

        await until(is_out, "the leader takes the follower out of the ISR", timeout_s=30)
    finally:
        probe.resume(follower)
    resumed_us = _now_us()
    await probe.in_sync("t")
    return paused_us, resumed_us


def _reported(export: Path, leader: int) -> bool:
    """Whether a file has what only the leader knows of the removal: the follower's position."""
    lines = (line for path in export.rglob(f"n{leader}-*.jsonl") for line in path.read_text().splitlines())
    return any('"ISR_CHANGE"' in line and '"initiator":"leader"' in line.replace(": ", ":") for line in lines)


async def _kill(probe: Probe, cluster: LocalCluster, leader: int) -> None:
    cluster.kill_node(leader)
    await probe.leader("t", other_than=leader)
    await probe.restart(leader)
    await probe.in_sync("t")


pytestmark = pytest.mark.timeout(300)
"""A cluster and a session start first."""


def test_the_hanging_follower_is_the_one_stuck_replica(watched: Watched) -> None:
    """S9 names exactly the follower that hung, as not fetching; S8 counts both faults and both returns."""
    stuck = [row for row in watched.figures["s09"] if row.removal_cause == "lag_stuck"]

    assert [(row.replica_id, row.leader_id, row.removals) for row in stuck] == [(watched.follower, watched.killed, 1)]
    assert [(row.shrinks, row.expands) for row in watched.figures["s08"]] == [(2, 2)]


def test_detection_takes_between_one_and_one_and_a_half_limits(watched: Watched) -> None:
    """S13 lies in [T, 1.5 T plus the machine's delay], counted from the last time the follower was caught up."""
    (row,) = [row for row in watched.figures["s13"] if row.removed_by == "leader"]

    assert LAG_US <= row.max_us <= LAG_US * 3 // 2 + SLACK_US
    assert row.below_limit == 0


def test_the_rejoin_is_no_shorter_than_the_rest_of_the_pause(watched: Watched) -> None:
    """S12 counts from the commit of the removal: at least the pause without the time until it was detected."""
    (row,) = [row for row in watched.figures["s12"] if row.replica_id == watched.follower]
    (noticed,) = [row for row in watched.figures["s13"] if row.removed_by == "leader"]

    assert row.rejoins == 1
    assert row.max_us >= watched.resumed_us - watched.paused_us - noticed.max_us - SLACK_US // 2
    assert row.max_us <= watched.end_us - watched.paused_us


def test_the_killed_leader_is_one_failover_and_one_simultaneous_shrink(watched: Watched) -> None:
    """S16 and S19: the controller replaced the leader and removed it from the ISR in one step."""
    (paired,) = watched.figures["s16"]
    (failover,) = watched.figures["s19"]

    assert paired.simultaneous == 1
    assert failover.failovers == 1
    assert failover.elect_max_us >= 0


def test_nothing_committed_was_cut(watched: Watched) -> None:
    """S7: no new leader lacked a committed record, and that is known of both; a cut below an own HW is not known."""
    (row,) = watched.figures["s07"]

    assert (row.epochs, row.epochs_unknown, row.committed_lost_records) == (2, 0, 0)
    assert row.committed_cut_records == (None if row.own_hw_unknown else 0)
