"""When a log's bytes are made durable: one sync in a worker thread per commit the core asked for.

Invariant: a commit's event is raised only after its sync returned without error; at most one commit per log
is under way, so one sync serves every append that waited for it (M55).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter

from strandline.core.log.events import LogFlushed
from strandline.core.types import TopicPartition
from strandline.runtime.clock import Clock
from strandline.runtime.ports import FlushToken, Logs

Raise = Callable[[LogFlushed], None]
Fail = Callable[[BaseException], None]


class Flusher:
    """Group commit. ``step`` takes the completed commits, ``fail`` the first error, after which nothing is synced.

    ``observed`` is called with the seconds each sync took, including the wait for a thread.
    """

    def __init__(
        self,
        logs: Logs,
        step: Raise,
        fail: Fail,
        clock: Clock,
        *,
        threads: int = 4,
        observed: Callable[[float], None] | None = None,
    ) -> None:
        self._logs = logs
        self._step = step
        self._fail = fail
        self._clock = clock
        self._observed = observed
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fsync")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked_at_ms: int | None = None
        self._under_way: dict[TopicPartition, int] = {}
        self._again: set[TopicPartition] = set()
        self._idle = asyncio.Event()
        self.commits = 0
        self.syncs = 0
        """Of the commits, those that had anything to sync."""

    def flush(self, tp: TopicPartition) -> LogFlushed | None:
        """Issue a commit. A log with nothing to sync is durable as it is: its event is returned at once."""
        if tp in self._under_way:
            # Only a stop asks while a commit is under way; what was appended since needs one of its own.
            self._again.add(tp)
            return None
        token = self._logs.issue_flush(tp)
        self.commits += 1
        if not token.has_work:
            return LogFlushed(self._clock(), tp, token.leo_at_issue)
        self.syncs += 1
        self._under_way[tp] = self._clock()
        if self._loop is None:
            # Asked once: in CPython 3.11 every question costs a system call (getpid).
            self._loop = asyncio.get_running_loop()
        done = self._loop.run_in_executor(self._pool, token.sync)
        if self._observed is not None:
            done.add_done_callback(partial(self._measured, self._observed, perf_counter()))
        done.add_done_callback(partial(self._finished, tp, token))
        return None

    def _measured(self, observed: Callable[[float], None], began_s: float, _: object) -> None:
        observed(perf_counter() - began_s)

    def _finished(self, tp: TopicPartition, token: FlushToken, finished: asyncio.Future[None]) -> None:
        self._under_way.pop(tp, None)
        self._idle.set()
        if finished.cancelled():
            return
        error = finished.exception()
        if error is not None:
            self._fail(error)
            return
        self._step(LogFlushed(self._clock(), tp, token.leo_at_issue))
        if tp in self._again:
            self._again.discard(tp)
            event = self.flush(tp)
            if event is not None:
                self._step(event)

    def oldest_ms(self, now_ms: int, longest_look_ms: int) -> int:
        """Age of the longest sync under way, 0 without one (M59).

        Asked now and then. A silence between two askings beyond ``longest_look_ms`` was a pause of this very
        process (SIGSTOP, a frozen machine), in which no disk could answer; it is no age.
        """
        paused_ms = max(0, now_ms - self._looked_at_ms - longest_look_ms) if self._looked_at_ms is not None else 0
        self._looked_at_ms = now_ms
        for tp, started in self._under_way.items():
            self._under_way[tp] = min(now_ms, started + paused_ms)
        return max((now_ms - started for started in self._under_way.values()), default=0)

    async def until_idle(self) -> None:
        """Return when no sync is under way."""
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()

    def close(self) -> None:
        """Let no new sync begin; those under way end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
