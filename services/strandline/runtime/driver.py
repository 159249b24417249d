"""The order of execution in a process: one event at a time, its effects in order, then the next event.

Invariant: the effects of a step are performed completely, in list order, before anything else is stepped; a follow-up
event is stepped right after the effects that caused it. The first failure ends the process: a failed effect is never
retried and its call never answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from strandline.core.errors import Refusal, Refused
from strandline.core.log.events import CallGone, Ticked
from strandline.runtime.calls import Calls
from strandline.runtime.clock import Clock, monotonic_ms
from strandline.runtime.exit_codes import ExitCode, stop_process
from strandline.runtime.log_performers import Perform
from strandline.runtime.ports import Steps

Stop = Callable[[ExitCode, str], NoReturn]
_Answer = TypeVar("_Answer")
_Core = TypeVar("_Core", bound=Steps)


REST_MS = 250
"""Longest pause between two ticks when nothing is due; the core's periodic reports may be late by this much."""


class DriverFailed(Exception):
    """The process is ending; seen only in tests, which replace ``stop``."""


class Driver(Generic[_Core]):
    """Steps a core. RPC handlers call it directly, without a queue, another task or a thread in between.

    ``tick`` makes the event that advances time, ``gone`` the event that reports a caller that left; with None for
    ``gone`` a call is carried out even if its caller leaves.
    """

    def __init__(
        self,
        core: _Core,
        *,
        calls: Calls | None = None,
        clock: Clock = monotonic_ms,
        fatal: Mapping[type[BaseException], ExitCode] | None = None,
        stop: Stop = stop_process,
        tick: Callable[[int], Any] = Ticked,
        gone: Callable[[int, int], Any] | None = CallGone,
    ) -> None:
        self.core = core
        self._tick = tick
        self._gone = gone
        self.calls = Calls() if calls is None else calls
        self.clock = clock
        self._fatal: dict[type[BaseException], ExitCode] = {
            AssertionError: ExitCode.INVARIANT_BROKEN,
            Halted: ExitCode.FENCED,
            **(fatal or {}),
        }
        self._stop = stop
        self._perform: Mapping[type[object], Perform] = {}
        self._end_step: Callable[[], None] = lambda: None
        self.unclaimed: Callable[[Any], None] = lambda _answer: None
        self._stepping = False
        self._failed = False
        self._room: list[asyncio.Future[None]] = []
        self._resting: asyncio.Event | None = None

    def attach(self, table: Mapping[type[object], Perform], end_step: Callable[[], None] | None = None) -> None:
        """Set the performers, once, after the driver was made, because they need the driver.

        ``end_step`` is called after each event and all its follow-ups.
        """
        self._perform = table
        if end_step is not None:
            self._end_step = end_step

    def step(self, event: Any) -> None:
        """Step an event, perform its effects, and step the events that follow from them."""
        assert not self._stepping, f"{event} arrived inside a step"
        if self._failed:
            raise DriverFailed
        self._stepping = True
        try:
            self._step(event)
            self._end_step()
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._stepping = False
        if self._room and not self.core.purgatory_full:
            self._make_room()
        if self._resting is not None:
            self._resting.set()

    def _step(self, event: Any) -> None:
        for follow_up in self.carry_out(self.core.step(event)):
            self._step(follow_up)

    def carry_out(self, effects: Sequence[Any]) -> Sequence[Any]:
        """Perform effects in order; return the events that follow from them."""
        perform = self._perform
        follow_ups: Sequence[Any] = ()
        for effect in effects:
            follow_up = perform[type(effect)](effect)
            if follow_up is not None:
                follow_ups = (*follow_ups, follow_up)
        return follow_ups

    def fail(self, error: BaseException) -> NoReturn:
        """End the process with the exit code for this error and one line on stderr."""
        self._failed = True
        kinds = (code for kind, code in self._fatal.items() if isinstance(error, kind))
        sentence = str(error) or type(error).__name__
        code = next(kinds, ExitCode.FAILED)
        if code in (ExitCode.FAILED, ExitCode.INVARIANT_BROKEN):
            sentence = f"{type(error).__name__}: {sentence} (at {_origin(error)})"
        self._stop(code, sentence)

    async def ask(self, build: Callable[[int, int], Any], answer_type: type[_Answer], named: int = 1) -> _Answer:
        """Step the event that ``build(now_ms, request_id)`` makes, and wait for its only answer.

        ``named`` is the number of partitions in the call. When the caller is cancelled (it hung up, or its deadline
        passed), the core forgets the call at once.

        Raises:
            Refused: the call was refused as a whole.
        """
        answered: asyncio.Future[_Answer | Refusal] = asyncio.get_running_loop().create_future()

        def sink(answer: _Answer | Refusal) -> bool:
            if answered.done():
                # Its caller was cancelled, and has not had its turn yet.
                self.unclaimed(answer)
            else:
                answered.set_result(answer)
            return True

        request_id = self.calls.new_id()
        self.calls.wait(request_id, sink, named=named)
        self.step(build(self.clock(), request_id))
        try:
            answer = await answered
        except asyncio.CancelledError:
            if answered.done() and not answered.cancelled():
                # Its caller left between the answer and its own turn.
                self.unclaimed(answered.result())
            raise
        finally:
            self.gone(request_id)
        if isinstance(answer, Refusal):
            raise Refused.of(answer)
        assert isinstance(answer, answer_type), f"{answer!r} is no {answer_type.__name__}"
        return answer

    def gone(self, request_id: int) -> None:
        """Report that a caller left; the core gets an event only if the call still waits."""
        if self.calls.drop(request_id) and self._gone is not None and not self._failed:
            self.step(self._gone(self.clock(), request_id))

    async def wait_for_room(self) -> None:
        """Wait until the core accepts requests again; a stream waits here before it is read further."""
        while self.core.purgatory_full and not self._failed:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiting)
            await waiting

    def _make_room(self) -> None:
        waiting, self._room = self._room, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def tick_forever(self, every_ms: int = 50, due_ms: Callable[[], int] | None = None) -> None:
        """Advance the core's time until cancelled, so that deadlines expire.

        ``due_ms`` returns when the next deadline expires. Until then there is no tick, but for at most `REST_MS`; an
        event in between may set an earlier deadline, so after it the next tick comes ``every_ms`` after the last one.
        """
        while True:
            left_ms = 0 if due_ms is None else min(due_ms() - self.clock(), REST_MS)
            if left_ms > every_ms:
                await self._rest(every_ms / 1000, left_ms / 1000)
            else:
                await asyncio.sleep(every_ms / 1000)
            self.step(self._tick(self.clock()))

    async def _rest(self, least_s: float, most_s: float) -> None:
        self._resting = asyncio.Event()
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            async with asyncio.timeout(most_s):
                await self._resting.wait()
        except TimeoutError:
            return
        finally:
            self._resting = None
        await asyncio.sleep(began_s + least_s - now_s())


def _origin(error: BaseException) -> str:
    """The file, without folders, and the line that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown place"
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"


class Halted(Exception):
    """The core ordered this process to stop permanently."""
