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

_THRESHOLDS = (5_000, 10, 100)
"""New containers until the youngest generation is collected, and how many collections of one generation it takes for
the next. With Python's own 700, 10 and 10 a node that begins to lead thousands of partitions collects everything that
it just made several times over, for 100 ms each; at 5,000 a collection takes about a millisecond."""


def keep_what_is_loaded() -> None:
    """Let no collection of garbage look through what the start loaded: it stays for as long as the process does.

    Modules are a hundred thousand objects, twice as many with pyarrow as without, and a full collection would hold up
    the clients being served while it visits each of them.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


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
