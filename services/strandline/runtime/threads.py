"""Work beside the event loop: threads for records, lookups in files, and computations of coordinators.

How offsets are found by time: one partition after another, records read beside the event loop.

Invariant: a call holds one batch at a time and ends after ``MOST_MS``, however many partitions it names; a call whose
caller went away is not worked on any more.
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
# Where work runs that would block the event loop: in one thread, with a short queue.
#
# Invariant: what runs here touches neither the core nor a log, only what it was given; no more than ``waiting`` jobs
# wait, and one more is refused. The caller bounds how long its work takes.

_Found = TypeVar("_Found")
_Item = TypeVar("_Item")

_ITEMS_IN_A_ROW = 128
"""About a fifth of a millisecond of work on records."""


class Aside:
    """One thread for work of one kind, named after it."""

    def __init__(self, name: str, *, waiting: int = 64) -> None:
        self._name = name
        self._most = waiting
        self._jobs = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], _Found]) -> _Found:
        """What ``work`` returns or raises, worked out beside the event loop.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED, too many jobs wait already; nothing was begun.
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
        """Begin nothing more; a job under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class OwnThreads:
    """``count`` threads named after their work, begun with the first of it; the caller bounds how much waits.

    The future that an executor makes for each work costs as much as the whole hand-over of this, twice for every batch
    that is made durable. The threads are daemons: a disk that does not answer does not hold up the end of the process.
    """

    def __init__(self, name: str, count: int) -> None:
        self._names = [f"{name}_{number}" for number in range(count)]
        self._waiting: SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]] | None]
        self._waiting = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        """Do ``work``, and call ``ended`` on the loop that runs now."""
        if self._loop is None:
            # Asked once: in CPython 3.11 every question costs a system call (getpid).
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
            except BaseException as raised:  # noqa: BLE001  # `ended` gets it
                error = raised
            with suppress(RuntimeError):  # the loop is closed, and with it everything that waits
                loop.call_soon_threadsafe(ended, error)

    def close(self) -> None:
        """Begin nothing more; what is under way ends by itself."""
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._names:
            self._waiting.put(None)


def giving_way(items: Iterable[_Item]) -> Iterator[_Item]:
    """The same items. A thread that only computes lets others run every 5 ms; this lets them every few items."""
    for number, item in enumerate(items):
        if not number % _ITEMS_IN_A_ROW:
            sleep(0)
        yield item


MOST_MS = 2_000
"""How long one call may look; what is left then is refused."""

_TOO_LONG = Refusal(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    f"the times asked for before this one took {MOST_MS} ms to find; ask for fewer partitions at once",
)


class Lookups:
    """Calls of ListOffsets by time that are being answered. ``fail`` takes what ends the process."""

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
        """Answer the call as soon as everything it asks for is found."""
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
        """Cancel what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


# ---- coordinating
# What coordinators need done outside of a step: their logs read piece by piece, and long computations in a worker.
#
# Invariant: each effect ends in one event, stepped later and never within the step that asked: loading a log, and
# computing an assignment, leave the event loop to other callers in between (G7).


def leave_to_counts() -> None:
    """Take what was just loaded out of the collector's sight; reference counts free it as before.

    A full collection looks at every object of the state, and while it grows there is one again and again: with 100,000
    keys each holds the loop for 40 ms and more.
    """
    gc.freeze()


class Coordinating:
    """``step`` takes the events, ``fail`` the first error, after which the process ends."""

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
        """``loaded`` is called behind each piece of a log that was folded, ``read_s`` after it was read."""
        self._logs = logs
        self._step = step
        self._fail = fail
        self._clock = clock
        self._loaded = loaded
        self._read_s = read_s

    def read_log(self, effect: ReadCoordinatorLog) -> None:
        """Read a piece of a log now, and hand it over when the loop comes round."""
        chunk = self._logs.read(effect.tp, effect.start, effect.end, effect.max_bytes, at_least_one=True)
        asyncio.get_running_loop().call_later(self._read_s, self._hand_over, effect, chunk.payload, chunk.end)

    def _hand_over(self, effect: ReadCoordinatorLog, payload: Any, end: Any) -> None:
        event = CoordinatorLogRead(
            self._clock(), effect.tp, effect.leader_epoch, effect.start, end, payload, len(payload)
        )
        self._step(event)
        self._loaded()

    def compute(self, effect: Compute) -> None:
        """Run ``work`` in a thread."""
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
