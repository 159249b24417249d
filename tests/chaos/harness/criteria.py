"""The pass criteria V1 to V5 of RELIABILITY.md#the-criteria, one function each; a failure is one clear sentence.

Invariant: each uses evidence from outside the nodes: client histories, bytes on the disk, /proc, state events. Only an
empty list passes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.cluster import Cluster
from harness.run import Expected, Run
from running_cluster import alarms
from settled_logs import assert_settled

from strandline.runtime.exit_codes import ExitCode
from strandline_sim.checks.history import anomalies

SETTLE_S = 30.0
_RSS_SLACK_KB = 256 << 10
_FDS_SLACK = 32
_THREADS_SLACK = 8


def v1_history(run: Run) -> list[str]:
    """No client saw what a correct log cannot show."""
    found = anomalies(run.load.history())
    shown = [f"V1 {anomaly.name}: {anomaly.sentence}" for anomaly in found[:10]]
    more = [f"V1 and {len(found) - 10} anomalies more"] if len(found) > 10 else []
    return [*shown, *more, *(f"V1 {death}" for death in run.load.deaths)]


async def v2_settled(run: Run) -> list[str]:
    """All replicas in the ISR, HW = LEO, equal batches on the disks, equal epochs, soon after the last heal.

    Called after the load has stopped; the waits count from the last heal.
    """
    assert run.healed_s is not None
    failures = []
    for topic in run.load.topics:
        try:
            # The comparison of the files is the test's own work and not counted: it comes after the wait for agreement.
            async with asyncio.timeout(SETTLE_S * 4):
                run.measured[f"records_{topic}"] = await assert_settled(run.probe, topic)
        except (AssertionError, TimeoutError) as error:
            failures.append(f"V2 {topic}: {error or 'the comparison of the logs did not end'}")
    return failures


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources of a process."""

    rss_kb: int
    files: int
    """Open files that are no segment of a log."""
    threads: int


def footprints(cluster: Cluster) -> dict[str, Footprint]:
    """The footprint of every running process, by its name."""
    return {service.name: _footprint(service.pid) for service in cluster.services if service.pid is not None}


def _footprint(pid: int) -> Footprint:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    files = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        files += not target.endswith((".log", ".index", ".timeindex"))
    return Footprint(int(status["VmRSS"].split()[0]), files, int(status["Threads"]))


def v3_processes(
    run: Run, warm: Mapping[str, Footprint], now: Mapping[str, Footprint], stopped: list[str]
) -> list[str]:
    """No exit except injected or declared ones, no assertion, no resource that grew and stayed."""
    run.cluster.notice_ends()
    declared = {int(code) for code in run.scenario.declared_ends}
    failures = [f"V3 {end.sentence}" for end in run.cluster.ends if end.code not in declared]
    failures += [f"V3 at the stop: {sentence}" for sentence in stopped]
    expected = [*(ExitCode(code).name for code in declared), *run.scenario.declared_alarms]
    found = [line for line in alarms(run.cluster) if not any(words in line for words in expected)]
    failures += [f"V3 alarm: {line}" for line in found[:5]]
    for name, before in warm.items():
        after = now.get(name)
        if after is None:
            continue
        if after.rss_kb > max(2 * before.rss_kb, before.rss_kb + _RSS_SLACK_KB):
            failures.append(f"V3 {name} holds {after.rss_kb >> 10} MiB, warm it held {before.rss_kb >> 10} MiB")
        if after.files > before.files + _FDS_SLACK:
            failures.append(f"V3 {name} has {after.files} open files, warm it had {before.files}")
        if after.threads > before.threads + _THREADS_SLACK:
            failures.append(f"V3 {name} has {after.threads} threads, warm it had {before.threads}")
    return failures


async def v3_nothing_waits(run: Run) -> list[str]:
    """No producer waits for its commit: after the load every HW is its LEO, so no purgatory holds anything."""
    failures = []
    for topic, partitions in run.load.topics.items():
        for index in range(partitions):
            led = await run.probe.described(topic, await run.leader(index, topic), index)
            if led.error_code or led.high_watermark != led.log_end_offset:
                failures.append(f"V3 {topic}-{index}: HW {led.high_watermark}, LEO {led.log_end_offset} without load")
    return failures


def v4_available(run: Run) -> list[str]:
    """After each fault that leaves enough replicas, the first acks=all OK of a later send arrives in time."""
    failures, gaps = [], []
    for expected in run.expected:
        gap_s, sentence = _judge(run, expected)
        gaps.append(gap_s)
        failures += [sentence] if sentence else []
    if gaps:
        run.measured["unavailable_max_s"] = round(max(gaps), 2)
        run.measured["unavailable_median_s"] = round(sorted(gaps)[len(gaps) // 2], 2)
        run.measured["unavailable_count"] = len(gaps)
    return failures


def _judge(run: Run, expected: Expected) -> tuple[float, str | None]:
    acks = run.load.acks_since(expected.since_s, clients=expected.clients)
    firsts = {index: acks[index][0] if acks[index] else float("inf") for index in expected.partitions}
    worst = max(firsts, key=lambda index: firsts[index])
    gap_s = firsts[worst] - expected.since_s
    if gap_s <= expected.within_s:
        return gap_s, None
    return gap_s, f"V4 {expected.why}: partition {worst} had no ack for {gap_s:.1f} s, {expected.within_s:g} s allowed"


def v5_real(run: Run) -> list[str]:
    """The faults had an effect; if not, the run proves nothing and is void."""
    return [
        f"V5 {name}: {run.counters[name]}, wanted at least {least}"
        for name, least in run.scenario.demands(run.form).items()
        if run.counters[name] < least
    ]
