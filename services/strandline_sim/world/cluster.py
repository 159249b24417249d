"""The nodes of a run and what is known of them: machines, processes, partitions, topics; and the recorder.

Invariant: a recorder changes nothing, so a run is the same with and without one.
"""

from __future__ import annotations

from typing import Any, Protocol

from strandline.core.control.messages import ControllerRequest
from strandline.core.control.state import ClusterState
from strandline.core.coordinator.serving import Coordinators
from strandline.core.log.effects import Effect, Emit
from strandline.core.log.events import Event
from strandline.core.messages import OffsetAnswer
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline_sim.checks.committed import MetadataChecks
from strandline_sim.checks.group_history import Committed, Fetched
from strandline_sim.checks.history import EndAnswer, Names, Operation
from strandline_sim.runs.shape import Shape
from strandline_sim.world.disk import LogFile
from strandline_sim.world.environment import Build, Environment
from strandline_sim.world.machine import Machine
from strandline_sim.world.process import Process
from strandline_sim.world.record_codec import NumberedCodec


class Recorder:
    """Watches a run while it is replayed; this one keeps nothing."""

    def stepped(self, process: Process, event: Event, effects: list[Effect]) -> None:
        """A node's core took an event."""

    def controller_stepped(self, event: Any, effects: list[Any]) -> None:
        """The controller's core took an event."""

    def controller_reported(self, state: ClusterState, emit: Emit, now_ms: int) -> None:
        """The controller reported an event that is durable."""

    def note(self, lane: str, text: str) -> None:
        """Something happened that a replay shows as a line."""

    def decided(self, state: ClusterState) -> None:
        """The controller made a state durable."""

    def befell(self, machine: Machine[Process], what: str) -> None:
        """A machine had a fault that no core is informed of: ``crash``, ``power-off`` or ``wipe``."""

    def appended(self, process: Process, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Batches were written."""

    def truncated(self, process: Process, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """A log is about to be cut."""

    def hw_moved(self, process: Process, tp: TopicPartition, hw: int, leader: Any) -> None:
        """The HW of a replica changed."""

    def acknowledged(self, process: Process, tp: TopicPartition, start: int, end: int) -> None:
        """A producer got an acknowledgement."""


class Deciding(Protocol):
    """The controller, or the group of them, as clients and checks see it."""

    @property
    def is_old(self) -> bool:
        """Whether a backup replaced the store, and no recovery has followed yet."""

    def order(self, request: ControllerRequest) -> None:
        """An operator's request."""


class Cluster(Environment):
    """The machines of a run, the controller's decisions about them, and what clients saw."""

    controller: Deciding

    def __init__(self, shape: Shape, build: Build, recorder: Recorder | None) -> None:
        super().__init__(shape, build)
        self.recorder = recorder or Recorder()
        self.machines: dict[NodeId, Machine[Process]] = {}
        self.metadata = MetadataChecks(self)
        self.history: list[Operation] = []
        self.group_history: list[Committed | Fetched] = []
        self.names = Names()
        self.codec = NumberedCodec()
        self.coordinators: Coordinators | None = None
        self._ends: dict[TopicPartition, int] = {}

    @property
    def electable(self) -> list[NodeId]:
        """Every node but the observers."""
        return sorted(self.machines)[: len(self.machines) - self.shape.observers]

    def process_at(self, node: int) -> Process:
        """The process that runs on a node; called only when a message has just arrived there."""
        process = self.machines[NodeId(node)].process
        assert process is not None
        return process

    def leader_of(self, tp: TopicPartition) -> NodeId | None:
        """What a client learns when it refreshes its metadata."""
        image = self.metadata.partitions.get(tp)
        return image.leader if image is not None else None

    def leader_epoch_of(self, tp: TopicPartition) -> LeaderEpoch | None:
        """The leader epoch in which `leader_of` leads."""
        image = self.metadata.partitions.get(tp)
        return image.leader_epoch if image is not None else None

    def log_start(self, tp: TopicPartition) -> int:
        """The current start of the leader's log: the answer to a client that asks for the earliest offset."""
        leader = self.leader_of(tp)
        return self.machines[leader].log(tp).log_start if leader is not None else 0

    def ended(self, tp: TopicPartition, answer: OffsetAnswer, invoked_s: float) -> None:
        """A client was told the end of a partition."""
        assert answer.offset is not None and answer.leader_epoch is not None
        if answer.leader_epoch >= self._ends.get(tp, 0):
            self._ends[tp] = answer.leader_epoch
            self.history.append(
                EndAnswer(
                    partition=tp.partition,
                    offset=answer.offset,
                    invoked_s=invoked_s,
                    completed_s=self.timeline.now_us / 1e6,
                )
            )

    def note(self, lane: str, text: str) -> None:
        """A line for the reader of a replay."""
        self.recorder.note(lane, text)
