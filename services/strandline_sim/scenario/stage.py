"""Moves the world of a scenario: one event at a time, into production cores, on a clock that only `tick` moves.

Invariant: only what a command asked for happens. Messages wait on the wire, commits (when held) on the disk, and
time passes only by `tick`; so a file always replays to the same lines.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial

from strandline.core.errors import Refusal
from strandline.core.log import events
from strandline.core.log.effects import Effect, Emit
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.transactions.messages import ProducerIdentity
from strandline.core.types import Durability, TopicPartition
from strandline.observe.reporting import Reporting
from strandline_sim.scenario.board import CONTROLLER, Envelope, Observers
from strandline_sim.scenario.clients import Clients
from strandline_sim.scenario.control import Control
from strandline_sim.scenario.coordinators import GroupCoordinator, TransactionCoordinator
from strandline_sim.scenario.nodes import TP, Actor
from strandline_sim.scenario.performing import Played, TruthLooks, perform
from strandline_sim.scenario.telling import Sight, change_text, emitted_text, sight_of

TICK_MS = 100
"""The steps in which `tick` moves the clock."""
STEPS_WITHOUT_END = 20_000
"""A `stabilize` that needs more messages than this is in a loop, which is a finding."""


class Stage(Played):
    """Nodes, controller, wire, disks, clients and the clock."""

    def __init__(self, observers: Observers | None = None) -> None:
        super().__init__(observers)
        self.clients = Clients(self)
        self.control = Control(self)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self, self.groups)
        self._sights: dict[str, Sight] = {}

    def step(self, actor: Actor, event: events.Event) -> None:
        """Step one node with an event, and with all that follows from it at once."""
        queue = deque([event])
        while queue and actor.core is not None:
            event = queue.popleft()
            self.observers.trace(actor.name, event)
            try:
                asked = actor.core.step(event)
            except AssertionError as error:
                self.tell(f"!! {actor.name} stops by an assertion of its own: {error}")
                self.truth.breaks("I0", actor.name, str(error), self.lines)
                self.end_process(actor)
                return
            self._observe(actor, asked)
            queue.extend(self._perform(actor, asked))
            self.check()
        actor.logs.sync_saves()

    def _perform(self, actor: Actor, asked: list[Effect]) -> list[events.Event]:
        follow: list[events.Event] = []
        for effect in asked:
            self.observers.trace(actor.name, effect)
            follow.extend(perform(self, actor, effect))
            if actor.core is None:
                break
        return follow

    def _observe(self, actor: Actor, asked: list[Effect]) -> None:
        """Print what a node decided, and what changed in it."""
        for effect in asked:
            if isinstance(effect, Emit) and (text := emitted_text(effect)):
                self.tell(f"{actor.name}: {text}")
        before, after = self._sights.get(actor.name, Sight()), sight_of(actor.core)
        self._sights[actor.name] = after
        if text := change_text(before, after, self.names):
            self.tell(f"{actor.name}: {text}")

    def check(self) -> None:
        """Check the safety properties."""
        self.truth.check(self.actors.values(), self.control.decided(), self.lines)

    def consent(self, producer_id: int, producer_epoch: int, tp: TopicPartition) -> Refusal | None:
        """The coordinator's answer about a partition to which a producer's transaction writes for the first time."""
        producers = self.clients.producers
        if not producers.is_identified(producer_id):
            return producers.verdict(producer_id)
        identity = ProducerIdentity(producer_id, producer_epoch)
        return self.transactions.verdict(producers.transactional_id_of(producer_id), identity, tp)

    def tick(self, ms: int, *, settle: bool = False) -> None:
        """Let time pass; with ``settle`` everything that can arrive does so after each tick."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + TICK_MS)
            self.control.tick()
            self.transactions.tick()
            self.groups.tick()
            for actor in self.running():
                self.step(actor, events.Ticked(self.now_ms))
            if settle:
                self.settle()

    def add(self, name: str, timings: NodeTimings, *, observer: bool) -> Actor:
        """Add a node, without a process yet."""
        actor = Actor(
            name,
            self.names.add(name),
            timings,
            observer=observer,
            clock=lambda: self.now_ms,
            looks=partial(TruthLooks, self),
        )
        self.actors[name] = actor
        return actor

    def start(self, actor: Actor, *, unclean: bool | None = None) -> bool:
        """Begin a process: recover, register, watch. ``unclean`` overrides the disk's own record (M58)."""
        disk = actor.disk
        disk.recover(trusts_only_clean_stops=self.rules.durability is Durability.PAGE_CACHE)
        if unclean is not None:
            disk.is_unclean = unclean
        actor.life += 1
        registered = self.control.register(actor)
        if registered is None:
            return False
        disk.is_unclean = False
        actor.core = NodeCore(
            node_id=actor.node_id, rules=self.rules, timings=actor.timings, seen=disk.seen, observe=Reporting
        )
        self._sights[actor.name] = Sight()
        self.step(actor, replace(registered, now_ms=self.now_ms))
        self.control.watch(actor)
        return True

    def end_process(self, actor: Actor, *, keep_sent: bool = False) -> None:
        """End the process; messages to it are lost, and by default those that it sent, too."""
        if actor.core is None:
            return
        actor.core = None
        self._sights[actor.name] = Sight()
        for envelope in self.wire.touching(actor.name):
            if not (keep_sent and envelope.link.source == actor.name):
                self.wire.take(envelope)
                envelope.fail("the process ended")
        self.control.forget(actor)
        self._forget_requests(actor)
        self.clients.gone(actor)
        actor.log.flushing, actor.commit = None, None

    def _forget_requests(self, actor: Actor) -> None:
        """Callers that wait for a dead process get a failure; a process that serves a dead caller learns that it
        is gone."""
        for request_id, asked in list(self.asked.items()):
            if asked.leader == actor.name:
                del self.asked[request_id]
                asked.fail("the leader's process ended")
            elif asked.asker == actor.name:
                del self.asked[request_id]
                leader = self.actors[asked.leader]
                if asked.arrived and leader.is_running:
                    self.step(leader, events.CallGone(self.now_ms, request_id))

    def complete_commit(self, actor: Actor) -> None:
        """Complete the commit in progress on a disk."""
        commit = actor.commit
        assert commit is not None, "the caller must hold a commit in flight"
        actor.commit = None
        commit.sync()
        self.step(actor, events.LogFlushed(self.now_ms, TP, commit.leo_at_issue))

    def deliver(self, envelope: Envelope) -> None:
        """Let a message arrive, or be lost if its link is cut or its target has no process."""
        if envelope.link in self.wire.cut or not self.is_there(envelope.link.target):
            self.lose(envelope)
            return
        self.wire.take(envelope)
        if self.tells_messages:
            self.tell(f"{envelope.link} arrived: {envelope.text}")
        envelope.arrive()

    def lose(self, envelope: Envelope, *, silently: bool = False) -> None:
        """Lose a message; its sender is informed, unless ``silently``."""
        self.wire.take(envelope)
        if self.tells_messages:
            self.tell(f"{envelope.link} lost: {envelope.text}")
        if not silently:
            envelope.fail("lost")

    def is_there(self, place: str) -> bool:
        """Whether a process listens at a place."""
        return self.control.core is not None if place == CONTROLLER else self.actors[place].is_running

    def settle(self) -> None:
        """Deliver and commit until nothing in transit can move."""
        for _ in range(STEPS_WITHOUT_END):
            committing = next((a for a in self.running() if a.commit is not None and not a.holds_commits), None)
            envelope = self.wire.next_free()
            if committing is not None:
                self.complete_commit(committing)
            elif envelope is not None:
                self.deliver(envelope)
            else:
                return
        self.tell(f"!! {STEPS_WITHOUT_END} messages and no end")
