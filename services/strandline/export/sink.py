"""How state events leave the data path: a bounded ring in memory, and one writer thread behind it.

Invariant: taking an event never blocks and never fails the caller. Events for which there is no room are
dropped, samples before transitions, and their count is written as an event of its own (EXPORT_GAP).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from strandline.core.state_events import DATASET_OF, NAME_OF, SAMPLES, ExportGap, ExportHeartbeat, StateEvent
from strandline.core.types import TopicPartition
from strandline.export.counters import ExportCounters
from strandline.export.local_lines import EVENTS_NAME, MAX_FILE_BYTES, LocalLines, Outlet
from strandline.export.rows import Emitter, Run, Taken, TopicName
from strandline.export.schema import CONTROLLER_NODE_ID

# ---- pipeline
# Numbers every event, and adds the events of the export itself: heartbeats and gaps.
#
# Invariant: numbers of an incarnation run from 1 without gaps. An event that was dropped has a number too, inside the
# range of an EXPORT_GAP, so a reader can tell "nothing happened" from "lost".

HEARTBEAT_EVERY_US = 10_000_000
NAMES_KEPT = 10_000

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
        """The last number that was given to an event; 0 before the first."""
        return self._next_seq - 1

    def pass_on(self, events: Sequence[Taken]) -> None:
        """Number events and give them to the outlets."""
        if events:
            first, self._next_seq = self._next_seq, self._next_seq + len(events)
            run = Run(self._emitter, range(first, self._next_seq), events, self._name)
            for outlet in self._outlets:
                outlet.write(run)

    def report_dropped(self, by_type: Mapping[str, int]) -> None:
        """Give the dropped events their numbers, and report them as an EXPORT_GAP event."""
        if not by_type:
            return
        first = self._next_seq
        self._next_seq += sum(by_type.values())
        self._report(ExportGap(first, self._next_seq - 1, dict(by_type)))

    def tend(self, *, final: bool = False) -> None:
        """Let the outlets do what is due, report what they lost, and write a heartbeat if one is due."""
        _, mono_us = self._clocks()
        for outlet in self._outlets:
            for lost in outlet.tend(mono_us):
                self._report(ExportGap(lost.first_seq, lost.last_seq, dict(lost.by_type)))
        if final or (self._heartbeats and mono_us >= self._next_heartbeat_us):
            self._next_heartbeat_us = mono_us + HEARTBEAT_EVERY_US
            self._report(ExportHeartbeat(self.last_seq, final="true" if final else None))

    def close(self) -> None:
        """Report the end with a final heartbeat, and write what is left."""
        self.tend(final=True)
        _, mono_us = self._clocks()
        for outlet in self._outlets:
            outlet.close(mono_us)

    def _report(self, event: StateEvent) -> None:
        wall_us, mono_us = self._clocks()
        self.pass_on([Taken(wall_us, mono_us, event, None)])

    def _name(self, topic_id: str) -> str | None:
        """A topic's name. It is cached, because a topic's last events come after its metadata was removed."""
        known = self._topics.pop(topic_id, None) or self._topic_name(topic_id)
        if known is not None:
            self._topics[topic_id] = known
            # That of the topic without an event for longest, most likely one that is gone.
            if len(self._topics) > NAMES_KEPT:
                del self._topics[next(iter(self._topics))]
        return known


# ---- ring
# Keeps events for the writer. When there is no room, samples are dropped first.
#
# Transitions are still accepted when samples are already dropped, up to a bound that protects the process's memory.
#
# Invariant: putting never waits and never fails, and what was dropped is counted by type until the count is taken.
# One thread puts, one thread takes; both use only operations of `deque` and `dict` that are atomic in CPython.

ROOM_FOR_SAMPLES = 50_000
TRANSITIONS_BEYOND = 4
"""Transitions are kept up to this multiple of the room for samples."""


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
        is_sample = DATASET_OF[type(event.event)] == SAMPLES
        if waiting >= self._room and (is_sample or waiting >= self._room * TRANSITIONS_BEYOND):
            name = NAME_OF[type(event.event)]
            with self._lock:
                self._dropped[name] = self._dropped.get(name, 0) + 1
            return False
        self._events.append(event)
        return True

    def oldest_us(self) -> int | None:
        """When the oldest waiting event was taken (monotonic clock, us); None if no event waits."""
        try:
            return self._events[0].mono_us
        except IndexError:
            return None

    def take_dropped(self) -> dict[str, int]:
        """The number of events dropped since the last call, by event type."""
        if not self._dropped:
            return {}
        with self._lock:
            dropped, self._dropped = self._dropped, {}
        return dropped

    def take(self, most: int) -> list[Taken]:
        """Remove and return at most ``most`` events, the oldest first."""
        events = self._events
        return [events.popleft() for _ in range(min(most, len(events)))]


__all__ = ["EVENTS_NAME", "EventSink"]

THREAD_NAME = "events"
"""Name of the writer's thread, as `top -H` shows it."""

WRITE_EVERY_S = 1.0
"""How long samples wait to be written, unless many of them wait."""
TRANSITION_WITHIN_S = 0.2
"""How long the writer, woken by a transition, waits for more of them."""
_MANY = 1_000
_AT_ONCE = 512
_BREATH_S = 0.001
_CLOSE_DEADLINE_S = 20.0


def system_clocks() -> tuple[int, int]:
    """This machine's time of day and monotonic time, in microseconds."""
    return time.time_ns() // 1000, time.monotonic_ns() // 1000


class EventSink:
    """Accepts events, and writes them in a thread of its own.

    ``common``: ``node_id`` of a data node, or ``role`` controller; perhaps ``cluster_id`` and ``incarnation``.
    ``wall_ms``: a virtual clock. Events are then written as they come, without a thread, so that a run is
    deterministic.
    ``clocks``: likewise, with separate time of day and monotonic time.
    ``begun`` False: events wait until `begin` sets the incarnation that reports them.
    ``said`` is called with a sentence when events begin to be dropped, and with their number when there is room again.
    """

    def __init__(
        self,
        directory: Path | None,
        common: Mapping[str, object],
        *,
        outlets: Sequence[Outlet] = (),
        ring_events: int = ROOM_FOR_SAMPLES,
        max_file_bytes: int = MAX_FILE_BYTES,
        wall_ms: Callable[[], int] | None = None,
        clocks: Clocks | None = None,
        topic_name: Callable[[str], str | None] = lambda _: None,
        begun: bool = True,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._node_id = int(str(common.get("node_id", CONTROLLER_NODE_ID)))
        local = (LocalLines(directory, max_file_bytes),) if directory is not None else ()
        self._outlets = (*local, *outlets)
        if wall_ms is not None:
            clocks = lambda: (wall_ms() * 1000, wall_ms() * 1000)  # noqa: E731 - one clock read as both
        self._clocks = clocks or system_clocks
        self._is_virtual = clocks is not None
        self._topic_name = topic_name
        self._ring = Ring(ring_events)
        self._pipeline: Pipeline | None = None
        self._controller_epoch: int | None = None
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write_forever, name=THREAD_NAME, daemon=True)
        self._said = said
        self._is_dropping = False
        self._kept = 0
        self._dropped = 0
        self._cpu_ns = 0
        if begun:
            self.begin(str(common.get("cluster_id", "")), int(str(common.get("incarnation", 0))))

    def begin(self, cluster_id: str, incarnation: int) -> None:
        """Set the emitter and start to write; events that were taken before are written first."""
        if self._pipeline is not None:
            return
        self._pipeline = Pipeline(
            Emitter(cluster_id=cluster_id, node_id=self._node_id, incarnation=incarnation),
            self._outlets,
            self._clocks,
            topic_name=self._topic_name,
            heartbeats=not self._is_virtual,
        )
        if not self._is_virtual:
            self._thread.start()

    def know(self, *, controller_epoch: int) -> None:
        """Set the controller epoch of all later events."""
        self._controller_epoch = controller_epoch

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Keep an event for the writer, or drop it when there is no room."""
        wall_us, mono_us = self._clocks()
        if self._ring.put(Taken(wall_us, mono_us, event, tp, self._controller_epoch)):
            self._kept += 1
        else:
            self._drop()
        if self._is_virtual:
            if self._pipeline is not None:
                self._drain(self._pipeline)
        elif not self._wake.is_set() and (len(self._ring) >= _MANY or DATASET_OF[type(event)] != SAMPLES):
            self._wake.set()

    def _drop(self) -> None:
        self._dropped += 1
        if not self._is_dropping:
            self._is_dropping = True
            self._said(f"state events are dropped: {len(self._ring)} wait for the writer, which is behind")

    def counters(self) -> ExportCounters:
        """The counters of the export. May be called by any thread."""
        stats = [outlet.stats for outlet in self._outlets]
        taken_us = [at_us for at_us in (self._ring.oldest_us(), *(one.oldest_us for one in stats)) if at_us is not None]
        return ExportCounters(
            events_total=self._kept,
            dropped_total=self._dropped,
            lost_total=sum(one.lost_rows for one in stats),
            rows_total=sum(one.rows for one in stats),
            files_total=sum(one.files for one in stats),
            bytes_total=sum(one.bytes for one in stats),
            failures_total=sum(one.failures for one in stats),
            waiting_events=len(self._ring),
            waiting_files=sum(one.waiting_files for one in stats),
            waiting_bytes=sum(one.waiting_bytes for one in stats),
            lag_seconds=max(0, self._clocks()[1] - min(taken_us)) / 1e6 if taken_us else 0.0,
            writer_cpu_seconds_total=self._cpu_ns / 1e9,
        )

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=_CLOSE_DEADLINE_S)
        elif self._is_virtual and self._pipeline is not None:
            self._drain(self._pipeline)
            self._pipeline.close()

    def _write_forever(self) -> None:
        assert self._pipeline is not None, "the thread begins with the pipeline"
        _name_this_thread()
        while not self._closing.is_set():
            if self._wake.wait(WRITE_EVERY_S) and len(self._ring) < _MANY:
                self._closing.wait(TRANSITION_WITHIN_S)
            self._wake.clear()
            self._drain(self._pipeline)
            self._pipeline.tend()
            self._cpu_ns = time.thread_time_ns()
        self._drain(self._pipeline)
        self._pipeline.close()
        self._cpu_ns = time.thread_time_ns()

    def _drain(self, pipeline: Pipeline) -> None:
        # Only what waits now, so that a flood of new events does not keep the writer from its other work.
        for left in range(len(self._ring), 0, -_AT_ONCE):
            pipeline.pass_on(self._ring.take(_AT_ONCE))
            if left > _AT_ONCE and not self._is_virtual:
                # Release the GIL between two batches, for the threads that serve clients.
                time.sleep(_BREATH_S)
        dropped = self._ring.take_dropped()
        pipeline.report_dropped(dropped)
        if dropped and self._is_dropping:
            self._is_dropping = False
            self._said(f"state events have room again: {sum(dropped.values())} were dropped, {self._dropped} so far")


def _name_this_thread() -> None:
    """Name the thread for the kernel, so that its tools show the CPU time of this thread (Linux)."""
    try:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(THREAD_NAME)
    except OSError:
        return
