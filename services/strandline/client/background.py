"""Owns the client's tasks and timers: one owner per producer, consumer or admin, which ends them all.

Invariants: nothing outlives its owner's `close`. An unexpected error is never lost: the next call to the client raises
it. Work that is cancelled from outside, for example with all tasks of the loop, restarts with the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Protocol

import grpc

from strandline.client.errors import ClientClosed, WrongLoop
from strandline.client.log import log

Work = Callable[[], Coroutine[object, object, None]]


@dataclass(slots=True, eq=False)
class Job:
    """Work in a task of its own."""

    work: Work
    name: str
    once: bool
    """Whether it is not restarted when it is cancelled from outside."""
    is_cancelled: bool = False
    has_begun: bool = False
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Do the work."""
        self.has_begun = True
        await self.work()

    async def cancel(self) -> None:
        """End it permanently."""
        self.is_cancelled = True
        if self.task is not None:
            await _end([self.task])


class Background:
    """Tasks and timers that live as long as their owner."""

    def __init__(self, on_trouble: Callable[[BaseException | None], None] = lambda _: None) -> None:
        """``on_trouble`` is called with the first unexpected error, and with None when work was cancelled from outside,
        which `check` restarts."""
        self._tasks: dict[asyncio.Task[None], Job] = {}
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._cut_off: list[Job] = []
        self._failure: BaseException | None = None
        self.is_closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of the first task; None before."""
        self._thread = threading.current_thread()
        self._thread_id = get_ident()
        self._on_trouble = on_trouble

    def start(self, work: Work, name: str, *, once: bool = False) -> Job:
        """Run ``work`` until it ends or the owner closes. ``once``: do not restart it if it is cancelled."""
        if self.loop is None:
            self.loop, self._thread = asyncio.get_running_loop(), threading.current_thread()
            self._thread_id = get_ident()
        job = Job(work, name, once)
        self._begin(job)
        return job

    def _begin(self, job: Job) -> None:
        assert self.loop is not None, "the first job sets it"
        job.has_begun = False
        job.task = self.loop.create_task(job.run(), name=job.name)
        self._tasks[job.task] = job
        job.task.add_done_callback(self._ended)

    def every(self, period_ms: float, act: Callable[[], None]) -> None:
        """Call ``act`` at an interval. It is not a task, so that a cancellation of all tasks does not end it."""
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._timers[act] = loop.call_later(period_ms / 1000, due)
            try:
                act()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
                self._failed(error)

        self._timers[act] = loop.call_later(period_ms / 1000, due)

    def is_here(self) -> bool:
        """Whether the caller runs in the loop of the tasks. Cheap enough for every record: asyncio's own lookup of the
        running loop compares process ids, which is a system call."""
        return self.loop is not None and get_ident() == self._thread_id and self.loop.is_running()

    def check_loop(self) -> None:
        """Raise `WrongLoop` if the client was started in another loop. While its own loop is not running, its thread
        may call functions that do not wait."""
        loop, running = self.loop, asyncio._get_running_loop()
        if running is loop or loop is None or self.is_closed:
            return
        if running is not None or loop.is_closed() or threading.current_thread() is not self._thread:
            raise WrongLoop(self._thread.name, loop)

    def check(self) -> None:
        """As `check_loop`; raise the error that ended a task, if one did; restart cancelled work."""
        if self._failure is not None:
            raise RuntimeError(f"a background task of the client failed: {self._failure!r}") from self._failure
        self.check_loop()
        cut_off, self._cut_off = self._cut_off, []
        for job in cut_off:
            if not job.is_cancelled:
                self._begin(job)

    async def close(self) -> None:
        """Cancel every task and wait for its end.

        Raises:
            RuntimeError: a task had failed for an unexpected reason; it is the cause. WrongLoop: as `check_loop`.
        """
        self.check_loop()
        self.is_closed = True
        self._cut_off.clear()
        for timer in self._timers.values():
            timer.cancel()
        try:
            # After one turn of the loop each of them has begun, so it can report what became of its work.
            await asyncio.sleep(0)
        finally:
            # Called in one of these tasks, for example by a function of the user, it would wait for itself.
            await _end([task for task in self._tasks if task is not asyncio.current_task()])
        self.check()

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._tasks.pop(task)
        if not task.cancelled():
            error = task.exception()
            # One that goes on after its cancellation finds the client closed.
            if error is not None and not (self.is_closed and isinstance(error, ClientClosed)):
                self._failed(error)
        elif self.is_closed or job.is_cancelled:
            return
        elif not job.has_begun:
            # Cancelled before its first step, so it has done and reported nothing.
            self._begin(job)
        elif not job.once:
            # Begun again by the next call and not here: the loop may be ending, which cancels all of its tasks.
            self._cut_off.append(job)
            self._on_trouble(None)

    def _failed(self, error: BaseException) -> None:
        # The first error is the cause; later ones may only follow from it.
        if self._failure is None:
            self._failure = error
            self._on_trouble(error)


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel these until they end: gRPC raises the end of a call instead, if that comes in the same moment."""
    attempts = 25
    while tasks and attempts:
        attempts -= 1
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=0.2)
    for task in tasks:
        log.warning("'%s' does not end when it is cancelled, and is left behind", task.get_name())


# ---- connecting
# Connects a channel before anything is sent on it, and computes what is left of a call's time then.
#
# Invariant: "not connected" means that not a byte was sent; for a produce that is a definite outcome.

_SECOND_CHANCE_MS = 250
"""A channel goes on reporting an old failure while it tries again; so long it may succeed after all."""


async def is_connected(channel: grpc.aio.Channel, deadline_ms: int) -> bool:
    """Connect if necessary; False when the address refuses, or at the deadline."""
    if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        deadline_ms = min(deadline_ms, _SECOND_CHANCE_MS)
    try:
        async with asyncio.timeout(deadline_ms / 1000):
            return await _is_ready(channel)
    except TimeoutError:
        return False


async def _is_ready(channel: grpc.aio.Channel) -> bool:
    has_failed_before = channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.SHUTDOWN:
            return False
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not has_failed_before:
            return False
        await channel.wait_for_state_change(state)
    return True


def countdown(deadline_ms: int) -> Callable[[], int]:
    """What is left of a call's time, in ms, for each of its steps; 1 once it is over, with which each step fails."""
    ends_s = time.monotonic() + deadline_ms / 1000
    return lambda: max(1, int((ends_s - time.monotonic()) * 1000))


# ---- unclosed
# Producers that were not closed: what they hold when they, or the process, end is said, and sent if it still can be.
#
# Invariant: a record that `send` took is never given up without a word: a line of the log and a `ResourceWarning`.


class Unclosed(Protocol):
    """A producer, as far as its end is concerned."""

    def _give_up(self) -> int:
        """Forget what it holds; returns how many records that were, 0 for one that was closed."""

    async def flush(self, timeout_ms: int) -> Any:
        """Send what it holds."""


# Weak, or a producer that is dropped would live on here and never be reported.
STARTED: weakref.WeakSet[Unclosed] = weakref.WeakSet()
# Those of a parent are the parent's to send.
os.register_at_fork(after_in_child=STARTED.clear)


def report(producer: Unclosed) -> None:
    """It is over: say how many records it still held, if it was not closed."""
    count = producer._give_up()
    if count:
        message = f"{count} records are given up: their producer was not closed; use `with`, or call close() or flush()"
        log.warning("%s", message)
        warnings.warn(message, ResourceWarning, stacklevel=2)


async def send_what_is_held(timeout_ms: int) -> None:
    """The process ends, and this loop can still run: send what its producers hold."""
    await asyncio.gather(*(producer.flush(timeout_ms) for producer in list(STARTED)), return_exceptions=True)


# Registered by the import, so it runs after the exit of the thread of blocking clients, which sends what it still can.
@atexit.register
def _report_all() -> None:
    for producer in list(STARTED):
        report(producer)


# ---- pause
# How long a node has asked this client to send nothing more of a kind, because of a quota (KIP-219).
#
# Invariant: who waits for the end of a pause is never muted by the node: it begins the same wait a little earlier.


class Pause:
    """The pause of one link."""

    def __init__(self) -> None:
        self.until_ms = 0.0
        """On the clock of `time.monotonic`."""

    def asked_for(self, throttle_time_ms: int) -> None:
        """An answer asks for so much; 0: for nothing."""
        if throttle_time_ms:
            # Not added: an answer names the rest of the mute, and not the debt of its own request (ADR 34).
            self.until_ms = time.monotonic() * 1_000 + throttle_time_ms

    async def over(self) -> None:
        """Wait for its end."""
        while (left_ms := self.until_ms - time.monotonic() * 1_000) > 0:  # noqa: ASYNC110 - for time, and it grows
            await asyncio.sleep(left_ms / 1_000)
