"""What a replay shows: one line per thing that mattered, in lanes, and the life of one offset.

Invariant: a recorder only looks on; a run with it and a run without it are the same run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from strandline.core.log import effects as want
from strandline.core.log import events
from strandline.core.log.effects import Effect
from strandline.core.log.events import Event
from strandline.core.state_events import NAME_OF
from strandline.core.types import TopicPartition
from strandline_sim.world.cluster import Cluster, Recorder
from strandline_sim.world.disk import LogFile
from strandline_sim.world.process import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One line of a replay. ``start`` and ``end`` bound the offsets it is about, if it is about any."""

    at_us: int
    lane: str
    text: str
    partition: int | None = None
    start: int | None = None
    end: int | None = None

    def concerns(self, partition: int, offset: int) -> bool:
        """Whether this line is part of the life of an offset."""
        if self.partition != partition or self.start is None or self.end is None:
            return False
        return self.start <= offset < self.end

    def __str__(self) -> str:
        return f"t={self.at_us / 1000:<10.3f} {self.lane:<5} {self.text}"


def canonical(value: Any) -> str:
    """A value as text that does not depend on the order of a set or on where it lies in memory."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if is_dataclass(value) and not isinstance(value, type):
        inner = ",".join(canonical(getattr(value, each.name)) for each in fields(value))
        return f"{type(value).__name__}({inner})"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(canonical(each) for each in value)) + "}"
    if isinstance(value, tuple | list):
        return "(" + ",".join(canonical(each) for each in value) + ")"
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{canonical(each)}" for key, each in value.items()) + "}"
    return repr(value)


class Digest(Recorder):
    """A recorder that only hashes every effect of every core: two equal runs have equal digests."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.effects = 0

    def stepped(self, process: Process, event: Event, effects: list[Effect]) -> None:
        """Take in a step of a node's core."""
        self._take(f"n{process.node_id}", event, effects)

    def controller_stepped(self, event: Any, effects: list[Any]) -> None:
        """Take in a step of the controller's core."""
        self._take("ctl", event, effects)

    def _take(self, who: str, event: Any, effects: list[Any]) -> None:
        self.effects += len(effects)
        line = f"{who} {event.now_ms} {type(event).__name__} {canonical(effects)}\n"
        self._hash.update(line.encode())

    def hexdigest(self) -> str:
        """The digest of everything so far."""
        return self._hash.hexdigest()


class Trace(Digest):
    """A recorder that keeps the lines of a replay. ``everything`` keeps every event and effect."""

    def __init__(self, *, everything: bool = False) -> None:
        super().__init__()
        self.lines: list[TraceLine] = []
        self.world: Cluster | None = None
        self._everything = everything
        self._hws: dict[tuple[int, TopicPartition], int] = {}

    def watch(self, world: Cluster) -> None:
        """Attach to a world that has not run yet."""
        self.world = world

    def close(self) -> None:
        """The run is over; nothing is left to be kept."""

    @property
    def _now_us(self) -> int:
        return self.world.timeline.now_us if self.world is not None else 0

    def note(self, lane: str, text: str) -> None:
        """Keep a line."""
        self.lines.append(TraceLine(at_us=self._now_us, lane=lane, text=text))

    def _about(self, process: Process, tp: TopicPartition, start: int, end: int, text: str) -> None:
        leads = tp in process.core.state.leaders
        lane = f"n{process.node_id}{'*' if leads else ''}"
        line = TraceLine(at_us=self._now_us, lane=lane, text=text, partition=tp.partition, start=start, end=end)
        self.lines.append(line)

    def stepped(self, process: Process, event: Event, effects: list[Effect]) -> None:
        """Keep what matters of a step."""
        if self._everything:
            names = " ".join(type(effect).__name__ for effect in effects)
            self.note(f"n{process.node_id}", f"{event} -> {names}")
        if isinstance(event, events.LogFlushed):
            log = process.core.state.logs.get(event.tp)
            if log is not None:
                self._about(process, event.tp, 0, log.durable.point, f"synced to {log.durable.point}")
        for effect in effects:
            if isinstance(effect, want.Emit) and effect.tp is not None:
                said = " ".join(f"{name}={value}" for name, value in effect.event._asdict().items())
                self.note(f"n{process.node_id}", f"{NAME_OF[type(effect.event)]} p{effect.tp.partition} {said}")
            elif isinstance(effect, want.SendAlterPartition):
                self._alter(process, effect)

    def _alter(self, process: Process, effect: want.SendAlterPartition) -> None:
        for each in effect.request.partitions:
            isr = ",".join(str(member.node_id) for member in each.new_isr)
            number = effect.request.request_sequence
            text = f"ALTER#{number} p{each.tp.partition} {{{isr}}} pe={each.partition_epoch}"
            self.note(f"n{process.node_id}*", text)

    def controller_stepped(self, event: Any, effects: list[Any]) -> None:
        """Keep what matters of a step of the controller."""
        if self._everything:
            self.note("ctl", f"{event} -> {' '.join(type(effect).__name__ for effect in effects)}")

    def appended(self, process: Process, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Keep what was written."""
        start, end = log.starts[first], log.leo
        epochs = ",".join(map(str, sorted({header.stamped_epoch for header in log.headers[first:]})))
        self._about(process, tp, start, end, f"p{tp.partition} appended {start}..{end - 1} of epoch {epochs}")

    def truncated(self, process: Process, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """Keep what is cut."""
        self._about(process, tp, offset, log.leo, f"p{tp.partition} TRUNCATES {offset}..{log.leo - 1}")

    def hw_moved(self, process: Process, tp: TopicPartition, hw: int, leader: Any) -> None:
        """Keep a HW that moved, and over whom a leader counted."""
        key = (process.party_id, tp)
        before, self._hws[key] = self._hws.get(key, 0), hw
        over = f" over {{{','.join(map(str, sorted(leader.isr.maximal)))}}}" if leader is not None else ""
        self._about(process, tp, min(before, hw), max(before, hw), f"p{tp.partition} HW {before}->{hw}{over}")

    def acknowledged(self, process: Process, tp: TopicPartition, start: int, end: int) -> None:
        """Keep an acknowledgement."""
        self._about(process, tp, start, end, f"p{tp.partition} acknowledged {start}..{end - 1}")

    def life_of(self, partition: int, offset: int) -> Iterator[TraceLine]:
        """Everything that happened to one offset."""
        return (line for line in self.lines if line.concerns(partition, offset))
