"""Background tasks with an owner: all are ended by one call, and the first that fails ends the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


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
