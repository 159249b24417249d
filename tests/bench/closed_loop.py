"""Measures a closed loop: W requests outstanding, each answered before the next of its slot is sent.

Open loops measure the length of their own queue; this one measures the system. Times are of one run only:
compare them with what was interleaved in the same run, never across runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass

import psutil

Send = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One measurement. CPU is of all threads, in ms per MB acknowledged; RSS in MiB at the end."""

    megabytes_per_s: float
    p50_ms: float
    p99_ms: float
    requests: int
    cpu_ms_per_mb: Mapping[str, float]
    rss_mib: Mapping[str, float]
    steal_percent: float

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def cpu_ms(pid: int) -> float:
    """User and system time a process has used, all threads."""
    spent = psutil.Process(pid).cpu_times()
    return (spent.user + spent.system) * 1_000


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    return psutil.Process(pid).memory_info().rss / (1 << 20)


def _steal() -> tuple[float, float]:
    spent = psutil.cpu_times()
    return spent.steal, sum(spent)


async def measure(
    send: Send, *, size_bytes: int, window: int, warm_s: float, run_s: float, pids: Mapping[str, int]
) -> Figures:
    """Run ``window`` slots for ``warm_s`` unmeasured and ``run_s`` measured seconds; CPU is charged to ``pids``."""
    loop = asyncio.get_running_loop()
    begin = loop.time() + warm_s
    end = begin + run_s
    latencies: list[float] = []

    async def slot() -> None:
        while True:
            started = time.perf_counter()
            if loop.time() >= end:
                return
            await send()
            if loop.time() >= begin:
                latencies.append(time.perf_counter() - started)

    async def mark() -> tuple[dict[str, int], tuple[int, int], float]:
        await asyncio.sleep(warm_s)
        return {name: cpu_ms(pid) for name, pid in pids.items()}, _steal(), time.perf_counter()

    marking = asyncio.create_task(mark())
    await asyncio.gather(*(slot() for _ in range(window)))
    used, (steal, total), started_at = await marking
    elapsed = time.perf_counter() - started_at
    steal_now, total_now = _steal()
    megabytes = len(latencies) * size_bytes / 1e6
    latencies.sort()
    return Figures(
        megabytes_per_s=round(megabytes / elapsed, 1),
        p50_ms=round(1e3 * latencies[len(latencies) // 2], 2),
        p99_ms=round(1e3 * latencies[int(len(latencies) * 0.99)], 2),
        requests=len(latencies),
        cpu_ms_per_mb={name: round((cpu_ms(pid) - used[name]) / megabytes, 2) for name, pid in pids.items()},
        rss_mib={name: round(rss_mib(pid), 1) for name, pid in pids.items()},
        steal_percent=round(100 * (steal_now - steal) / max(1, total_now - total), 2),
    )
