"""The traffic between nodes and controller: registrations and heartbeats at once, all else as messages.

Invariant: metadata is addressed to the incarnation that watches (TR15); a change that is lost breaks the watch,
which is opened again with a snapshot as soon as the controller can be reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeVar

from strandline.core import messages as core_messages
from strandline.core.control import events as control_events, events as want, messages
from strandline.core.control.recovery import GivenNode, position_sent, recover
from strandline.core.control.state import ClusterState, latest
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import events
from strandline.core.log.effects import Emit
from strandline.core.types import NodeEpoch
from strandline_sim.checks.reassignments import reassignment_fault
from strandline_sim.scenario import telling
from strandline_sim.scenario.board import CONTROLLER, Board, Envelope, Link
from strandline_sim.scenario.controllers import StagedControllers
from strandline_sim.scenario.controlling import StagedController
from strandline_sim.scenario.nodes import TP, Actor

CLUSTER_ID = "scenario"
SECRET = "5c" * 32
_NOWHERE = core_messages.Endpoint("127.0.0.1", 1)
_NO_ANSWER = Refusal(ErrorCode.REQUEST_TIMED_OUT, "the store did not say in time what became of it")
A = TypeVar("A")


class CallRefused(Exception):
    """The controller refused a call as a whole."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class _Forgotten(NamedTuple):
    """The changes that a store lost when it went back in time."""

    decided: core_messages.PartitionImage | None
    """The partition as it was known outside."""
    kept: core_messages.PartitionImage | None
    """The partition as the store has it now."""

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch in the store now; None if it has no such partition."""
        return self.kept.leader_epoch if self.kept else None


class Control:
    """The controller that serves, and its connections to the nodes."""

    def __init__(self, stage: Board) -> None:
        self._stage = stage
        self.core: StagedController | None = None
        self.group: StagedControllers | None = None
        """The controllers with their store, once there are any."""
        self._forgotten: _Forgotten | None = None
        self._answers: dict[int, object] = {}
        self._opening: Actor | None = None
        # The incarnation with which each node watches.
        self._watchers: dict[str, NodeEpoch] = {}
        self.producer_ids: dict[str, int] = {}
        """The first id of the newest block that each node was given."""
        # Every metadata message ever sent to a node, for late deliveries.
        self.reported: dict[str, list[core_messages.MetadataImage]] = {}

    @property
    def _stored(self) -> ClusterState | None:
        return self.group.store.state if self.group else None

    @property
    def transactions(self) -> int:
        """How many transactions the store holds."""
        return len(self.group.store.heads) if self.group else 0

    @property
    def reign(self) -> int:
        """Which reign this is, counted from 1; 0 before the first."""
        return self.group.reigns if self.group else 0

    def topic_name(self, topic_id: str) -> str | None:
        """The name of a topic, if the store has it."""
        topic = self._stored.topics.get(topic_id) if self._stored else None
        return topic.name if topic else None

    def lose_transactions(self, count: int) -> None:
        """Let the store go back in time, like one restored from a backup."""
        assert self.group is not None
        before = self.decided()
        self.group.store.restore(self.transactions - count)
        self._forgotten = _Forgotten(before, self.partition())

    def recover(self) -> None:
        """What an operator does with the nodes' directories (`strandline controller recover`), then every start."""
        given = [
            GivenNode(node_id=actor.node_id, directory_id=actor.directory_id, image=actor.disk.seen)
            for actor in self._stage.actors.values()
        ]
        if self.core is not None:
            self.end()
        assert self.group is not None
        self._forgotten = None
        self.group.restart_on(recover(given, self._stored))

    def start(self, *names: str) -> None:
        """Start the controllers that do not run; ``names`` are those of several, given before the first start."""
        if self.group is None:
            self.group = StagedControllers(self, names or (CONTROLLER,))
        self.group.start()

    def crash(self) -> None:
        """End every controller's process; the store stays as it is."""
        self.end()
        if self.group is not None:
            self.group.members.clear()

    # The interface that the controllers need.

    @property
    def now_ms(self) -> int:
        """The clock."""
        return self._stage.now_ms

    def tell(self, line: str) -> None:
        """Print a line of output."""
        self._stage.tell(line)

    def positions_sent(self) -> set[core_messages.Position]:
        """The positions of the metadata that were ever sent to a node."""
        sent = (position_sent(image) for images in self.reported.values() for image in images)
        return {position for position in sent if position is not None}

    def breaks(self, invariant: str, how: str) -> None:
        """A property does not hold."""
        self._stage.truth.breaks(invariant, CONTROLLER, how, self._stage.lines)

    def new_core(self, state: ClusterState | None) -> StagedController:
        """The core of a reign that begins from a state."""
        return StagedController(state, self._stage.rules, self._stage.controller_timings)

    def started(self, reign_id: str) -> control_events.ControllerStarted:
        """The first event of a reign."""
        return control_events.ControllerStarted(self._stage.now_ms, CLUSTER_ID, SECRET, reign_id)

    def serve(self, core: StagedController) -> None:
        """A controller begins to serve: nodes watch it from now on, and no other one."""
        self.core = core
        self._watchers.clear()
        for actor in self._stage.running():
            self.watch(actor)

    def stored(self, before: core_messages.PartitionImage | None) -> None:
        """A transaction is stored; ``before`` is the partition without it."""
        after = self.partition()
        if after is not None and after != before:
            if fault := reassignment_fault(before, after):
                self.breaks("I25", fault)
            self._stage.tell(f"{CONTROLLER}: {telling.partition_text(after, self._stage.names)}")

    def end(self) -> None:
        """End the process; messages to and from it are lost, its store stays."""
        self.core = None
        self._watchers.clear()
        for envelope in self._stage.wire.touching(CONTROLLER):
            self._stage.wire.take(envelope)
            envelope.fail("the controller's process ended")

    def partition(self) -> core_messages.PartitionImage | None:
        """The partition as it is committed."""
        return self._stored.partition(TP) if self._stored else None

    def decided(self) -> core_messages.PartitionImage | None:
        """The partition as it was last decided and published.

        A store that lost its end has another state, which has no effect until a leader is elected from it.
        """
        found, forgotten = self.partition(), self._forgotten
        if forgotten is None:
            return found
        if found is not None and found.leader is not None and found.leader_epoch != forgotten.leader_epoch:
            return found
        return forgotten.decided

    def position(self) -> core_messages.Position | None:
        """The position of the store's end; None if it is empty."""
        stored = self._stored
        reign = latest(stored.reigns) if stored else None
        return core_messages.Position(reign.reign_id, stored.header.metadata_offset) if stored and reign else None

    @property
    def serving(self) -> StagedController:
        """The running core."""
        assert self.core is not None, "a verb made sure that the controller runs"
        return self.core

    def trace(self, what: control_events.ControllerEvent | want.ControllerEffect) -> None:
        """Show an event or an effect to the watchers of the run."""
        self._stage.observers.trace(CONTROLLER, what)

    def step(self, event: control_events.ControllerEvent) -> None:
        """Step the controller with an event."""
        self.trace(event)
        self.perform(self.serving.step(event))

    def perform(self, effects: list[want.ControllerEffect]) -> None:
        """Perform a list of its effects."""
        assert self.group is not None and self.group.active is not None
        self.group.run(self.group.active, effects)
        self._stage.check()

    def perform_one(self, effect: want.ControllerEffect) -> None:
        """Perform one effect."""
        match effect:
            case want.Publish():
                self._publish(effect)
            case want.Answer():
                self._answers[effect.request_id] = effect.answer
            case want.RefuseCall():
                self._answers[effect.request_id] = effect.refusal
            case want.OpenWatch():
                self._open_watch(effect)
            case want.StopServing():
                self._stage.tell(f"{CONTROLLER}: serves no more: {effect.reason}")
            case Emit():
                self._stage.report(CONTROLLER, None, effect.tp, effect.event)

    def ask(self, request: messages.ControllerRequest, kind: type[A]) -> A:
        """Ask at once, without the wire.

        Raises:
            CallRefused: the call was refused as a whole.
        """
        request_id = self._stage.request_id()
        self.step(control_events.RequestArrived(self._stage.now_ms, request_id, request))
        answer = self._answers.pop(request_id, _NO_ANSWER)
        if isinstance(answer, Refusal):
            raise CallRefused(answer)
        assert isinstance(answer, kind)
        return answer

    def register(self, actor: Actor) -> events.Registered | None:
        """Register a new process. None, with a printed line, if it is refused or cannot reach the controller."""
        if self._is_cut_off(actor):
            return None
        seen = actor.disk.seen
        request = core_messages.RegisterNode(
            node_id=actor.node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=actor.incarnation_id,
            directory_id=actor.directory_id,
            roles=actor.roles,
            rules=self._stage.rules,
            client_endpoint=_NOWHERE,
            internal_endpoint=_NOWHERE,
            unclean=actor.disk.is_unclean,
            controller_epoch_seen=seen.controller_epoch if seen else None,
            epochs_seen=_epochs_in(seen) if seen else (),
            known_incarnations=actor.disk.begin_incarnation(actor.incarnation_id),
            position=seen.position if seen else None,
        )
        try:
            answer = self.ask(request, core_messages.NodeRegistered)
        except CallRefused as error:
            answer = core_messages.NodeRegistered(refusal=error.refusal)
        if answer.refusal is not None or answer.node_epoch is None:
            code = answer.refusal.code.name if answer.refusal else "no epoch"
            self._stage.tell(f"{actor.name}: registration refused, {code}")
            return None
        actor.disk.confirm_incarnation(actor.incarnation_id)
        unclean = ", unclean" if actor.disk.is_unclean else ""
        self._stage.tell(f"{actor.name}: registered with node epoch {answer.node_epoch}{unclean}")
        return events.Registered(0, answer.cluster_id, answer.node_epoch, answer.controller_epoch)

    def allocate_producer_ids(self, actor: Actor) -> None:
        """Give a node a block of producer ids, or print why it got none."""
        if self._is_cut_off(actor):
            return
        assert actor.core is not None and actor.core.state.node_epoch is not None
        request = messages.AllocateProducerIds(
            cluster_id=CLUSTER_ID, node_id=actor.node_id, node_epoch=actor.core.state.node_epoch
        )
        try:
            block = self.ask(request, messages.ProducerIdsAllocated)
        except CallRefused as error:
            block = messages.ProducerIdsAllocated(refusal=error.refusal)
        if block.refusal is not None:
            self._stage.tell(f"{actor.name}: no producer ids, {block.refusal.code.name}")
            return
        self.producer_ids[actor.name] = block.start
        self._stage.tell(f"{actor.name}: producer ids {block.start} to {block.start + block.length - 1}")

    def _is_cut_off(self, actor: Actor) -> bool:
        both = {Link(actor.name, CONTROLLER), Link(CONTROLLER, actor.name)}
        if self.core is not None and not both & self._stage.wire.cut:
            return False
        self._stage.tell(f"{actor.name}: cannot reach the controller")
        return True

    def beat(self, actor: Actor, *, wants_shut_down: bool = False) -> None:
        """One heartbeat, answered at once."""
        if self._is_cut_off(actor):
            return
        assert actor.core is not None and actor.core.state.node_epoch is not None
        request = core_messages.Heartbeat(
            cluster_id=CLUSTER_ID,
            node_id=actor.node_id,
            node_epoch=actor.core.state.node_epoch,
            metadata_offset=actor.disk.seen.metadata_offset if actor.disk.seen else 0,
            want_fence=actor.wants_fence,
            want_shut_down=wants_shut_down,
            position=actor.disk.seen.position if actor.disk.seen else None,
        )
        try:
            answer = self.ask(request, core_messages.HeartbeatAnswer)
        except CallRefused as error:
            answer = core_messages.HeartbeatAnswer(refusal=error.refusal)
        if answer.refusal is not None:
            self._stage.tell(f"{actor.name}: heartbeat refused, {answer.refusal.code.name}")
        actor.next_beat_ms = self._stage.now_ms + self._stage.controller_timings.heartbeat_interval_ms

    def registered_epoch(self, actor: Actor) -> int:
        """The node epoch of the node's newest registration, 0 if there was none."""
        record = self._stored.nodes.get(actor.node_id) if self._stored else None
        return record.image.node_epoch if record else 0

    def alter_configs(self, changes: tuple[tuple[str, str], ...]) -> Refusal | None:
        """Change settings of the topic."""
        change = messages.ConfigChange(messages.TopicRef(topic_id=TP.topic_id), changes)
        answer = self.ask(messages.AlterTopicConfigs(cluster_id=CLUSTER_ID, topics=(change,)), messages.TopicsChanged)
        return answer.topics[0].refusal

    def tick(self) -> None:
        """Time passed: heartbeats that are due and can pass, then sessions that end."""
        if self.group is not None:
            self.group.tick()
        if self.group is None or self.core is None or self.group.is_paused:
            return
        stage = self._stage
        for actor in stage.running():
            if not stage.is_connected(actor.name, CONTROLLER):
                continue
            if actor.name not in self._watchers:
                self.watch(actor)
            if actor.next_beat_ms <= stage.now_ms:
                self.beat(actor)
        self.step(control_events.ControllerTicked(stage.now_ms))

    def watch(self, actor: Actor) -> None:
        """Open a node's watch; its snapshot is sent first."""
        if self.core is None or actor.core is None:
            return
        node_epoch = actor.core.state.node_epoch
        assert node_epoch is not None
        self._opening = actor
        request = messages.WatchMetadata(cluster_id=CLUSTER_ID, node_id=actor.node_id, node_epoch=node_epoch)
        self.step(control_events.WatchArrived(self._stage.now_ms, self._stage.request_id(), request))
        self._opening = None

    def _open_watch(self, effect: want.OpenWatch) -> None:
        actor = self._opening
        assert actor is not None and effect.node_epoch is not None
        self._watchers[actor.name] = effect.node_epoch
        self._send_metadata(actor, effect.snapshot)

    def _publish(self, effect: want.Publish) -> None:
        for actor in self._stage.running():
            node_epoch = self._watchers.get(actor.name)
            if node_epoch is not None:
                position = effect.position_for(actor.node_id, node_epoch)
                self._send_metadata(actor, replace(effect.image, to_node_epoch=node_epoch, position=position))

    def _send_metadata(self, actor: Actor, image: core_messages.MetadataImage) -> None:
        stage, life = self._stage, actor.life
        self.reported.setdefault(actor.name, []).append(image)
        partition = telling.partition_in(image)

        def arrive() -> None:
            self.hand(actor, image)

        def fail(_: str) -> None:
            if actor.life == life:
                self._watchers.pop(actor.name, None)

        text = telling.metadata_text(image, stage.names)
        epoch = partition.leader_epoch if partition else None
        version = partition.partition_epoch if partition else None
        stage.send(Envelope(Link(CONTROLLER, actor.name), "metadata", text, arrive, fail, epoch, version))

    def hand(self, actor: Actor, image: core_messages.MetadataImage) -> None:
        """Deliver metadata to a node."""
        self._stage.step(actor, events.MetadataArrived(self._stage.now_ms, image))

    def forget(self, actor: Actor) -> None:
        """A node's process ended, and its watch with it."""
        self._watchers.pop(actor.name, None)

    def report(self, actor: Actor, request: core_messages.ReportReplicaLogs) -> Refusal | None:
        """Report a node's log to the controller at once. Returns why that failed."""
        if self._is_cut_off(actor):
            return Refusal(ErrorCode.NETWORK_EXCEPTION, "the controller cannot be reached")
        (info,) = request.logs
        self._stage.tell(f"{actor.name}: {telling.report_text(info)}")
        try:
            return self.ask(request, core_messages.ReplicaLogsReported).refusal
        except CallRefused as error:
            return error.refusal

    def propose(self, actor: Actor, request: core_messages.AlterPartitionRequest) -> None:
        """Put a leader's proposal on the wire."""
        stage, life, sequence = self._stage, actor.life, request.request_sequence

        def alive() -> bool:
            return actor.is_running and actor.life == life

        def fail(reason: str) -> None:
            if alive():
                stage.step(actor, events.AlterPartitionFailed(stage.now_ms, sequence, reason))

        def answer(found: core_messages.AlterPartitionAnswer) -> None:
            if alive():
                stage.step(actor, events.AlterPartitionAnswered(stage.now_ms, sequence, found))

        def arrive() -> None:
            found = self.decide(request)
            text = telling.altered_text(found, stage.names)
            stage.send(Envelope(Link(CONTROLLER, actor.name), "altered", text, lambda: answer(found), fail))

        text = telling.alter_text(request, stage.names)
        stage.send(Envelope(Link(actor.name, CONTROLLER), "alter", text, arrive, fail))

    def decide(self, request: core_messages.AlterPartitionRequest) -> core_messages.AlterPartitionAnswer:
        """Let the controller decide a proposal now."""
        try:
            return self.ask(request, core_messages.AlterPartitionAnswer)
        except CallRefused as error:
            return core_messages.AlterPartitionAnswer(refusal=error.refusal)


def _epochs_in(image: core_messages.MetadataImage) -> tuple[core_messages.EpochsSeen, ...]:
    return tuple(
        core_messages.EpochsSeen(p.tp, p.leader_epoch, p.partition_epoch)
        for topic in image.topics
        for p in topic.partitions
    )
