"""What every service process of ours does around its work: loop, malloc, log lines, signals.

Invariant: one event loop per process; SIGTERM and SIGINT ask for a clean stop once, and a second one of them
ends the process at once.
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
    """Run ``main(stop_asked)`` on the fastest loop there is and return its exit code."""
    keep_large_buffers()
    configure_log_lines(log_format, log_level)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(_with_signals(main))


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop: uvloop's where it can be imported."""
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
# Decides when state that stays is taken out of the sight of the collector of garbage.
#
# A full collection visits every object that it knows, and one begins whenever the number of objects has grown by a
# quarter: on a node of ten thousand partitions it holds the event loop for 200 ms and more, just when a node's death
# has made it lead thousands of them. What is frozen is visited never again, and reference counts free it as before.
#
# Invariant: the size has grown by a tenth between two freezes, so a cycle that was garbage when one came, and is kept
# for that, is one of few: a process that serves ten thousand partitions has frozen at most sixty times.

LOOK_EVERY_S = 1.0

_LEAST_GROWTH = 100
"""Below this a full collection is not worth the trouble."""

_THRESHOLDS = (5_000, 10, 100)
"""New containers until the youngest generation is collected, and how many collections of one generation it takes for
the next. With Python's own 700, 10 and 10 a node that begins to lead thousands of partitions collects everything that
it just made several times over, for 100 ms each; at 5,000 a collection takes about a millisecond."""


def keep_what_is_loaded() -> None:
    """Let no collection of garbage look through what the start loaded: it stays for as long as the process does.

    Modules are a hundred thousand objects, twice as many with pyarrow as without, and a full collection would hold up
    the clients being served while it visits each of them.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


class LongLived:
    """``size`` counts what stays: logs and roles of a node, partitions of a controller."""

    def __init__(self, size: Callable[[], int], freeze: Callable[[], None] = gc.freeze) -> None:
        self._size = size
        self._freeze = freeze
        self._frozen = 0

    def look(self) -> None:
        """Freeze if there is a tenth more than when this was done last."""
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
# How another program on the machine distinguishes one of our processes from a later one with the same number.
#
# Invariant: a process id alone proves nothing; in a container every service is process 1. With the moment at which the
# kernel started it, it means one process and no other.

_STARTED_AT = 19
"""Place of `starttime` behind the name in /proc/PID/stat (proc(5), field 22)."""


def started_ticks(pid: int) -> int | None:
    """When the kernel started a process, in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may hold anything, including blanks and parentheses.
    return int(stat.rpartition(")")[2].split()[_STARTED_AT])


# ---- own_tasks
# Background tasks with an owner: all are ended by one call, and the first that fails ends the process.


class OwnTasks:
    """The tasks of one object. Needs a running loop."""

    def __init__(self, fail: Callable[[BaseException], object]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background; an exception that it ends with goes to ``fail``."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


# ---- open_file_limit
# How many descriptors a service may use: as many as the machine allows, not what a shell gives a program by default.
#
# Invariant: nothing of ours waits with `select`, for whose sake the soft limit is usually 1,024.


def raise_open_file_limit() -> int:
    """Raise this process's soft limit of open files to its hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
