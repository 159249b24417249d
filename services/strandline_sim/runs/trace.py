"""The output of a replay: one line per relevant event, in lanes, and the life of one offset.

Invariant: a recorder only watches; a run is the same with and without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from strandline.core.control.state import ClusterState
from strandline.core.log import effects as want, events
from strandline.core.log.effects import Effect
from strandline.core.log.events import Event
from strandline.core.messages import PartitionImage
from strandline.core.state_events import NAME_OF, StateEvent
from strandline.core.types import Acks, NodeId, TopicPartition
from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport
from strandline.export.schema import CONTROLLER_NODE_ID
from strandline.export.sink import EventSink
from strandline_sim.world.cluster import Cluster, Recorder
from strandline_sim.world.disk import LogFile
from strandline_sim.world.machine import Machine
from strandline_sim.world.process import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One line of a replay. ``start`` and ``end`` bound the offsets that it concerns, if any."""

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
    """A value as text that depends neither on the order of a set nor on memory addresses."""
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
        """The run is over; nothing remains to be kept."""

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
        """Keep the relevant parts of a step."""
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
        """Keep the relevant parts of a step of the controller."""
        if self._everything:
            self.note("ctl", f"{event} -> {' '.join(type(effect).__name__ for effect in effects)}")

    def appended(self, process: Process, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Keep an append."""
        start, end = log.starts[first], log.leo
        epochs = ",".join(map(str, sorted({header.stamped_epoch for header in log.headers[first:]})))
        self._about(process, tp, start, end, f"p{tp.partition} appended {start}..{end - 1} of epoch {epochs}")

    def truncated(self, process: Process, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """Keep a truncation."""
        self._about(process, tp, offset, log.leo, f"p{tp.partition} TRUNCATES {offset}..{log.leo - 1}")

    def hw_moved(self, process: Process, tp: TopicPartition, hw: int, leader: Any) -> None:
        """Keep a HW that moved, and the replicas over which a leader counted."""
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


# ---- exporting
# Writes the state events of a replayed seed or of a scenario as services do: one writer for every incarnation.
#
# Invariant: exporting changes nothing in a run. Samples only read, so an exported seed takes the same course.


SAMPLE_EVERY_MS = 100
"""Runs last seconds, so they are sampled more often than services are."""
_FORCED_EVERY_MS = 1_000


class Exporting:
    """The writers of one run. ``at`` is set to the current time before each event: time of day and own clock, in us."""

    def __init__(self, root: Path, kind: ExportFormat) -> None:
        self.at = (0, 0)
        self._destination = LocalDirectory(root)
        self._kind = kind
        self._sinks: dict[tuple[int, int], EventSink] = {}
        self._names: dict[str, str] = {}

    def take(
        self,
        cluster_id: str,
        node_id: int,
        incarnation: int,
        event: tuple[TopicPartition | None, StateEvent],
        topics: Mapping[str, str],
    ) -> None:
        """Write one event of an incarnation."""
        key = (node_id, incarnation)
        self._names.update(topics)
        if key not in self._sinks:
            common = {"node_id": node_id, "cluster_id": cluster_id, "incarnation": incarnation}
            outlet = FileExport(self._destination, self._kind)
            self._sinks[key] = EventSink(None, common, outlets=[outlet], clocks=self._now, topic_name=self._names.get)
        self._sinks[key].take(*event)

    def _now(self) -> tuple[int, int]:
        return self.at

    def close(self) -> None:
        """Write the rest. Incarnations that a fault ended get an end too: the run is over."""
        for sink in self._sinks.values():
            sink.close()


class ExportingTrace(Trace):
    """A replay that is exported as well."""

    def __init__(self, root: Path, kind: ExportFormat, *, everything: bool = False) -> None:
        super().__init__(everything=everything)
        self._exporting = Exporting(root, kind)

    def watch(self, world: Cluster) -> None:
        """Attach to a world that has not run yet, and sample it."""
        self.world = world
        timings = world.node_timings
        world.node_timings = replace(timings, sample_min_ms=SAMPLE_EVERY_MS, sample_max_ms=_FORCED_EVERY_MS)

    def stepped(self, process: Process, event: Event, effects: list[Effect]) -> None:
        """Export what a node's core reported."""
        super().stepped(process, event, effects)
        state = process.core.state
        if state.node_epoch is None:
            return
        self._exporting.at = (self._now_us, event.now_ms * 1_000)
        for effect in effects:
            if isinstance(effect, want.Emit):
                reported = (effect.tp, effect.event)
                self._exporting.take(
                    state.cluster_id, process.node_id, int(state.node_epoch), reported, state.topic_names
                )

    def controller_reported(self, state: ClusterState, emit: want.Emit, now_ms: int) -> None:
        """Export what the controller reported, which is always durable."""
        super().controller_reported(state, emit, now_ms)
        self._exporting.at = (self._now_us, now_ms * 1_000)
        reported = (emit.tp, emit.event)
        topics = {topic_id: topic.name for topic_id, topic in state.topics.items()}
        epoch = state.header.controller_epoch
        self._exporting.take(state.header.cluster_id, CONTROLLER_NODE_ID, epoch, reported, topics)

    def close(self) -> None:
        """Write the rest."""
        self._exporting.close()


# ---- deeds
# The part of a run that is worth showing: the deeds of the world, in order, that affected one partition's cores.
#
# Invariant: a deed says what was done to a core or a machine, never what a core decided; the same deeds done to the
# same cores give the same decisions.


class Deed(NamedTuple):
    """One thing that was done. ``node`` is the affected node, ``peer`` the other one; ``number`` and ``kind`` vary.

    ``deliver`` (from ``peer`` to ``node``, of ``kind``), ``lose`` (what ``node`` asked ``peer``), ``metadata``
    (partition epoch ``number``), ``alter`` (``members``, by ``peer``), ``altered``, ``produce`` (``number`` records
    with acks ``kind``), ``commit``, ``tick``, ``crash``, ``power-off`` (LEO ``number``), ``wipe``, ``restart``,
    ``fence``, ``unfence``, ``shutdown``, ``elect``, ``min-isr``, ``decided`` (partition epoch ``number``).
    Node -1 is the controller.
    """

    what: str
    node: int
    peer: int = -1
    kind: str = ""
    number: int = 0
    members: tuple[int, ...] = ()


_ANSWERS: dict[type[Any], str] = {
    events.FetchAnswered: "fetched",
    events.EpochEndsAnswered: "end-of-epoch",
    events.OffsetsAnswered: "offsets",
    events.ProducerSnapshotAnswered: "producers",
}


class Deeds(Digest):
    """A recorder that keeps the deeds of one partition."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__()
        self._tp = tp
        self._state: ClusterState | None = None
        self.first: PartitionImage | None = None
        self.deeds: list[Deed] = []

    def _did(self, what: str, node: NodeId | int, **more: Any) -> None:
        if self.first is not None:
            self.deeds.append(Deed(what, int(node), **more))

    def stepped(self, process: Process, event: Event, effects: list[Effect]) -> None:
        """Keep what this core received, if it concerns the partition."""
        node = process.node_id
        match event:
            case events.FetchArrived() if event.request.replica is not None:
                if any(part.tp == self._tp for part in event.request.partitions):
                    self._did("deliver", node, peer=int(event.request.replica.node_id), kind="fetch")
            case events.EpochEndsAsked() if event.replica is not None:
                if any(question.tp == self._tp for question in event.questions):
                    self._did("deliver", node, peer=int(event.replica.node_id), kind="end-of-epoch")
            case events.OffsetsAsked() if event.replica is not None:
                if any(question.tp == self._tp for question in event.questions):
                    self._did("deliver", node, peer=int(event.replica.node_id), kind="offsets")
            case events.ProducerSnapshotAsked() if event.replica is not None and event.question.tp == self._tp:
                self._did("deliver", node, peer=int(event.replica.node_id), kind="producers")
            case events.FetchAnswered() | events.EpochEndsAnswered() | events.OffsetsAnswered():
                self._answered(node, event)
            case events.ProducerSnapshotAnswered() if event.answer.tp == self._tp:
                self._did("deliver", node, peer=int(event.leader), kind="producers")
            case (
                events.FetchFailed()
                | events.EpochEndsFailed()
                | events.OffsetsFailed()
                | events.ProducerSnapshotFailed()
            ):
                self._did("lose", node, peer=int(event.leader))
            case events.MetadataArrived():
                versions = [p.partition_epoch for t in event.image.topics for p in t.partitions if p.tp == self._tp]
                if versions:
                    self._did("metadata", node, number=int(versions[0]))
            case events.AlterPartitionAnswered():
                self._did("altered", node)
            case events.ProduceArrived():
                self._produced(node, event, effects)
            case events.LogFlushed() if event.tp == self._tp:
                self._did("commit", node)
            case events.Ticked():
                if any(isinstance(effect, want.SaveHighWatermarks) for effect in effects):
                    self._did("tick", node)

    def _answered(
        self, node: NodeId, event: events.FetchAnswered | events.EpochEndsAnswered | events.OffsetsAnswered
    ) -> None:
        parts = event.partitions if isinstance(event, events.FetchAnswered) else event.answers
        if any(part.tp == self._tp for part in parts):
            self._did("deliver", node, peer=int(event.leader), kind=_ANSWERS[type(event)])

    def _produced(self, node: NodeId, event: events.ProduceArrived, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, want.Append) and effect.tp == self._tp:
                kind = "all" if event.acks is Acks.ALL else "1"
                self._did("produce", node, kind=kind, number=effect.header.record_count)

    def befell(self, machine: Machine[Process], what: str) -> None:
        """Keep the fault of a machine."""
        number = machine.log(self._tp).leo if what == "power-off" else 0
        self._did(what, machine.node_id, number=number)

    def decided(self, state: ClusterState) -> None:
        """Keep what made the controller decide: sessions, elections, proposals, settings."""
        before, self._state = self._state, state
        image = state.partition(self._tp)
        if self.first is None:
            self.first = image
            return
        assert before is not None and image is not None
        came = self._sessions(before, state)
        old = before.partition(self._tp)
        if old is not None and old != image and not came:
            self._partition(old, image)
        if old is not None and old.partition_epoch != image.partition_epoch:
            self._did("decided", -1, number=int(image.partition_epoch))

    def _sessions(self, before: ClusterState, after: ClusterState) -> bool:
        """Keep what happened to nodes; returns whether anything did."""
        count = len(self.deeds)
        for node_id, record in after.nodes.items():
            old = before.nodes.get(node_id)
            if old is None or old.image == record.image:
                continue
            if record.image.node_epoch > old.image.node_epoch:
                self._did("restart", node_id)
            elif record.image.shutting_down and not old.image.shutting_down:
                self._did("shutdown", node_id)
            elif record.image.fenced and not old.image.fenced and not old.image.shutting_down:
                self._did("fence", node_id)
            elif old.image.fenced and not record.image.fenced:
                self._did("unfence", node_id)
        return len(self.deeds) > count

    def _partition(self, old: PartitionImage, new: PartitionImage) -> None:
        if new.min_isr != old.min_isr:
            self._did("min-isr", -1, number=new.min_isr)
        elif new.leader_epoch > old.leader_epoch and new.leader is not None:
            self._did("elect", new.leader)
        elif new.isr != old.isr and new.leader is not None:
            self._did("alter", -1, peer=int(new.leader), members=tuple(map(int, new.isr)))
