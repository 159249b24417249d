"""Runs a service of ours, and writes down when its event loop was held up: `python loop_stalls.py MODULE FLAGS`.

A timer that is due every 5 ms is late by as long as the loop was busy. Two parts of the lateness are given with it: the
processor time that the loop's thread used, and how long the kernel let it wait for a processor that others had.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from strandline.runtime import process
from strandline.runtime.exit_codes import ExitCode

FOLDER = "BENCH_STALLS"
"""The variable that names where the files of all processes go."""
EVERY_S, LEAST_S = 0.005, 0.010


class Stall(NamedTuple):
    """A loop could not act for ``late_ms`` until ``at_s`` (monotonic).

    Its thread used a processor for ``busy_ms`` of them, and was ready to for another ``queued_ms``.
    """

    at_s: float
    late_ms: float
    busy_ms: float
    queued_ms: float

    def __str__(self) -> str:
        waited = f"{self.busy_ms:.0f} on a processor, {self.queued_ms:.0f} waiting for one"
        return f"{self.late_ms:.0f} ms: {waited}"


class Lateness:
    """The timer of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, found: TextIO) -> None:
        self._loop = loop
        self._found = found
        # Kept open: the kernel writes the figures of this thread into it at each reading.
        self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._again()

    def _queued_ms(self) -> float:
        """For how long this thread has waited for a processor in all."""
        _, waited_ns, _ = os.pread(self._schedule, 100, 0).split()
        return int(waited_ns) / 1e6

    def _again(self) -> None:
        self._due_s, self._busy_s = time.monotonic() + EVERY_S, time.thread_time()
        self._waited_ms = self._queued_ms()
        self._loop.call_later(EVERY_S, self._look)

    def _look(self) -> None:
        now_s = time.monotonic()
        late_s = now_s - self._due_s
        if late_s >= LEAST_S:
            busy_s = time.thread_time() - self._busy_s
            queued_ms = self._queued_ms() - self._waited_ms
            self._found.write(f"{now_s:.6f} {1_000 * late_s:.3f} {1_000 * busy_s:.3f} {queued_ms:.3f}\n")
        self._again()


def longest_stall(folder: Path, pid: int, since_s: float) -> Stall:
    """The longest stall of a process's loop since a moment (monotonic)."""
    lines = (folder / f"{pid}.txt").read_text().splitlines()
    found = [stall for line in lines if (stall := Stall(*map(float, line.split()))).at_s >= since_s]
    return max(found, key=lambda stall: stall.late_ms, default=Stall(since_s, 0.0, 0.0, 0.0))


def main() -> None:
    """Run the service with the timer in its loop."""
    found = (Path(os.environ[FOLDER]) / f"{os.getpid()}.txt").open("w", buffering=1)
    run_service = process.run_service

    def watched(main: Callable[[asyncio.Event], Awaitable[ExitCode]], **form: Any) -> ExitCode:
        async def with_timer(stop_asked: asyncio.Event) -> ExitCode:
            Lateness(asyncio.get_running_loop(), found)
            return await main(stop_asked)

        return run_service(with_timer, **form)

    # Before the service's own module takes it from there.
    process.run_service = watched
    module, *flags = sys.argv[1:]
    sys.argv = [module, *flags]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
