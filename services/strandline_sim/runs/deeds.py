"""What of a run is worth showing: the deeds of the world, in order, that one partition's cores were moved by.

Invariant: a deed says what was done to a core or a machine, never what a core decided; who does the same deeds to the
same cores gets the same decisions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.core.control.state import ClusterState
from strandline.core.log import effects as want
from strandline.core.log import events
from strandline.core.log.effects import Effect
from strandline.core.log.events import Event
from strandline.core.messages import PartitionImage
from strandline.core.types import Acks, NodeId, TopicPartition
from strandline_sim.runs.trace import Digest
from strandline_sim.world.machine import Machine
from strandline_sim.world.process import Process


class Deed(NamedTuple):
    """One thing that was done. ``node`` is whom it befell, ``peer`` who else took part; ``number`` and ``kind`` vary.

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
        """Keep what this core received, if it is about the partition."""
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
        """Keep what befell a machine."""
        number = machine.log(self._tp).leo if what == "power-off" else 0
        self._did(what, machine.node_id, number=number)

    def decided(self, state: ClusterState) -> None:
        """Keep what somebody made the controller decide: sessions, elections, proposals, settings."""
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
        """What happened to nodes; whether anything did."""
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
