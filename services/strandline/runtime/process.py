"""What every service process does around its work: event loop, malloc, log lines, signals.

Invariant: one event loop per process; the first SIGTERM or SIGINT asks for a clean stop, the second ends the process at
once.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from strandline.runtime.exit_codes import ExitCode, stop_process
from strandline.runtime.log_form import LogFormat, LogLevel, configure_log_lines
from strandline.runtime.malloc import keep_large_buffers


def run_service(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, ExitCode]],
    *,
    log_format: LogFormat = LogFormat.AUTO,
    log_level: LogLevel = LogLevel.INFO,
) -> ExitCode:
    """Run ``main(stop_asked)`` on the fastest available event loop and return its exit code."""
    keep_large_buffers()
    configure_log_lines(log_format, log_level)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(_with_signals(main))


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """The function that makes an event loop: uvloop's if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _with_signals(main: Callable[[asyncio.Event], Coroutine[Any, Any, ExitCode]]) -> ExitCode:
    stop_asked = asyncio.Event()

    def on_signal(name: str) -> None:
        if stop_asked.is_set():
            stop_process(ExitCode.STOP_TOOK_TOO_LONG, f"{name} again: ended without a clean stop")
        stop_asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    return await main(stop_asked)


# ---- long_lived
# Decides when long-lived state is frozen, that is, hidden from the garbage collector.
#
# A full collection visits every object that it knows, and starts whenever the number of objects has grown by a quarter.
# On a node of ten thousand partitions it blocks the event loop for 200 ms and more, just when another node's death has
# made it leader of thousands. Frozen objects are never visited again; reference counts still free them.
#
# Invariant: the size grows by a tenth between two freezes, so few garbage cycles are frozen and thereby leaked: a
# process that serves ten thousand partitions has frozen at most sixty times.

LOOK_EVERY_S = 1.0

_LEAST_GROWTH = 100
"""With less growth a freeze is not worth its cost."""

_THRESHOLDS = (5_000, 10, 100)
"""The number of new containers at which the youngest generation is collected, and of collections of one generation at
which the next is. With Python's 700, 10 and 10 a node that becomes leader of thousands of partitions collects all new
objects several times, for 100 ms each; at 5,000 a collection takes about a millisecond."""


def keep_what_is_loaded() -> None:
    """Freeze what the start has loaded, because it stays as long as the process runs.

    Modules are a hundred thousand objects, with pyarrow twice as many, and clients would have to wait while a full
    collection visits each of them.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


class LongLived:
    """Freezes state as it grows. ``size`` returns how much there is: a node's logs and roles, or partitions."""

    def __init__(self, size: Callable[[], int], freeze: Callable[[], None] = gc.freeze) -> None:
        self._size = size
        self._freeze = freeze
        self._frozen = 0

    def look(self) -> None:
        """Freeze if the size has grown by a tenth since the last freeze."""
        size = self._size()
        if size - self._frozen >= max(_LEAST_GROWTH, self._frozen // 10):
            self._frozen = size
            self._freeze()

    async def look_forever(self) -> None:
        """Look every second; until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)


# ---- incarnation
# How another program on the machine distinguishes a Strandline process from a later one with the same process id.
#
# Invariant: a process id alone proves nothing; in a container every service is process 1. Together with the time at
# which the kernel started the process it is unique.

_STARTED_AT = 19
"""Index of `starttime` among the fields after the name in /proc/PID/stat (proc(5), field 22)."""


def started_ticks(pid: int) -> int | None:
    """When the kernel started a process, in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may hold anything, including blanks and parentheses.
    return int(stat.rpartition(")")[2].split()[_STARTED_AT])


# ---- own_tasks
# Background tasks with an owner: one call cancels all of them, and the first that fails ends the process.


class OwnTasks:
    """The tasks of one object. Needs a running loop."""

    def __init__(self, fail: Callable[[BaseException], object]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background; ``fail`` is called with an exception that ends it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel the tasks that still run, and wait until they have ended."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


# ---- open_file_limit
# A service may use as many descriptors as the machine allows, more than a shell allows by default.
#
# Invariant: no part of Strandline uses `select`, because of which the soft limit is usually 1,024.


def raise_open_file_limit() -> int:
    """Raise this process's soft limit of open files to its hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
