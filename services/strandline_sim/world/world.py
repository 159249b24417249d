"""Puts the parts of a simulated cluster together: timeline, network, machines, controller, clients, checks.

Invariant: a world is a function of its shape and its build: nothing in it depends on the real clock, a real random
source, or the order of a set or of a hash, so the same seed gives the same run, event by event.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from strandline.core.control.messages import CreateTopics, NewTopic
from strandline.core.control.topic_configs import MIN_ISR
from strandline.core.types import Acks, NodeId, TopicPartition
from strandline_sim.checks.checks import Checks
from strandline_sim.checks.committed import Broken
from strandline_sim.clients import coordinators, transacting
from strandline_sim.clients.clients import CommittedReader, Consumer, Producer
from strandline_sim.clients.committers import CLIENTS, Committer
from strandline_sim.clients.groups import STATE_PARTITIONS, Groups
from strandline_sim.clients.transacting import Transacting
from strandline_sim.control.controllers import ControllerLink, Controllers
from strandline_sim.runs.shape import Shape
from strandline_sim.world.cluster import Cluster, Recorder
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.environment import CONTROLLER_TIMINGS, PRODUCTION, TOPIC_ID, Build
from strandline_sim.world.faults import Faults
from strandline_sim.world.losses import Losses
from strandline_sim.world.machine import Machine
from strandline_sim.world.node import NodeProcess
from strandline_sim.world.process import Process

FIRST_CONSUMER = 50
"""Number of the first consumer; producers count from 0."""

_ORDER_AGAIN_US = 2_000_000
"""Longer than a live reign takes to create the topic."""

_STARTED_WITHIN_US = 60_000_000
"""No fault happens before the topic exists, but messages may be lost, clocks may be wrong, and reigns may end."""


class World(Cluster):
    """One run."""

    def __init__(self, shape: Shape, *, build: Build = PRODUCTION, recorder: Recorder | None = None) -> None:
        super().__init__(shape, build, recorder)
        if shape.profile.has_members:
            self.controller_timings = replace(CONTROLLER_TIMINGS, group_state_partitions=STATE_PARTITIONS)
        if shape.profile.has_transactions:
            self.controller_timings = replace(
                CONTROLLER_TIMINGS,
                group_state_partitions=transacting.STATE_PARTITIONS,
                transaction_state_partitions=transacting.STATE_PARTITIONS,
            )
        losses = Losses(self)
        self.checks = Checks(self, losses)
        self.controllers = Controllers(self, self.checks)
        self.controller = self.controllers
        for number in range(shape.nodes):
            self.machines[NodeId(number)] = Machine(self, self.checks, NodeId(number), self._live)
        self.faults = Faults(self, self.controller, losses, self.read_by_all)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.committers: list[Committer] = []
        self.coordinators = coordinators.make(self.codec) if shape.profile.has_groups else None
        self.groups = Groups(self) if shape.profile.has_members else None
        if self.groups is not None:
            self.coordinators = self.groups.coordinators
        self.transactions = Transacting(self) if shape.profile.has_transactions else None
        if self.transactions is not None:
            self.coordinators = self.transactions.coordinators

    def _live(self, machine: Machine[Process], life: int) -> Process:
        link = partial(ControllerLink, self.controllers, self.faults.joiner.proposed, self.checks)
        return NodeProcess(self, self.checks, machine, life, link=link, transactions=self.transactions)

    def start(self) -> None:
        """Start everything, create the topic, plan the faults."""
        self.controllers.start()
        for machine in self.machines.values():
            machine.start()
        while len(self.metadata.directories) < len(self.machines):
            self._run_on("register")
        draw = Draw(self.shape.seed, Purpose.SHAPE, 1)
        assignments = []
        for tp in self.tps:
            replicas = draw.sample(self.electable, self.shape.replication_factor)
            assignments.append((tp.partition, tuple(replicas)))
        configs = ((MIN_ISR, str(self.shape.min_isr)),)
        topic = NewTopic("t", TOPIC_ID, assignments=tuple(assignments), configs=configs)
        due_us = self.timeline.now_us
        while len(self.metadata.partitions) < len(self.tps):
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
        """Run on for as long as the nodes may still need to do what is waited for."""
        if self.timeline.now_us > _STARTED_WITHIN_US:
            raise Broken("L9", f"the nodes do not {what} {_STARTED_WITHIN_US // 1_000_000} s after the start")
        self.timeline.run_until(self.timeline.now_us + 20_000)

    def close(self) -> None:
        """End every process; the run is over."""
        self.loop.failure = None
        for machine in self.machines.values():
            if machine.running is not None:
                machine.running.end()
        self.controllers.end()

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

    def read_by_all(self, tp: TopicPartition) -> int:
        """The offset below which every consumer of a partition has read it."""
        return min((consumer.position for consumer in self.consumers if consumer.tp == tp), default=0)
