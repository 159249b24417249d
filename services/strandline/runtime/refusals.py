"""What becomes of the refusals that this process gives: each is counted, few are logged.

Invariant: a kind of refusal (which call, which error) is logged at once when it first occurs, and then at most once in
`TELL_EVERY_MS` with how many there were, so that no caller can flood the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from strandline.core.errors import Refusal
from strandline.runtime.clock import Clock, monotonic_ms

TELL_EVERY_MS = 10_000

_log = structlog.get_logger("strandline.refusals")


def _tell(sentence: str, **fields: object) -> None:
    # The method is looked up for each line: taken before the process configured its log, it would keep another form.
    _log.info(sentence, **fields)


@dataclass(slots=True)
class _Kind:
    """Of one kind, since the last line."""

    reported_ms: int
    unreported: int = 0
    last: dict[str, object] = field(default_factory=dict)


class Refusals:
    """Of one process; used in its event loop alone."""

    def __init__(self, clock: Clock = monotonic_ms, tell: Callable[..., Any] | None = None) -> None:
        self._clock = clock
        self._tell = tell or _tell
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self.by_error: Counter[str] = Counter()
        """How many there were, by the error's name."""

    def note(self, call: str, refusal: Refusal, **where: object) -> None:
        """One was given; ``where`` says for what (topic_id, partition), as far as it has a place."""
        error = refusal.code.name
        self.by_error[error] += 1
        now_ms = self._clock()
        kind = self._kinds.get((call, error))
        if kind is None:
            self._kinds[call, error] = _Kind(now_ms)
            self._tell("refused", call=call, error=error, reason=refusal.message, times=1, **where)
            return
        kind.unreported += 1
        kind.last = {"reason": refusal.message, **where}
        if now_ms - kind.reported_ms >= TELL_EVERY_MS:
            self._tell_rest(call, error, kind, now_ms)

    def tell_rest(self) -> None:
        """Log what was held back and is due."""
        now_ms = self._clock()
        for (call, error), kind in self._kinds.items():
            if kind.unreported and now_ms - kind.reported_ms >= TELL_EVERY_MS:
                self._tell_rest(call, error, kind, now_ms)

    def _tell_rest(self, call: str, error: str, kind: _Kind, now_ms: int) -> None:
        times, kind.unreported, kind.reported_ms = kind.unreported, 0, now_ms
        self._tell("refused", call=call, error=error, times=times, within_ms=TELL_EVERY_MS, **kind.last)

    async def tell_forever(self) -> None:
        """Log what is due until cancelled."""
        while True:
            await asyncio.sleep(TELL_EVERY_MS / 1000)
            self.tell_rest()
