"""Where work runs that would block the event loop: in one thread, with a short queue.

Invariant: what runs here touches neither the core nor a log, only what it was given; no more than ``waiting`` jobs
wait, and one more is refused. The caller bounds how long its work takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import TypeVar

from strandline.core.errors import ErrorCode, Outcome, Refused

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


def giving_way(items: Iterable[_Item]) -> Iterator[_Item]:
    """The same items. A thread that only computes lets others run every 5 ms; this lets them every few items."""
    for number, item in enumerate(items):
        if not number % _ITEMS_IN_A_ROW:
            sleep(0)
        yield item
