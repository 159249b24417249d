"""Who owns the client's tasks: one owner per producer, consumer or admin, which ends them all.

Invariant: no task outlives its owner's `close`, and an unexpected error in one is never lost: the next call to the
client raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


class Background:
    """Tasks that live as long as their owner."""

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        """``on_failure`` is called once, with the first unexpected error."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._on_failure = on_failure

    def start(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run ``work`` until it ends or the owner closes."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def check(self) -> None:
        """Raise the error that ended a task, if one did."""
        if self._failure is not None:
            raise RuntimeError("a background task of the client failed") from self._failure

    async def close(self) -> None:
        """Cancel every task and wait for its end.

        Raises:
            RuntimeError: a task had failed for a reason nobody expected; it is the cause.
        """
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.check()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self._failure is None:
            self._failure = error
            if self._on_failure is not None:
                self._on_failure(error)
