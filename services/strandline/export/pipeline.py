"""The number of every event, and when the export itself reports: heartbeats and gaps.

Invariant: numbers of an incarnation run from 1 without gaps. An event that was dropped has a number too, inside the
range of an EXPORT_GAP, so a reader can tell "nothing happened" from "lost".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from strandline.core.state_events import ExportGap, ExportHeartbeat, StateEvent
from strandline.export.local_lines import Outlet
from strandline.export.rows import Emitter, Taken
from strandline.export.runs import Run, TopicName

HEARTBEAT_EVERY_US = 10_000_000

Clocks = Callable[[], tuple[int, int]]
"""Time of day and monotonic time, both in microseconds, read together."""


class Pipeline:
    """Numbers the events of one emitter and hands them to its outlets. Used by one thread at a time."""

    def __init__(
        self,
        emitter: Emitter,
        outlets: Sequence[Outlet],
        clocks: Clocks,
        *,
        topic_name: TopicName = lambda _: None,
        heartbeats: bool = True,
    ) -> None:
        self._emitter = emitter
        self._outlets = outlets
        self._clocks = clocks
        self._topic_name = topic_name
        self._topics: dict[str, str] = {}
        self._heartbeats = heartbeats
        self._next_seq = 1
        self._next_heartbeat_us = 0

    @property
    def last_seq(self) -> int:
        """The last number that was given."""
        return self._next_seq - 1

    def pass_on(self, events: Sequence[Taken]) -> None:
        """Number events and give them to the outlets."""
        if events:
            first, self._next_seq = self._next_seq, self._next_seq + len(events)
            run = Run(self._emitter, range(first, self._next_seq), events, self._name)
            for outlet in self._outlets:
                outlet.write(run)

    def report_dropped(self, by_type: Mapping[str, int]) -> None:
        """Give the dropped events their numbers, and say so."""
        if not by_type:
            return
        first = self._next_seq
        self._next_seq += sum(by_type.values())
        self._report(ExportGap(first, self._next_seq - 1, dict(by_type)))

    def tend(self, *, final: bool = False) -> None:
        """Let the outlets do what is due, report what they lost, and beat."""
        _, mono_us = self._clocks()
        for outlet in self._outlets:
            for lost in outlet.tend(mono_us):
                self._report(ExportGap(lost.first_seq, lost.last_seq, dict(lost.by_type)))
        if final or (self._heartbeats and mono_us >= self._next_heartbeat_us):
            self._next_heartbeat_us = mono_us + HEARTBEAT_EVERY_US
            self._report(ExportHeartbeat(self.last_seq, final="true" if final else None))

    def close(self) -> None:
        """Say that this is the end, and write what is left."""
        self.tend(final=True)
        _, mono_us = self._clocks()
        for outlet in self._outlets:
            outlet.close(mono_us)

    def _report(self, event: StateEvent) -> None:
        wall_us, mono_us = self._clocks()
        self.pass_on([Taken(wall_us, mono_us, event, None)])

    def _name(self, topic_id: str) -> str | None:
        """A topic's name; remembered, because the events of its end come when nobody knows it any more."""
        known = self._topics.get(topic_id)
        if known is None and (known := self._topic_name(topic_id)) is not None:
            self._topics[topic_id] = known
        return known
