"""How offsets are found by time: one partition after another, records read beside the event loop.

Invariant: a call holds one batch at a time and ends after ``MOST_MS``, however many partitions it names; a call whose
caller went away is not worked on any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.core.effects import AnswerOffsets
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import OffsetAnswer
from strandline.runtime.aside import Aside
from strandline.runtime.calls import Calls
from strandline.runtime.clock import Clock
from strandline.runtime.ports import Logs

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
