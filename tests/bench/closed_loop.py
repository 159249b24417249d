"""Measures a closed loop: W requests outstanding, each answered before the next of its slot is sent.

Open loops measure the length of their own queue; this one measures the system. Times are of one run only:
compare them with what was interleaved in the same run, never across runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from machine_time import Watch

from strandline.cli.perf.measure import percentiles_ms

Send = Callable[[], Awaitable[None]]


async def show_loop(send: Send, size_bytes: int, numbers: Sequence[str], pids: Mapping[str, int]) -> None:
    """Run a closed loop, and print its figures as one JSON line.

    Args:
        send: sends one request of ``size_bytes`` and waits for its answer.
        numbers: the window, and for how many seconds it runs unmeasured and measured, as on the command line.
        pids: of the servers, by role; CPU in ms per MB acknowledged is charged to them and to this process.
    """
    window, (warm_s, run_s) = int(numbers[0]), map(float, numbers[1:3])
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
        return Watch({**pids, "client": os.getpid()})

    marking = asyncio.create_task(mark())
    await asyncio.gather(*(slot() for _ in range(window)))
    spent = (await marking).end()
    percentiles = percentiles_ms(latencies)
    times = {f"{name}_ms": percentiles[name] for name in ("p50", "p99", "p999")}
    figures = {**times, "requests": len(latencies), **spent.figures(len(latencies) * size_bytes / 1e6)}
    print(json.dumps(figures), flush=True)


def pids_of(text: str) -> dict[str, int]:
    """`name:pid,...` of the command line."""
    return {name: int(pid) for name, pid in (pair.split(":") for pair in text.split(","))}
