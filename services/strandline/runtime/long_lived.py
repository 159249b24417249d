"""Decides when state that stays is taken out of the sight of the collector of garbage.

A full collection visits every object that it knows, and one begins whenever the number of objects has grown by a
quarter: on a node of ten thousand partitions it holds the event loop for 200 ms and more, just when a node's death has
made it lead thousands of them. What is frozen is visited never again, and reference counts free it as before.

Invariant: the size has grown by a tenth between two freezes, so a cycle that was garbage when one came, and is kept
for that, is one of few: a process that serves ten thousand partitions has frozen at most sixty times.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

LOOK_EVERY_S = 1.0

_LEAST_GROWTH = 100
"""Below this a full collection is not worth the trouble."""


class LongLived:
    """``size`` counts what stays: logs and roles of a node, partitions of a controller."""

    def __init__(self, size: Callable[[], int], freeze: Callable[[], None] = gc.freeze) -> None:
        self._size = size
        self._freeze = freeze
        self._frozen = 0

    def look(self) -> None:
        """Freeze if there is a tenth more than when this was done last."""
        size = self._size()
        if size - self._frozen >= max(_LEAST_GROWTH, self._frozen // 10):
            self._frozen = size
            self._freeze()

    async def look_forever(self) -> None:
        """Look every second; until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)
