"""When browsers are notified of something new: at once after a rest, and never more often than they can see.

Invariant: there is no queue. A waiting browser gets the newest version there is; what came in between is skipped.
"""

from __future__ import annotations

import asyncio


class Pulse:
    """A version number that many wait for."""

    def __init__(self, least_ms: int) -> None:
        """``least_ms``: the shortest time between two versions."""
        self.version = 0
        self._least_s = least_ms / 1000
        self._dirty = asyncio.Event()
        self._next = asyncio.Event()

    def mark(self) -> None:
        """Something changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Give out versions until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self.version += 1
            self._next.set()
            self._next = asyncio.Event()
            await asyncio.sleep(self._least_s)

    async def newer_than(self, version: int) -> int:
        """The newest version, as soon as there is one above ``version``."""
        while self.version <= version:
            await self._next.wait()
        return self.version
