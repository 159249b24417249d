"""What the looks of a collector cost a real broker of Kafka: its processor time with them against without, in turns.

One node, which leads all partitions. The questions are those of the collector, asked one after the other without a
pause, and their answers are not read: what a broker does by itself differs from window to window by more than a few
looks cost. Its processor time is what the kernel counts between both ends of a window.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from kept import DOCS, keep, measured_commit

from strandline_kafka.collector.connection import Connection, open_connection
from strandline_kafka.collector.requests import (
    AS_CONSUMER,
    AS_DEBUGGER,
    LATEST,
    LIST_OFFSETS,
    METADATA,
    list_offsets,
    metadata,
)
from strandline_kafka.collector.security import Security

if (_LIVE := str(Path(__file__).parents[1] / "kafka" / "live")) not in sys.path:
    # Where the real nodes are.
    sys.path.append(_LIVE)

from kafka_cluster import START_S, KafkaCluster, running

TOPICS = 10
MOST = 0.01
"""Of a core, which is what a collector may cost a broker (A25)."""
MACHINE = ("-Xms768m", "-Xmx768m", "-XX:+UseG1GC")
"""As Kafka's own scripts start it, but for the size; compiled in full, unlike the nodes of the tests."""
AT_REST, REST_S = 0.06, 3.0
"""A broker that uses less of a core during so long has ended its own work."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
"""Fields of /proc/PID/stat behind the name of the program."""


class Window(NamedTuple):
    """What was counted in one window."""

    cpu_s: float
    passed_s: float
    looks: int


class Cost(NamedTuple):
    """Windows that follow each other: without looks, with looks at logs that stand still, and at logs that grow."""

    without: Window
    quiet: Window
    busy: Window

    def a_look_ms(self, window: Window) -> float:
        """Processor time of a look at the broker, beyond what it would have used without."""
        own_s = self.without.cpu_s / self.without.passed_s * window.passed_s
        return 1_000 * (window.cpu_s - own_s) / window.looks


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[_UTIME]) + int(words[_STIME])) * TICK_S


async def create_topics(cluster: KafkaCluster, partitions: int) -> None:
    """All topics, as soon as the node serves clients."""
    end = time.monotonic() + START_S
    while True:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap, request_timeout_ms=120_000)
        try:
            await admin.start()
            await admin.create_topics([NewTopic(f"topic-{n}", partitions // TOPICS, 1) for n in range(TOPICS)])
        except KafkaError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.5)
        else:
            return
        finally:
            await admin.close()


async def look(connection: Connection, partitions: int, *, is_busy: bool) -> None:
    """The questions of one look; the leaders are asked again where their logs did not end at the HW."""
    led = {f"topic-{n}": range(partitions // TOPICS) for n in range(TOPICS)}
    await connection.ask(LIST_OFFSETS, list_offsets(AS_CONSUMER, LATEST, led))
    await connection.ask(LIST_OFFSETS, list_offsets(AS_DEBUGGER, LATEST, led))
    if is_busy:
        await connection.ask(LIST_OFFSETS, list_offsets(AS_CONSUMER, LATEST, led))
    await connection.ask(METADATA, metadata(None))


async def window_of(pid: int, connection: Connection, partitions: int, window_s: float, is_busy: bool | None) -> Window:
    """Count during a window; ``is_busy`` is None where nobody looks."""
    began, before, looks = time.monotonic(), processor_s(pid), 0
    while time.monotonic() - began < window_s:
        if is_busy is None:
            await asyncio.sleep(window_s)
        else:
            await look(connection, partitions, is_busy=is_busy)
            looks += 1
    return Window(processor_s(pid) - before, time.monotonic() - began, looks)


async def at_rest(pid: int) -> None:
    """Returns when a process uses little by itself."""
    async with asyncio.timeout(START_S):
        share = 1.0
        while share > AT_REST:
            before = processor_s(pid)
            await asyncio.sleep(REST_S)
            share = (processor_s(pid) - before) / REST_S


async def measured(cluster: KafkaCluster, *, partitions: int, window_s: float, turns: int) -> list[Cost]:
    """Some turns of windows, once the broker is warm."""
    (node,) = cluster.nodes
    pid = cluster.pid(node)
    await create_topics(cluster, partitions)
    host, _, port = cluster.bootstrap[0].partition(":")
    connection = await open_connection(host, int(port), Security())
    # The first questions are answered by code that is not compiled yet, and compiling goes on behind them.
    await window_of(pid, connection, partitions, 3 * window_s, is_busy=True)
    await at_rest(pid)
    costs = []
    for _ in range(turns):
        windows = [await window_of(pid, connection, partitions, window_s, is_busy) for is_busy in (None, False, True)]
        costs.append(cost := Cost(*windows))
        print(f"{cost.a_look_ms(cost.quiet):.1f} and {cost.a_look_ms(cost.busy):.1f} ms a look; {cost}", flush=True)
    connection.close()
    return costs


def _in_words(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def text_of(partitions: int, window_s: float, costs: Sequence[Cost]) -> str:
    """The measurement in sentences."""
    quiet = [cost.a_look_ms(cost.quiet) for cost in costs]
    busy = [cost.a_look_ms(cost.busy) for cost in costs]
    needed_ms = sorted(int(statistics.median(each) / MOST) for each in (quiet, busy))
    return "\n".join(
        [
            f"A real broker of Kafka 4.3.1 that leads {partitions:,} partitions spends {_in_words(quiet, '.1f')} ms of "
            f"processor time on a look if all logs end at their HW, and {_in_words(busy, '.1f')} ms if none does: "
            f"median and range of {len(costs)} turns of windows of {window_s:g} s, with looks one after the other and "
            "without.",
            f"So {MOST:.0%} of a core is a look every {needed_ms[0]:,} to {needed_ms[1]:,} ms; commit "
            f"{measured_commit()}.",
        ]
    )


def main() -> None:
    """Measure, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--window", type=float, default=10.0, help="seconds")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    asked = parser.parse_args()
    # Asked before anything else is done here.
    measured_commit()
    with tempfile.TemporaryDirectory() as name, running(Path(name), 1, machine=MACHINE) as cluster:
        work = measured(cluster, partitions=asked.partitions, window_s=asked.window, turns=asked.turns)
        costs = asyncio.run(work)
    text = text_of(asked.partitions, asked.window, costs)
    sys.stdout.write(text + "\n")
    keep("collector at a broker", text, asked.docs)


if __name__ == "__main__":
    main()
