"""Work outside the event loop: threads for records, lookups in files, and computations of coordinators.

Offsets are looked up by time for one partition after another; the records are read in a thread.

Invariant: a call holds one batch at a time and ends after ``MOST_MS``, however many partitions it names; work for a
caller that is gone stops.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from time import sleep
from typing import Any, TypeVar

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.log.effects import AnswerOffsets, Compute, ReadCoordinatorLog
from strandline.core.log.events import Computed, CoordinatorLogRead
from strandline.core.messages import OffsetAnswer
from strandline.runtime.calls import Calls
from strandline.runtime.clock import Clock
from strandline.runtime.ports import Logs

# ---- aside
# Runs work that would block the event loop in one thread, with a short queue.
#
# Invariant: a job touches neither the core nor a log, only its own data; at most ``waiting`` jobs wait, and one more is
# refused. The caller bounds the duration of its job.

_Found = TypeVar("_Found")
_Item = TypeVar("_Item")

_ITEMS_IN_A_ROW = 128
"""The number of records that take about a fifth of a millisecond."""


class Aside:
    """One thread for work of one kind, named after it."""

    def __init__(self, name: str, *, waiting: int = 64) -> None:
        self._name = name
        self._most = waiting
        self._jobs = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], _Found]) -> _Found:
        """Run ``work`` in the thread, and return or raise what it does.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED, too many jobs wait already; ``work`` was not run.
        """
        if self._jobs > self._most:
            message = f"{self._jobs} requests wait for this node's thread for {self._name}; back off and send again"
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message, Outcome.NOT_APPENDED)
        self._jobs += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._jobs -= 1

    def close(self) -> None:
        """Start no more jobs; one under way is not interrupted."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class OwnThreads:
    """``count`` threads named after their work, started with the first job; the caller bounds how many jobs wait.

    An executor would make a future for each job, which costs as much as a whole hand-over here, twice for every batch
    that is made durable. The threads are daemons, so that a disk that does not answer cannot delay the process's end.
    """

    def __init__(self, name: str, count: int) -> None:
        self._names = [f"{name}_{number}" for number in range(count)]
        self._waiting: SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]] | None]
        self._waiting = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        """Do ``work`` in a thread, then call ``ended`` on the running event loop, with the error or None."""
        if self._loop is None:
            # Looked up once, because in CPython 3.11 each lookup costs a system call (getpid).
            self._loop = asyncio.get_running_loop()
            for name in self._names:
                Thread(target=self._work, args=(self._loop,), name=name, daemon=True).start()
        self._waiting.put((work, ended))

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (found := self._waiting.get()) is not None:
            work, ended = found
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # noqa: BLE001  # passed to `ended`
                error = raised
            with suppress(RuntimeError):  # the loop is closed, and so is everything that waits for it
                loop.call_soon_threadsafe(ended, error)

    def close(self) -> None:
        """Start no more jobs; those under way are not interrupted."""
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._names:
            self._waiting.put(None)


def giving_way(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the same items, and let other threads run every few of them; by itself Python would do so every 5 ms."""
    for number, item in enumerate(items):
        if not number % _ITEMS_IN_A_ROW:
            sleep(0)
        yield item


MOST_MS = 2_000
"""Time limit for the lookups of one call; partitions not looked up by then are refused."""

_TOO_LONG = Refusal(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    f"the times asked for before this one took {MOST_MS} ms to find; ask for fewer partitions at once",
)


class Lookups:
    """Answers calls of ListOffsets by time. ``fail`` is called with an unexpected error, which ends the process."""

    def __init__(
        self, logs: Logs, calls: Calls, aside: Aside, clock: Clock, fail: Callable[[BaseException], None]
    ) -> None:
        self._logs = logs
        self._calls = calls
        self._aside = aside
        self._clock = clock
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, effect: AnswerOffsets) -> None:
        """Answer the call as soon as all its offsets are found."""
        task = asyncio.get_running_loop().create_task(self._answer(effect), name="offsets by time")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    async def _answer(self, effect: AnswerOffsets) -> None:
        until_ms = self._clock() + MOST_MS
        answers: list[OffsetAnswer] = []
        for answer in effect.answers:
            if self._calls.room_bytes(effect.request_id, 0) is None:
                return
            answers.append(answer if answer.lookup is None else await self._found(answer, until_ms))
        self._calls.answer(effect.request_id, tuple(answers))

    async def _found(self, answer: OffsetAnswer, until_ms: int) -> OffsetAnswer:
        if self._clock() >= until_ms:
            return OffsetAnswer(answer.tp, refusal=_TOO_LONG)
        try:
            return await self._aside.run(self._logs.look_up(answer))
        except Refused as error:
            return OffsetAnswer(answer.tp, refusal=error.refusal)

    async def close(self) -> None:
        """Cancel the lookups under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


# ---- coordinating
# What coordinators need outside a step: their logs read piece by piece, and long computations in a thread.
#
# Invariant: each effect ends in one event, stepped later and never within the step of the effect, so that loading a log
# and computing an assignment leave the event loop to other callers in between (G7).


def leave_to_counts() -> None:
    """Hide what was just loaded from the garbage collector; reference counts still free it.

    A full collection visits every object of the state, and growing state causes one after another: with 100,000 keys
    each blocks the event loop for 40 ms and more.
    """
    gc.freeze()


class Coordinating:
    """Performs coordinators' effects. ``step`` takes the events, ``fail`` the first error, which ends the process."""

    def __init__(
        self,
        logs: Logs,
        step: Callable[[Any], None],
        fail: Callable[[BaseException], None],
        clock: Clock,
        *,
        loaded: Callable[[], None] = lambda: None,
        read_s: float = 0,
    ) -> None:
        """``read_s`` after a piece of a log was read it is stepped, and then ``loaded`` is called."""
        self._logs = logs
        self._step = step
        self._fail = fail
        self._clock = clock
        self._loaded = loaded
        self._read_s = read_s

    def read_log(self, effect: ReadCoordinatorLog) -> None:
        """Read a piece of a log now, and pass it to the core in a later turn of the event loop."""
        chunk = self._logs.read(effect.tp, effect.start, effect.end, effect.max_bytes, at_least_one=True)
        asyncio.get_running_loop().call_later(self._read_s, self._hand_over, effect, chunk.payload, chunk.end)

    def _hand_over(self, effect: ReadCoordinatorLog, payload: Any, end: Any) -> None:
        event = CoordinatorLogRead(
            self._clock(), effect.tp, effect.leader_epoch, effect.start, end, payload, len(payload)
        )
        self._step(event)
        self._loaded()

    def compute(self, effect: Compute) -> None:
        """Run the effect's work in a thread, and pass the result to the core."""
        done = asyncio.get_running_loop().run_in_executor(None, effect.work)
        done.add_done_callback(partial(self._computed, effect))

    def _computed(self, effect: Compute, done: asyncio.Future[object]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._fail(error)
        else:
            self._step(Computed(self._clock(), effect.tp, effect.leader_epoch, done.result()))
