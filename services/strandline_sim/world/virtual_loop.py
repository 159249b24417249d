"""asyncio on virtual time, on which simulated processes run their tasks.

The services' own tasks (session, heartbeats, follower streams, outbox, drivers) run here unchanged; `asyncio.sleep`,
time-outs and new tasks are theirs, the time behind them is the `Timeline`'s, as each machine's own clock shows it.

Invariants: tasks run only inside `Life.enter`, which ends when nothing is ready any more, so a process acts at one
moment of the timeline; a life that was shut runs nothing again, and its tasks end in the order they began.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import Any

from strandline.core.errors import ErrorCode, Refused
from strandline_sim.world.clock import Clock, Timeline

_SWEEP_AT = 64


class ProcessEnded(BaseException):
    """The process that runs here has just ended; unwinds its stack."""


class _Handle:
    """A callback that waits (`asyncio.Handle` without the parts for debugging)."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        """Keep it from running."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled


class _Timer(_Handle):
    """A callback that waits for a time."""

    __slots__ = ("_when", "life")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], when: float, life: Life) -> None:
        super().__init__(callback, args, None)
        self._when = when
        self.life = life

    def when(self) -> float:
        """The time at which it is due, by the machine's own clock."""
        return self._when


class VirtualLoop:
    """The event loop of a world, as far as asyncio needs one; at any moment it belongs to one process or none."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.ready: deque[_Handle] = deque()
        self.life: Life | None = None
        self.failure: BaseException | None = None
        """The first unhandled error; `Life.enter` raises it."""
        # asyncio types a loop with far more methods than it uses.
        self.as_asyncio: Any = self

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the loop that asyncio finds while the timeline runs."""
        _set_running_loop(self.as_asyncio)
        try:
            yield
        finally:
            _set_running_loop(None)

    def broke(self, error: BaseException) -> None:
        """Keep the first unhandled error; errors that a process leaves behind when it ends do not count."""
        life = self.life
        if not isinstance(error, ProcessEnded) and not (life and life.is_ending) and self.failure is None:
            self.failure = error

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task of a controller; an error in it ends the run."""
        task = self.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ProcessEnded):
            self.failure = error

    @property
    def _life(self) -> Life:
        assert self.life is not None, "a process acts only inside its own entry"
        return self.life

    def time(self) -> float:
        """Seconds of the machine's own clock."""
        return self._life.clock.us() / 1e6

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether a process is at work at this moment."""
        return self.life is not None

    def is_closed(self) -> bool:
        """Never while the world is there."""
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> _Handle:
        """Run a callback before this entry ends."""
        handle = _Handle(callback, args, context)
        if self.life is not None:
            self.ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Timer:
        """Run a callback in ``delay`` seconds of the machine's own clock."""
        return self._plan(round(delay * 1e6), _Timer(callback, args, self.time() + delay, self._life))

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Timer:
        """Run a callback when the machine's own clock shows ``when``."""
        own_us = round(when * 1e6) - self._life.clock.us()
        return self._plan(own_us, _Timer(callback, args, when, self._life))

    def _plan(self, own_us: int, timer: _Timer) -> _Timer:
        life = timer.life
        if not life.is_ending:
            self.timeline.after(max(0, life.clock.world_us_of(own_us)), _due, timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self.as_asyncio)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        """Begin a task before this entry ends."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self.as_asyncio, name=name or "task")
        self._life.keep(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do work in a thread of this process; the machine decides how long it takes."""
        work = self._life.work
        assert work is not None, "this process has no threads"
        future = self.create_future()
        work(partial(func, *args) if args else func, future)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the first unhandled error."""
        error = context.get("exception")
        if error is not None and self.life is not None:
            self.broke(error)


class Life:
    """One process on a `VirtualLoop`.

    ``hand`` runs an action in the process: now, after a pause, or not at all. ``work`` carries out the work given to
    a thread and completes the future.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        clock: Clock,
        hand: Callable[..., None],
        work: Callable[[Callable[[], Any], asyncio.Future[Any]], None] | None = None,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.hand = hand
        self.work = work
        self.is_ending = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = _SWEEP_AT

    def enter(self, action: Callable[..., object], *given: Any) -> None:
        """Run an action and everything that becomes ready by it.

        Raises:
            BaseException: any error here, such as a broken invariant of the simulation.
        """
        loop = self.loop
        assert loop.life is None, "one process acts inside another's entry"
        loop.life = self
        ready = loop.ready
        try:
            action(*given)
        except BaseException as error:  # noqa: BLE001 - kept, and raised below
            loop.broke(error)
        while ready:
            handle = ready.popleft()
            if not handle.is_cancelled:
                context = handle.context
                try:
                    if context is None:
                        handle.callback(*handle.args)
                    else:
                        context.run(handle.callback, *handle.args)
                except BaseException as error:  # noqa: BLE001 - kept, and raised below
                    loop.broke(error)
        loop.life = None
        if loop.failure is not None:
            raise loop.failure

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a task of this process that began."""
        self._tasks.append(task)
        if self.is_ending:
            task.cancel()
        if len(self._tasks) >= self._sweep_at:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._tasks))

    def shut(self) -> None:
        """The process has ended: cancel its tasks, oldest first. They end in this entry, and none begins later."""
        self.is_ending = True
        if self.loop.life is self:
            self._cancel_all()
        else:
            self.enter(self._cancel_all)

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()


def _due(timer: _Timer) -> None:
    if not timer.is_cancelled:
        timer.life.hand(_fire, timer)


def _fire(timer: _Timer) -> None:
    # It may have been cancelled while the process was paused.
    if not timer.is_cancelled:
        timer.callback(*timer.args)


# ---- inbox
# Messages that have arrived on a stream and were not read yet, for the one task that reads them.


class Inbox:
    """Messages of one stream, in order, followed by its end."""

    __slots__ = ("_loop", "_messages", "_reader", "_reason")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._messages: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._reason = ""

    def put(self, message: Any) -> None:
        """A message arrived."""
        self._messages.append(message)
        self._wake()

    def end(self, reason: str) -> None:
        """The stream broke; what arrived before is read first."""
        self._reason = reason
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def next(self) -> Any:
        """The next message.

        Raises:
            Refused: NETWORK_EXCEPTION, the stream broke.
        """
        while not self._messages:
            if self._reason:
                raise Refused(ErrorCode.NETWORK_EXCEPTION, self._reason)
            self._reader = self._loop.create_future()
            await self._reader
        return self._messages.popleft()
