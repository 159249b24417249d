"""What a batch that is part of no transaction costs while a thousand transactions are open in its partitions, beside
what it costs while none is: in rounds by turns."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from machine_time import cpu_ms
from transaction_figures.against_plain import PARTITIONS, Pair, emptied
from transaction_figures.open_transactions import OpenTransactions

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin, NewRecord, Producer, encode_batch
from strandline.client.cluster.metadata import Cluster

TOPIC = "beside"
_BATCH = encode_batch([NewRecord(None, bytes(1_024), 1)] * 63)
_OUTSTANDING = 5
"""Batches on their way while processor time is measured. Counts are of one at a time: else batches share messages, and
how many do is chance."""
_PROBE_S = 10.0

Measure = Callable[[Producer], Awaitable[float]]
Rounds = Callable[[int, Measure], Awaitable[list[Pair]]]
"""Measures so many times, by turns."""


@asynccontextmanager
async def beside(cluster: LocalCluster, ids: int, settle_ms: int) -> AsyncIterator[Rounds]:
    """Measures by turns: with no transaction open (`Pair.plain`), and with ``ids`` (`Pair.transactional`).

    Nothing is measured for ``settle_ms`` after transactions began or ended: replicas and coordinators then still do
    what that left them to do.
    """
    view = Cluster(cluster.bootstrap)
    await view.start()
    try:
        async with Admin(cluster.bootstrap, timeout_ms=60_000) as admin, Producer(cluster.bootstrap) as producer:
            await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            crowd = OpenTransactions(view, TOPIC, PARTITIONS, [f"open-{number}" for number in range(ids)])
            await crowd.begin()
            # Once for nothing: the first transactions have coordinators and leaders make what later ones find.
            await crowd.open()
            await crowd.end()
            await asyncio.sleep(settle_ms / 1000)

            async def rounds(count: int, measure: Measure) -> list[Pair]:
                await measure(producer)
                found: list[Pair] = []
                for number in range(count):
                    found.append(await _round(crowd, number, settle_ms, lambda: measure(producer)))
                    if number % 2 == 1:
                        await emptied(admin, TOPIC, PARTITIONS)
                if count % 2 == 1:
                    await crowd.end()
                return found

            yield rounds
    finally:
        await view.close()


async def _round(crowd: OpenTransactions, number: int, settle_ms: int, measure: Callable[[], Awaitable[float]]) -> Pair:
    """Even rounds end with all open and odd ones begin so, which saves every other opening."""
    if number % 2 == 0:
        none = await measure()
        await crowd.open()
        await asyncio.sleep(settle_ms / 1000)
        return Pair(none, await measure())
    opened = await measure()
    await crowd.end()
    await asyncio.sleep(settle_ms / 1000)
    return Pair(await measure(), opened)


def _pids(cluster: LocalCluster) -> list[int]:
    """Of the data nodes. The controller has no part in a batch."""
    return [service.pid for service in cluster.nodes.values() if service.pid is not None]


async def _send(producer: Producer, batches: int, outstanding: int) -> None:
    numbers = iter(range(batches))

    async def slot() -> None:
        for number in numbers:
            await (await producer.send_encoded(TOPIC, number % PARTITIONS, _BATCH))

    await asyncio.gather(*(slot() for _ in range(outstanding)))


def processor_time(cluster: LocalCluster, megabytes: int) -> Measure:
    """CPU ms/MB of the data nodes and of the client."""
    batches = max(1, megabytes * 1_000_000 // len(_BATCH))

    async def measure(producer: Producer) -> float:
        pids = [*_pids(cluster), os.getpid()]
        before = sum(map(cpu_ms, pids))
        await _send(producer, batches, _OUTSTANDING)
        return (sum(map(cpu_ms, pids)) - before) / (batches * len(_BATCH) / 1e6)

    return measure


class CannotCountError(Exception):
    """System calls cannot be counted here: perf is missing, or may not trace."""


def system_calls(cluster: LocalCluster, batches: int) -> Measure:
    """System calls of the data nodes per batch, counted by perf.

    Raises:
        CannotCountError: (of the measure) perf is missing, or may not trace.
    """

    async def measure(producer: Producer) -> float:
        pids = ",".join(map(str, _pids(cluster)))
        if shutil.which("perf") is None:
            raise CannotCountError("perf is not installed; on Debian: apt-get install linux-perf")
        # The control pipe answers once counting has begun.
        counting = await asyncio.create_subprocess_exec(
            *("perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", pids),
            *("--delay=-1", "--control=fd:0,1"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await _controlled(counting, b"enable\n")
            await _send(producer, batches, 1)
            await _controlled(counting, b"disable\n")
            counting.send_signal(signal.SIGINT)
            _, said = await counting.communicate()
        finally:
            if counting.returncode is None:
                counting.kill()
        return counted_calls(said.decode()) / batches

    return measure


async def _controlled(counting: asyncio.subprocess.Process, command: bytes) -> None:
    assert counting.stdin is not None, "it is a pipe"
    assert counting.stdout is not None, "it is a pipe"
    counting.stdin.write(command)
    if b"ack" not in await counting.stdout.readline():
        _, said = await counting.communicate()
        raise CannotCountError(f"perf cannot count system calls: {said.decode().strip()}")


def counted_calls(said: str) -> int:
    """What `perf stat -x,` counted of system calls.

    Raises:
        CannotCountError: it counted nothing.
    """
    for line in said.splitlines():
        count, *rest = line.split(",")
        if "raw_syscalls:sys_enter" in rest and count.isdigit():
            return int(count)
    raise CannotCountError(f"perf cannot count system calls: {said.strip()}")


def messages(cluster: LocalCluster, batches: int, folder: Path) -> Measure:
    """gRPC messages that the data nodes received and sent per batch, as `probe/sitecustomize.py` counts them
    into ``folder``.

    Raises:
        TimeoutError: (of the measure) a probe wrote nothing.
    """

    async def measure(producer: Producer) -> float:
        pids = _pids(cluster)
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        await _send(producer, batches, 1)
        for pid in pids:
            os.kill(pid, signal.SIGUSR2)
        found = [await asyncio.to_thread(_written, folder / f"{pid}.json") for pid in pids]
        return sum(map(_messages_in, found)) / batches

    return measure


def _written(path: Path) -> str:
    deadline = time.monotonic() + _PROBE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"a probe did not write {path} within {_PROBE_S} s")
        time.sleep(0.02)
    content = path.read_text()
    # So that the next round waits for its own.
    path.unlink()
    return content


def _messages_in(content: str) -> int:
    counts: dict[str, int] = json.loads(content)
    return sum(counts.get(f"gRPC messages {way}", 0) for way in ("in", "out"))


def ratios(pairs: Sequence[Pair]) -> list[float]:
    """Percent beyond what the same costs with no transaction open, by round."""
    return [100 * (pair.ratio - 1) for pair in pairs]
