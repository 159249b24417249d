"""Where the client logs: the standard library's logger "strandline.client", silent until a program asks for it.

Invariant: no line has a key, a value or a header in it, and none is written per record. WARNING: something has been
tried again for longer than a second. INFO: assignments, leaders that move, and the end of what was warned of.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

log = logging.getLogger("strandline.client")
# Without a handler Python prints warnings itself, also in a program that has set up no logging.
log.addHandler(logging.NullHandler())

_NAMED = 10


def some_of(partitions: Iterable[tuple[str, int] | str]) -> str:
    """The first partitions by name and how many more there are: a line stays a line with a thousand of them."""
    names = [one if isinstance(one, str) else f"{one[0]}-{one[1]}" for one in partitions]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "nothing") + more


WARN_AFTER_MS = 1_000


class RetryLog:
    """One thing that may have to be retried: batches of a partition, a fetch, the subscription to metadata.

    It logs one line after a second of failures, and one when it works again; never what works within a second.
    """

    __slots__ = ("_doing", "_forgets_after_ms", "_last_ms", "_since_ms", "_warned")

    def __init__(self, doing: str, *, forgets_after_ms: float = math.inf) -> None:
        """``doing``: what is retried, as the beginning of a line.

        ``forgets_after_ms``: a failure this long after the previous one begins a new series. For work that may succeed
        without a sign of it, such as a fetch that waits at the leader for the next record.
        """
        self._doing = doing
        self._forgets_after_ms = forgets_after_ms
        self._since_ms: float | None = None
        self._last_ms = 0.0
        self._warned = False

    def failed(self, now_ms: float, why: str) -> None:
        """It did not work this time; called again and again while it does not."""
        if self._since_ms is None or now_ms - self._last_ms > self._forgets_after_ms:
            self._since_ms, self._warned = now_ms, False
        elif not self._warned and now_ms - self._since_ms > WARN_AFTER_MS:
            self._warned = True
            log.warning("%s: tried again for %.1f s now: %s", self._doing, (now_ms - self._since_ms) / 1000, why)
        self._last_ms = now_ms

    def worked(self) -> None:
        """It works, for the first time or again."""
        if self._since_ms is None:
            return
        if self._warned:
            log.info("%s: works again; it had failed for %.1f s", self._doing, (self._last_ms - self._since_ms) / 1000)
        self._since_ms, self._warned = None, False
