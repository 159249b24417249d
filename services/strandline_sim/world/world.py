"""How the parts of a simulated cluster meet: timeline, network, machines, controller, clients, checks.

Invariant: a world is a function of its shape and its build: nothing in it asks the real clock, a real random source,
the order of a set or of a hash, so the same seed is the same run, event by event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from strandline.core.control.controller import ControllerCore
from strandline.core.control.election import Elected, ElectionType
from strandline.core.control.events import ControllerEffect
from strandline.core.control.leadership import install
from strandline.core.control.messages import CreateTopics, NewTopic
from strandline.core.control.state import ClusterState, ControllerTimings
from strandline.core.control.topic_configs import MIN_ISR
from strandline.core.log.effects import Effect, Emit
from strandline.core.log.events import Event
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import OffsetAnswer
from strandline.core.types import Acks, LeaderEpoch, NodeId, Rules, TopicPartition
from strandline.observe.reporting import Reporting
from strandline_sim.checks.checks import Checks
from strandline_sim.checks.committed import Broken
from strandline_sim.checks.group_history import Committed, Fetched
from strandline_sim.checks.history import Operation
from strandline_sim.clients import coordinators, transacting
from strandline_sim.clients.clients import Names, Producer
from strandline_sim.clients.committers import CLIENTS, Committer
from strandline_sim.clients.groups import STATE_PARTITIONS, Groups
from strandline_sim.clients.readers import CommittedReader, Consumer, end_answer
from strandline_sim.clients.transacting import Transacting
from strandline_sim.control.controller import Controller
from strandline_sim.control.controllers import Controllers
from strandline_sim.runs.shape import Shape
from strandline_sim.world.clock import Timeline
from strandline_sim.world.coverage import Coverage
from strandline_sim.world.disk import LogFile
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.faults import Faults
from strandline_sim.world.machine import Machine
from strandline_sim.world.network import Network
from strandline_sim.world.process import Process
from strandline_sim.world.virtual_loop import VirtualLoop

# ---- build
# Which cores a world runs: the production ones, or ones with one rule exchanged.
#
# Invariant: a world never names a core class itself, so a mutant is a `Build` and nothing else changes.


class ElectableController(ControllerCore):
    """The production controller, and a way to hold an election that nothing but a schedule asks for (churn)."""

    def elect(self, tp: TopicPartition, node_id: NodeId) -> list[ControllerEffect]:
        """Make an active and proven member of the ISR leader, by the production rules of an election."""
        draft = self._draft()
        partition = draft.partition(tp)
        proven = () if partition is None else set(partition.isr) - set(partition.unproven)
        if partition is not None and node_id in proven and draft.is_active(node_id):
            install(draft, partition, Elected(node_id, ElectionType.ISR), "requested")
        return self._commit(draft)


OBSERVED_NODE = partial(NodeCore, observe=Reporting)
"""A data node's core as services make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How to make the cores of a world."""

    node_core: Callable[..., NodeCore] = OBSERVED_NODE
    controller_core: Callable[[ClusterState | None, Rules, ControllerTimings], ElectableController] = (
        ElectableController
    )


PRODUCTION = Build()


FIRST_CONSUMER = 50
"""Number of the first consumer; producers count from 0."""

TOPIC_ID = "00000000-0000-0000-0000-000000000001"

_ORDER_AGAIN_US = 2_000_000
"""Longer than a reign that lives takes to make the topic."""

_STARTED_WITHIN_US = 60_000_000
"""No fault happens before the topic is there, but messages may be lost, clocks wrong, and reigns end."""

NODE_TIMINGS = NodeTimings(
    replica_lag_time_max_ms=700,
    replica_fetch_wait_max_ms=120,
    replica_fetch_response_max_bytes=4_096,
    replica_fetch_max_bytes=2_048,
    replica_fetch_backoff_ms=20,
    replica_fetch_backoff_max_ms=200,
    alter_partition_retry_ms=30,
    high_watermark_checkpoint_interval_ms=400,
    pause_grace_after_ms=200,
)
CONTROLLER_TIMINGS = ControllerTimings(
    # Steps are cut wherever a node leaves two partitions.
    partitions_per_step=1,
    session_timeout_ms=600,
    heartbeat_interval_ms=150,
    leader_imbalance_check_interval_ms=3_000,
)


class Recorder(Protocol):
    """Looks on while a run is replayed; it must change nothing."""

    def stepped(self, process: Process, event: Event, effects: list[Effect]) -> None:
        """A node's core took an event."""
        ...

    def controller_stepped(self, event: Any, effects: list[Any]) -> None:
        """The controller's core took an event."""
        ...

    def controller_reported(self, state: ClusterState, emit: Emit, now_ms: int) -> None:
        """The controller reported something that is durable."""
        ...

    def note(self, lane: str, text: str) -> None:
        """Something worth a line happened."""
        ...

    def decided(self, state: ClusterState) -> None:
        """The controller made a state durable."""
        ...

    def befell(self, machine: Machine, what: str) -> None:
        """A machine was struck by something that no core learns of: ``crash``, ``power-off`` or ``wipe``."""
        ...

    def appended(self, process: Process, tp: TopicPartition, log: LogFile, first: int) -> None:
        """Batches were written."""
        ...

    def truncated(self, process: Process, tp: TopicPartition, log: LogFile, offset: int) -> None:
        """A log is about to be cut."""
        ...

    def hw_moved(self, process: Process, tp: TopicPartition, hw: int, leader: Any) -> None:
        """A replica's HW is another than before."""
        ...

    def acknowledged(self, process: Process, tp: TopicPartition, start: int, end: int) -> None:
        """A producer got an acknowledgement."""
        ...


class World:
    """One run."""

    def __init__(self, shape: Shape, *, build: Build = PRODUCTION, recorder: Recorder | None = None) -> None:
        self.shape = shape
        self.build = build
        self.recorder = recorder
        self.rules = Rules(durability=shape.durability, truncation=shape.truncation)
        self.node_timings = NODE_TIMINGS
        self.controller_timings = CONTROLLER_TIMINGS
        if shape.profile.has_members:
            self.controller_timings = replace(CONTROLLER_TIMINGS, group_state_partitions=STATE_PARTITIONS)
        if shape.profile.has_transactions:
            self.controller_timings = replace(
                CONTROLLER_TIMINGS,
                group_state_partitions=transacting.STATE_PARTITIONS,
                transaction_state_partitions=transacting.STATE_PARTITIONS,
            )
        self.timeline = Timeline()
        self.loop = VirtualLoop(self.timeline)
        self.events = 0
        self.coverage = Coverage()
        self.history: list[Operation] = []
        self.names = Names()
        self.network = Network(
            self.timeline,
            shape.seed,
            delay_us=shape.delay_us,
            lost_per_mille=shape.lost_per_mille,
            sticky=shape.sticky,
        )
        self.machines: dict[NodeId, Machine] = {}
        self.checks = Checks(self)
        self.controller: Controller | Controllers = (
            Controller(self) if shape.profile.controllers == 1 else Controllers(self)
        )
        for number in range(shape.nodes):
            self.machines[NodeId(number)] = Machine(self, NodeId(number))
        self.faults = Faults(self)
        self.topic_id = TOPIC_ID
        self.tps = [TopicPartition(TOPIC_ID, index) for index in range(shape.partitions)]
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.committers: list[Committer] = []
        self.group_history: list[Committed | Fetched] = []
        self.codec = coordinators.NumberedCodec()
        self.coordinators = coordinators.make(self.codec) if shape.profile.has_groups else None
        self.groups = Groups(self) if shape.profile.has_members else None
        if self.groups is not None:
            self.coordinators = self.groups.coordinators
        self.transactions = Transacting(self) if shape.profile.has_transactions else None
        if self.transactions is not None:
            self.coordinators = self.transactions.coordinators
        self._ends: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Start everything, make the topic, plan the faults."""
        self.controller.start()
        for machine in self.machines.values():
            machine.start()
        while len(self.checks.metadata.directories) < len(self.machines):
            self._run_on("register")
        draw = Draw(self.shape.seed, Purpose.SHAPE, 1)
        assignments = []
        for tp in self.tps:
            replicas = draw.sample(self.electable, self.shape.replication_factor)
            assignments.append((tp.partition, tuple(replicas)))
        configs = ((MIN_ISR, str(self.shape.min_isr)),)
        topic = NewTopic("t", TOPIC_ID, assignments=tuple(assignments), configs=configs)
        due_us = self.timeline.now_us
        while len(self.checks.metadata.partitions) < len(self.tps):
            # A reign may end before the topic is stored; then an operator asks the next one.
            if self.timeline.now_us >= due_us:
                self.controller.order(CreateTopics(topics=(topic,)))
                due_us += _ORDER_AGAIN_US
            self._run_on("have the topic")
        if self.groups is not None:
            self._create_topics_of(self.groups)
        if self.transactions is not None:
            self._create_topics_of(self.transactions)
        self._start_clients(draw)
        self.faults.plan()

    def _create_topics_of(self, clients: Groups | Transacting) -> None:
        due_us = self.timeline.now_us
        while not clients.is_ready:
            if self.timeline.now_us >= due_us:
                clients.order_topics()
                due_us += _ORDER_AGAIN_US
            self._run_on("have the topics of coordinators")
        clients.start()

    def _run_on(self, what: str) -> None:
        """Go on for a while, as long as the nodes may still take to do what is waited for."""
        if self.timeline.now_us > _STARTED_WITHIN_US:
            raise Broken("L9", f"the nodes do not {what} {_STARTED_WITHIN_US // 1_000_000} s after the start")
        self.timeline.run_until(self.timeline.now_us + 20_000)

    def close(self) -> None:
        """End every process; the run is over."""
        self.loop.failure = None
        for machine in self.machines.values():
            if machine.running is not None:
                machine.running.end()
        if isinstance(self.controller, Controllers):
            self.controller.end()
        elif self.controller.process is not None:
            self.controller.process.end(keeps_commit=False)

    def _start_clients(self, draw: Draw) -> None:
        if self.shape.profile.has_groups:
            for number in range(CLIENTS):
                committer = Committer(self, number, self.tps[number % len(self.tps)])
                self.committers.append(committer)
                self.timeline.after(100_000, committer.start)
            return
        for number in range(self.shape.producers):
            tp = self.tps[number % len(self.tps)]
            acks, window = draw.choose(((Acks.ALL, 1), (Acks.ALL, 3), (Acks.ALL, 0), (Acks.LEADER, 0)))
            if number == 0:
                acks, window = Acks.ALL, draw.choose((1, 2, 5))
            self.producers.append(Producer(self, number, tp, acks, window))
        reader = Consumer if self.transactions is None else CommittedReader
        for number in range(self.shape.consumers):
            self.consumers.append(reader(self, FIRST_CONSUMER + number, self.tps[number % len(self.tps)]))
        clients: list[Producer | Consumer] = [*self.producers, *self.consumers]
        for client in clients:
            if client.number not in self.shape.without:
                self.timeline.after(100_000, client.start)

    @property
    def electable(self) -> list[NodeId]:
        """Every node but the observers."""
        return sorted(self.machines)[: len(self.machines) - self.shape.observers]

    @property
    def outcast(self) -> NodeId | None:
        """The node that is left broken at the end (L8)."""
        return None if self.shape.outcast is None else NodeId(self.shape.outcast)

    def process_at(self, node: int) -> Process:
        """The process that runs on a node; asked only when a message has just arrived there."""
        process = self.machines[NodeId(node)].process
        assert process is not None
        return process

    def leader_of(self, tp: TopicPartition) -> NodeId | None:
        """What a client learns when it refreshes its metadata."""
        image = self.checks.metadata.partitions.get(tp)
        return image.leader if image is not None else None

    def leader_epoch_of(self, tp: TopicPartition) -> LeaderEpoch | None:
        """The leader epoch in which `leader_of` leads."""
        image = self.checks.metadata.partitions.get(tp)
        return image.leader_epoch if image is not None else None

    def log_start(self, tp: TopicPartition) -> int:
        """Where the leader's log begins now: the answer to a client that asks for the earliest offset."""
        leader = self.leader_of(tp)
        return self.machines[leader].log(tp).log_start if leader is not None else 0

    def ended(self, tp: TopicPartition, answer: OffsetAnswer, invoked_s: float) -> None:
        """A client got the end of a partition."""
        assert answer.offset is not None and answer.leader_epoch is not None
        if answer.leader_epoch >= self._ends.get(tp, 0):
            self._ends[tp] = answer.leader_epoch
            self.history.append(end_answer(tp, answer.offset, invoked_s, self.timeline.now_us / 1e6))

    def note(self, lane: str, text: str) -> None:
        """A line for the reader of a replay."""
        if self.recorder is not None:
            self.recorder.note(lane, text)
