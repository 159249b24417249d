"""When the input is read for the watchers of partitions, and what each of them is sent.

One look serves all watchers; looks are ``poll_s`` apart at least, and there are none while nobody watches. A watcher
that is slow misses intermediate states, never the last one: what it is sent is compared with what it was sent last.

Invariant: one look at a time, outside the event loop; a watcher first gets everything, then only what differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from strandline_analytics.service.live import Key, LiveState, Partition

Source = Callable[[LiveState], None]
"""Folds what is new into the state; called outside the event loop."""


class Watches:
    """The watchers of one input."""

    def __init__(self, source: Source, *, poll_s: float) -> None:
        self._source = source
        self._poll_s = poll_s
        self._state = LiveState()
        self._partitions: list[Partition] = []
        self._looked_at: float | None = None
        self._looking = asyncio.Lock()

    async def changes(self, wanted: Callable[[Partition], bool]) -> AsyncIterator[list[Partition]]:
        """First all wanted partitions, then those that changed; without end.

        Raises:
            Exception: what looking at the input raised.
        """
        reported: dict[Key, Partition] = {}
        first = True
        while True:
            news = news_for(reported, await self._newest(), wanted)
            if news or first:
                yield news
            first = False
            await asyncio.sleep(self._poll_s)

    async def _newest(self) -> list[Partition]:
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if self._looked_at is None or now - self._looked_at >= self._poll_s:
                await asyncio.to_thread(self._source, self._state)
                self._partitions = self._state.partitions()
                self._looked_at = now
            return self._partitions


def news_for(
    reported: dict[Key, Partition], newest: list[Partition], wanted: Callable[[Partition], bool]
) -> list[Partition]:
    """What a watcher that has ``reported`` is sent now; ``reported`` is updated.

    A watcher that was sent a partition is also sent once that it is not wanted any more.
    """
    news = []
    for one in newest:
        before = reported.get(one.key)
        if before == one or (before is None and not wanted(one)):
            continue
        news.append(one)
        if wanted(one):
            reported[one.key] = one
        else:
            reported.pop(one.key, None)
    return news
