"""Counts this process's refusals and logs some of them.

Invariant: a kind of refusal (by call and error) is logged at its first occurrence, and then at most once in
`TELL_EVERY_MS`, with the number of occurrences, so that no caller can flood the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import structlog

from strandline.core.audit import MergedRefusals
from strandline.core.errors import Refusal
from strandline.core.state_events import Audit, Moment, StateEvent
from strandline.core.types import TopicPartition
from strandline.runtime.clock import Clock, monotonic_ms, wall_us

TELL_EVERY_MS = 10_000
LONGEST_REASON = 1_000
"""Characters of a refusal's message that are logged and kept: it may quote what a caller sent, megabytes of it."""

_log = structlog.get_logger("strandline.refusals")


def _tell(sentence: str, **fields: object) -> None:
    # `info` is looked up for each line: a bound method taken before the log was configured would keep the old form.
    _log.info(sentence, **fields)


@dataclass(slots=True)
class _Kind:
    """One kind of refusal, since its last line in the log."""

    reported_ms: int
    unreported: int = 0
    last: dict[str, object] = field(default_factory=dict)


class Refusals:
    """The refusals of one process. Not thread-safe: for its event loop only."""

    def __init__(self, clock: Clock = monotonic_ms, tell: Callable[..., Any] | None = None) -> None:
        self._clock = clock
        self._tell = tell or _tell
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self.by_error: Counter[str] = Counter()
        """The number of refusals, by the error's name."""

    def note(self, call: str, refusal: Refusal, **where: object) -> None:
        """Count a refusal, and log it if due; ``where`` names what was refused (topic_id, partition), if known."""
        error, reason = refusal.code.name, refusal.message[:LONGEST_REASON]
        self.by_error[error] += 1
        now_ms = self._clock()
        kind = self._kinds.get((call, error))
        if kind is None:
            self._kinds[call, error] = _Kind(now_ms)
            self._tell("refused", call=call, error=error, reason=reason, times=1, **where)
            return
        kind.unreported += 1
        kind.last = {"reason": reason, **where}
        if now_ms - kind.reported_ms >= TELL_EVERY_MS:
            self._tell_rest(call, error, kind, now_ms)

    def tell_rest(self) -> None:
        """Log the refusals that were held back and are due."""
        now_ms = self._clock()
        for (call, error), kind in self._kinds.items():
            if kind.unreported and now_ms - kind.reported_ms >= TELL_EVERY_MS:
                self._tell_rest(call, error, kind, now_ms)

    def _tell_rest(self, call: str, error: str, kind: _Kind, now_ms: int) -> None:
        times, kind.unreported, kind.reported_ms = kind.unreported, 0, now_ms
        self._tell("refused", call=call, error=error, times=times, within_ms=TELL_EVERY_MS, **kind.last)

    async def tell_forever(self) -> None:
        """Log the refusals that are due, periodically, until cancelled."""
        while True:
            await asyncio.sleep(TELL_EVERY_MS / 1000)
            self.tell_rest()


# ---- audit
# Passes audit events to the export; refusals of one kind within a second are merged into one event (C109).
#
# Invariant: `take` never waits, and the number of refusals held is bounded, whatever callers do.

MERGED_FOR_S = 1.0
KEPT = 200
"""The number of newest events kept for DescribeAudit, each with at most `SHOWN` values before and after."""
SHOWN = 20


class Audited:
    """Receives a process's state events and passes them on to ``take``, with refusals merged."""

    def __init__(self, take: Callable[[TopicPartition | None, StateEvent], None], clock: Clock = monotonic_ms) -> None:
        self._take = take
        self._clock = clock
        self._refused = MergedRefusals()
        self.recent: deque[tuple[int, Audit]] = deque(maxlen=KEPT)
        """The newest audit events, each with its wall-clock time in microseconds."""

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Take one event."""
        if isinstance(event, Audit):
            self.tell(event)
        else:
            self._take(tp, event)

    def tell(self, event: Audit) -> None:
        """Pass on an audit event; a refusal is passed on within a second."""
        if event.outcome == "REFUSED":
            now = Moment(self._clock())
            self._refused.take(event._replace(first_ms=now, last_ms=now))
        else:
            self._pass_on(event)

    def pass_on(self) -> None:
        """Pass on the refusals merged so far."""
        for event in self._refused.drain():
            self._pass_on(event)

    async def pass_on_forever(self) -> None:
        """Pass on merged refusals every second, until cancelled."""
        while True:
            await asyncio.sleep(MERGED_FOR_S)
            self.pass_on()

    def _pass_on(self, event: Audit) -> None:
        before, after = (dict(islice(values.items(), SHOWN)) for values in (event.before, event.after))
        self.recent.append((wall_us(), event._replace(before=before, after=after)))
        self._take(None, event)
