"""What is kept for the writer and what is dropped when there is no room: samples first.

Transitions may still come when samples are dropped already, up to a bound that protects the process's memory.

Invariant: putting never waits and never fails, and what was dropped is counted by type until the count is taken.
One thread puts, one thread takes; both use only operations of `deque` and `dict` that are atomic in CPython.
"""

from __future__ import annotations

import threading
from collections import deque

from strandline.core.state_events import DATASET_OF, NAME_OF, SAMPLES, StateEvent
from strandline.export.rows import Taken

ROOM_FOR_SAMPLES = 50_000
TRANSITIONS_BEYOND = 4
"""Transitions are kept until so many times the room for samples is full."""


class Ring:
    """Events between the data path and the writer."""

    def __init__(self, room: int = ROOM_FOR_SAMPLES) -> None:
        self._events: deque[Taken] = deque()
        self._room = room
        self._lock = threading.Lock()
        self._dropped: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Taken) -> bool:
        """Keep an event, or drop it. Returns whether it was kept."""
        waiting = len(self._events)
        if waiting >= self._room and not self._is_kept_beyond(type(event.event), waiting):
            name = NAME_OF[type(event.event)]
            with self._lock:
                self._dropped[name] = self._dropped.get(name, 0) + 1
            return False
        self._events.append(event)
        return True

    def _is_kept_beyond(self, kind: type[StateEvent], waiting: int) -> bool:
        return waiting < self._room * TRANSITIONS_BEYOND and DATASET_OF[kind] != SAMPLES

    def oldest_us(self) -> int | None:
        """When the event that waits longest was taken, by the monotonic clock; none if nothing waits."""
        try:
            return self._events[0].mono_us
        except IndexError:
            return None

    def take_dropped(self) -> dict[str, int]:
        """What was dropped since the last time, by event type."""
        if not self._dropped:
            return {}
        with self._lock:
            dropped, self._dropped = self._dropped, {}
        return dropped

    def take(self, most: int) -> list[Taken]:
        """At most so many events, the oldest first."""
        events = self._events
        return [events.popleft() for _ in range(min(most, len(events)))]
