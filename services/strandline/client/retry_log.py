"""When something that is tried again is worth a line in the log: after a second, once, and when it is over.

Invariant: what works within a second is never logged, however often it happens.
"""

from __future__ import annotations

from strandline.client.logger import log

WARN_AFTER_MS = 1_000


class RetryLog:
    """One thing that may have to be tried again: batches of a partition, a fetch, the subscription to metadata."""

    __slots__ = ("_doing", "_since_ms", "_warned")

    def __init__(self, doing: str) -> None:
        """``doing``: what is tried, as a line begins with it."""
        self._doing = doing
        self._since_ms: float | None = None
        self._warned = False

    def failed(self, now_ms: float, why: str) -> None:
        """It did not work this time; called again and again while it does not."""
        if self._since_ms is None:
            self._since_ms = now_ms
        elif not self._warned and now_ms - self._since_ms > WARN_AFTER_MS:
            self._warned = True
            log.warning("%s: tried again for %.1f s now: %s", self._doing, (now_ms - self._since_ms) / 1000, why)

    def worked(self, now_ms: float) -> None:
        """It works, for the first time or again."""
        if self._since_ms is None:
            return
        if self._warned:
            log.info("%s: works again after %.1f s", self._doing, (now_ms - self._since_ms) / 1000)
        self._since_ms, self._warned = None, False
