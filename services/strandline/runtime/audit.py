"""The way of audit events to the export: refusals of one kind within a second are one event (C109).

Invariant: taking an event never waits, and what is held of refusals is bounded, whatever callers do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from strandline.core.audit import MergedRefusals
from strandline.core.state_events import Audit, Moment, StateEvent
from strandline.core.types import TopicPartition
from strandline.runtime.clock import Clock, monotonic_ms, wall_us

MERGED_FOR_S = 1.0
KEPT = 200
"""The newest events, for those who ask what happened lately."""


class Sink(Protocol):
    """Where state events go."""

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Take one event."""
        ...


class Audited:
    """A sink whose refusals are merged on their way to another one."""

    def __init__(self, sink: Sink, clock: Clock = monotonic_ms) -> None:
        self._sink = sink
        self._clock = clock
        self._refused = MergedRefusals()
        self.recent: deque[tuple[int, Audit]] = deque(maxlen=KEPT)
        """With the time of day in microseconds."""

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Pass an event on, a refusal within a second."""
        if isinstance(event, Audit) and event.outcome == "REFUSED":
            now = Moment(self._clock())
            self._refused.take(event._replace(first_ms=now, last_ms=now))
        else:
            self._pass_on(tp, event)

    def tell(self, event: Audit) -> None:
        """Take an audit event."""
        self.take(None, event)

    def pass_on(self) -> None:
        """Pass on what was refused so far."""
        for event in self._refused.drain():
            self._pass_on(None, event)

    def _pass_on(self, tp: TopicPartition | None, event: StateEvent) -> None:
        if isinstance(event, Audit):
            self.recent.append((wall_us(), event))
        self._sink.take(tp, event)

    async def pass_on_forever(self) -> None:
        """Pass on what was refused, every second, until cancelled."""
        while True:
            await asyncio.sleep(MERGED_FOR_S)
            self.pass_on()
