"""Measures how one partition serves 1, 10 and 50 consumers at its tail: latency from sending to receiving, and CPU.

The load is steady, below what the machine can do: records of 64 KiB, one at a time, so that the latency is not the
length of a queue. Up to ten consumers share a client process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench import Bench, Row
from client_records import wait_in_sync
from machine_time import Watch
from parties import HERE, RUN_GRACE_S, Strandline, run_script
from percentiles import latencies_ms
from plan import Plan

PER_SECOND, SIZE_BYTES = 20, 64 << 10
READERS_PER_PROCESS = 10
_STARTING_S, _PER_MEASUREMENT_S = 10, 5


def rows(bench: Bench) -> Iterator[Row]:
    """The sizes take turns in every round."""
    party = Strandline(bench.servers.cached, "stream", "page-cache")
    for number in range(bench.plan.rounds):
        for readers in bench.plan.readers:
            yield from bench.row(
                lambda readers=readers: measured(party, bench.servers.cached.bootstrap, readers, bench.plan.fan_out_s),
                round=number,
                consumers=readers,
            )


def expected_s(plan: Plan) -> float:
    """Seconds."""
    return plan.rounds * len(plan.readers) * (plan.fan_out_s + _PER_MEASUREMENT_S) + _STARTING_S


def measured(party: Strandline, bootstrap: str, readers: int, run_s: float) -> Mapping[str, Any]:
    """One measurement on a topic of its own."""
    count = max(1, round(run_s * PER_SECOND))
    with party.topic() as topic:
        wait_in_sync(bootstrap, topic)
        with reading(bootstrap, topic, readers, count) as processes:
            clients = {f"consumers{n}": process.pid for n, process in enumerate(processes)}
            watch = Watch({**party.pids_of(topic), **clients})
            asked = (bootstrap, topic, count, PER_SECOND, SIZE_BYTES)
            sent = run_script("paced_producer.py", *asked, limit_s=run_s + RUN_GRACE_S)
            ages: list[float] = [age for process in processes for age in json.loads(line_of(process))]
            spent = watch.end()
    megabytes = len(ages) * SIZE_BYTES / 1e6
    return {
        "records_per_s": sent["records_per_s"],
        "received": len(ages),
        "delivered_megabytes_per_s": round(float(str(sent["records_per_s"])) * readers * SIZE_BYTES / 1e6, 1),
        **latencies_ms(ages),
        "cpu_ms_per_mb": spent.per_mb(megabytes),
        **spent.machine(),
    }


@contextmanager
def reading(bootstrap: str, topic: str, readers: int, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """The consumers' processes, each at the end of the topic."""
    script, limit_s = str(HERE / "fan_out_readers.py"), 2 * RUN_GRACE_S
    shares = [min(READERS_PER_PROCESS, readers - n) for n in range(0, readers, READERS_PER_PROCESS)]
    started: list[subprocess.Popen[str]] = []
    try:
        for share in shares:
            command = [sys.executable, script, bootstrap, topic, *map(str, (share, count, limit_s))]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True))
        for process in started:
            line_of(process)
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """What it says next: "ready", then its ages. It has a limit of its own; then its end closes the pipe."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError("a process of consumers ended too early")
    return line
