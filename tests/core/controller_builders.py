"""A controller for tests: one call registers a node, time advances only on request, states read like the text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from strandline.core import messages as core_messages
from strandline.core.control import events, messages
from strandline.core.control.controller import ControllerCore
from strandline.core.control.draft import Draft
from strandline.core.control.state import ClusterState, ControllerTimings
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import Emit
from strandline.core.positions import prove
from strandline.core.types import (
    EpochEntry,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    Role,
    Rules,
    TopicPartition,
)

CLUSTER = "cluster-of-the-tests"
SECRET = "7e" * 32
TOPIC = "t"
TOPIC_ID = "11111111-0000-4000-8000-000000000000"
P0 = TopicPartition(TOPIC_ID, 0)
_REIGN_NUMBERS = count(1)


def new_reign_ids() -> Iterator[str]:
    """Ids of reigns, each given once in a test run: also on a store that another controller had before."""
    return (f"{number:032x}" for number in _REIGN_NUMBERS)


class Controller:
    """Drives one `ControllerCore` and remembers what it committed and reported."""

    def __init__(
        self,
        *,
        state: ClusterState | None = None,
        rules: Rules | None = None,
        timings: ControllerTimings | None = None,
        now_ms: int = 1_000_000,
        reign_ids: Iterator[str] | None = None,
        **given: Any,
    ) -> None:
        self.timings = timings or ControllerTimings()
        self.core = ControllerCore(state, rules or Rules(), self.timings, **given)
        self.now_ms = now_ms
        self.stored = state
        self.emitted: list[Emit] = []
        self.epochs: dict[int, NodeEpoch] = {}
        self._ids = count(1)
        self.step(events.ControllerStarted(now_ms, CLUSTER, SECRET, next(reign_ids or new_reign_ids())))

    def step(self, event: events.ControllerEvent) -> list[events.ControllerEffect]:
        """One step; checks that the core's state equals the committed state, and is committed before it is reported."""
        effects = self.core.step(event)
        for commit in [effect for effect in effects if isinstance(effect, events.Commit)]:
            before = self.stored or ClusterState(header=replace(commit.transaction.header, metadata_offset=0))
            self.stored = before.apply(commit.transaction)
            assert self.stored == self.core.state
            assert effects.index(commit) == 0
            assert isinstance(effects[1], events.Publish)
        self.emitted += [effect for effect in effects if isinstance(effect, Emit)]
        return effects

    def ask(self, request: messages.ControllerRequest) -> Any:
        """The answer to a request, or the rejection of the whole call."""
        request_id = next(self._ids)
        effects = self.step(events.RequestArrived(self.now_ms, request_id, request))
        ends = [e for e in effects if isinstance(e, events.Answer | events.RefuseCall) and e.request_id == request_id]
        assert len(ends) == 1
        return ends[0].answer if isinstance(ends[0], events.Answer) else ends[0].refusal

    def watch(self, request: messages.WatchMetadata) -> events.OpenWatch | Refusal:
        (effect,) = self.step(events.WatchArrived(self.now_ms, next(self._ids), request))
        if isinstance(effect, events.RefuseCall):
            return effect.refusal
        assert isinstance(effect, events.OpenWatch)
        return effect

    def pass_ms(self, duration_ms: int, *alive: int) -> None:
        """Let time pass in ticks of 100 ms, while the ``alive`` nodes send a heartbeat every second."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms += 100
            if self.now_ms % 1_000 == 0:
                for node_id in alive:
                    self.heartbeat(node_id)
            self.step(events.ControllerTicked(self.now_ms))

    def register(self, node_id: int, **given: Any) -> Any:
        """Register a node; returns a rejection, or else keeps the new node epoch."""
        answer = self.ask(registration(node_id, **given))
        if isinstance(answer, core_messages.NodeRegistered) and answer.node_epoch is not None:
            self.epochs[node_id] = answer.node_epoch
        return answer

    def start(self, *node_ids: int, **given: Any) -> None:
        """Register nodes and unfence them by a heartbeat."""
        for node_id in node_ids:
            answer = self.register(node_id, **given)
            assert answer.refusal is None, answer.refusal
            self.heartbeat(node_id)

    def heartbeat(self, node_id: int, **given: Any) -> Any:
        """One heartbeat of the node's latest incarnation."""
        fields: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "node_id": NodeId(node_id),
            "node_epoch": self.epochs[node_id],
            "metadata_offset": self.core.state.header.metadata_offset,
        }
        return self.ask(core_messages.Heartbeat(**{**fields, **given}))

    def fence(self, *node_ids: int) -> None:
        """End the nodes' sessions one after another, by the controller's own probe."""
        for node_id in node_ids:
            self.fence_together(node_id)

    def fence_together(self, *node_ids: int) -> None:
        """End the nodes' sessions at once, by the controller's own probe."""
        nodes = tuple((NodeId(node_id), self.epochs[node_id]) for node_id in node_ids)
        self.step(events.ConnectionRefused(self.now_ms, nodes))

    def draft(self) -> Draft:
        """What the next step of the core would begin with."""
        return self.core._draft()

    def node(self, node_id: int) -> Any:
        return self.core.state.nodes[NodeId(node_id)].image

    def report(self, node_id: int, *logs: core_messages.ReplicaLogInfo) -> Any:
        """The node's current process reports its logs; by default an empty one in the current leader epoch."""
        infos = logs or (self.log_of(),)
        return self.ask(
            core_messages.ReportReplicaLogs(
                cluster_id=CLUSTER, node_id=NodeId(node_id), node_epoch=self.epochs[node_id], logs=tuple(infos)
            )
        )

    def log_of(
        self, *spans: tuple[int, int], leo: int = 0, reconciled: int | None = None, **given: Any
    ) -> core_messages.ReplicaLogInfo:
        """A log of these (epoch, start offset) spans that ends at ``leo``, as reported in the current leader epoch."""
        entries = tuple(EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in spans)
        fields: dict[str, Any] = {
            "tp": P0,
            "leader_epoch": self.partition().leader_epoch,
            "log_start_offset": Offset(0),
            "leo": Offset(leo),
            "epochs": entries,
            "reconciled_epoch": None if reconciled is None else LeaderEpoch(reconciled),
        }
        return core_messages.ReplicaLogInfo(**{**fields, **given})

    def create(
        self, *replicas: int, name: str = TOPIC, topic_id: str = TOPIC_ID, **configs: str
    ) -> core_messages.PartitionImage:
        """Create a topic of one partition on these nodes; setting names use _ in place of the dots."""
        given = tuple((key.replace("_", "."), value) for key, value in configs.items())
        assignment = ((0, tuple(NodeId(node_id) for node_id in replicas)),)
        topic = messages.NewTopic(name=name, topic_id=topic_id, assignments=assignment, configs=given)
        (created,) = self.ask(messages.CreateTopics(topics=(topic,))).topics
        assert created.refusal is None, created.refusal
        return self.partition(topic_id=topic_id)

    def alter_config(self, **configs: str) -> None:
        given = tuple((key.replace("_", "."), value) for key, value in configs.items())
        (result,) = self.ask(
            messages.AlterTopicConfigs(topics=(messages.ConfigChange(messages.TopicRef(TOPIC), given),))
        ).topics
        assert result.refusal is None, result.refusal

    def partition(self, index: int = 0, topic_id: str = TOPIC_ID) -> core_messages.PartitionImage:
        found = self.core.state.partition(TopicPartition(topic_id, index))
        assert found is not None
        return found

    def view(self, index: int = 0) -> tuple[int | None, set[int], set[int]]:
        """Leader, ISR and ELR of a partition."""
        partition = self.partition(index)
        return partition.leader, set(partition.isr), set(partition.elr)

    def proposal(
        self, *isr: int, sender: int | None = None, sequence: int = 1, **given: Any
    ) -> core_messages.AlterPartitionRequest:
        """A proposal as the leader would send it now, with the fields in ``given`` overridden."""
        tp = given.pop("tp", P0)
        partition = self.core.state.partition(tp) or self.partition()
        leader = partition.leader if sender is None else sender
        assert leader is not None
        members = tuple(core_messages.IsrMember(NodeId(n), given.pop(f"epoch_of_{n}", self.epochs.get(n))) for n in isr)
        proposed = core_messages.ProposedIsr(
            tp=tp,
            leader_epoch=LeaderEpoch(given.pop("leader_epoch", partition.leader_epoch)),
            partition_epoch=PartitionEpoch(given.pop("partition_epoch", partition.partition_epoch)),
            new_isr=members,
            recovering=given.pop("recovering", False),
        )
        fields: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "controller_epoch": self.core.state.header.controller_epoch,
            "node_id": NodeId(leader),
            "node_epoch": self.epochs[leader],
            "request_sequence": sequence,
            "partitions": (proposed,),
        }
        return core_messages.AlterPartitionRequest(**{**fields, **given})

    def propose(self, *isr: int, **given: Any) -> ErrorCode:
        """Send a proposal; returns the error of the request or of its one partition."""
        return outcome(self.ask(self.proposal(*isr, **given)))


def started(*node_ids: int, **given: Any) -> Controller:
    """A new cluster of these nodes, all of them unfenced."""
    controller = Controller()
    controller.start(*node_ids, **given)
    return controller


def created(*node_ids: int, **configs: str) -> Controller:
    """A new cluster of these nodes with a topic of one partition on all of them."""
    controller = started(*node_ids)
    controller.create(*node_ids, **configs)
    return controller


def stored(controller: Controller) -> ClusterState:
    assert controller.stored is not None
    return controller.stored


def next_reign(controller: Controller, state: ClusterState | None = None) -> Controller:
    """The controller starts again on its store, or on an earlier state of it."""
    after = Controller(state=state or stored(controller), timings=controller.timings, now_ms=controller.now_ms)
    after.epochs = dict(controller.epochs)
    return after


def proof_of(controller: Controller, node_id: int, **given: Any) -> core_messages.PositionProof:
    """A proof from this controller's store for a node's current process, of its current position by default."""
    header = controller.core.state.header
    fields: dict[str, Any] = {
        "node_epoch": controller.epochs[node_id],
        "controller_epoch": header.controller_epoch,
        "metadata_offset": header.metadata_offset,
        "reign_id": next(reversed(controller.core.state.reigns)),
    }
    return prove(header.secret, node_id=NodeId(node_id), **{**fields, **given})


def outcome(answer: Any) -> ErrorCode:
    """The error of an AlterPartition answer, or of its one partition."""
    refusal = answer if isinstance(answer, Refusal) else answer.refusal or answer.partitions[0].refusal
    return refusal.code if refusal else ErrorCode.NONE


def registration(node_id: int, **given: Any) -> core_messages.RegisterNode:
    """A registration; each call is a new incarnation unless ``incarnation`` names one."""
    fields: dict[str, Any] = {
        "node_id": NodeId(node_id),
        "cluster_id": CLUSTER,
        "incarnation_id": f"incarnation-{next(_incarnations)}",
        "directory_id": f"directory-{node_id}",
        "roles": frozenset({Role.LEADER, Role.FOLLOWER}),
        "rules": Rules(),
        "client_endpoint": core_messages.Endpoint(f"node-{node_id}", 9092),
        "internal_endpoint": core_messages.Endpoint(f"node-{node_id}", 9093),
    }
    return core_messages.RegisterNode(**{**fields, **given})


def seen(leader_epoch: int, partition_epoch: int, tp: TopicPartition = P0) -> core_messages.EpochsSeen:
    """A node's view of a partition's epochs."""
    return core_messages.EpochsSeen(tp, LeaderEpoch(leader_epoch), PartitionEpoch(partition_epoch))


def lines_of(work: Any) -> int:
    """How many lines of Python run."""
    lines = 0

    def count(*_: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines


_incarnations = count(1)
