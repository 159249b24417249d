"""Measures a closed loop: W requests outstanding, each answered before the next of its slot is sent.

Open loops measure the length of their own queue; this one measures the system. Times are of one run only:
compare them with what was interleaved in the same run, never across runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass

from machine_time import Watch
from percentiles import latencies_ms

Send = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One measurement. CPU is of all threads, in ms per MB acknowledged; RSS in MiB at the end."""

    megabytes_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    requests: int
    cpu_ms_per_mb: Mapping[str, float]
    rss_mib: Mapping[str, float]
    steal_percent: float
    others_percent: float

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


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

    async def mark() -> Watch:
        await asyncio.sleep(warm_s)
        return Watch(pids)

    marking = asyncio.create_task(mark())
    await asyncio.gather(*(slot() for _ in range(window)))
    spent = (await marking).end()
    megabytes = len(latencies) * size_bytes / 1e6
    times = latencies_ms(latencies)
    return Figures(
        megabytes_per_s=round(megabytes / spent.elapsed_s, 1),
        p50_ms=times["p50_ms"],
        p99_ms=times["p99_ms"],
        p999_ms=times["p999_ms"],
        requests=len(latencies),
        cpu_ms_per_mb=spent.per_mb(megabytes),
        rss_mib=spent.rss_mib,
        steal_percent=spent.steal_percent,
        others_percent=spent.others_percent,
    )
