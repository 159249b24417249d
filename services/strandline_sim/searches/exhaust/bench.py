"""Runs the production `NodeCore` on one event: builds it from a `Local`, steps it, performs its file effects, reads it.

Invariant: every decision is taken by the core; this file only carries state in and out of it. File effects are
performed at once and a commit (fsync) completes within the step that asked for it, so a log is always durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from strandline.core import messages
from strandline.core.log import effects
from strandline.core.log.events import Event, LogFlushed, LogOpened, MetadataArrived, Registered
from strandline.core.log.follower import FollowerReplica
from strandline.core.log.isr import IsrState, PendingIsr
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.node import NodeCore
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import (
    EpochEntry,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)
from strandline.runtime.log_performers import LogPerformers, Perform
from strandline.runtime.ports import Cut, Logs, Opened
from strandline_sim.searches.exhaust.local import Following, Image, Leading, Local, Rec
from strandline_sim.searches.exhaust.variants import Variant

# ---- record logs
# The one log of a searched state: its records, each named by its epoch and its writer.
#
# Anything that a state of the model lacks (checkpoints, producers, metadata) is not kept here either.


class RecordLogs:
    """The part of `runtime.ports.Logs` that performers of effects on logs use; ``records`` are those of a node."""

    def __init__(self) -> None:
        self.node_id = NodeId(0)
        self.records: list[Rec] = []

    def open(self, tp: TopicPartition, topic: str) -> Opened:
        """Open a new log; a state that has a log brings its own."""
        return Opened(Offset(0), Offset(0), Offset(0), (), ())

    def append(self, effect: effects.Append) -> bool:
        """Write a record as leader."""
        self.records.append(Rec(effect.leader_epoch, self.node_id))
        return False

    def append_replicated(self, effect: effects.AppendReplicated) -> bool:
        """Write the leader's records."""
        records: Any = effect.payload
        self.records.extend(records)
        return False

    def truncate(self, tp: TopicPartition, offset: Offset, *, durable: bool) -> Cut:
        """Cut the log."""
        del self.records[offset:]
        return Cut(offset, ())

    def restart(
        self, tp: TopicPartition, offset: Offset, producers: Sequence[ProducerBatch], transactions: TransactionState
    ) -> None:
        """Drop the records; producers are not modelled."""
        self.records.clear()

    def _kept_nowhere(self, *_: object, **__: object) -> None:
        return None

    delete = advance_log_start = save_epochs = save_high_watermarks = save_reconciled_epochs = _kept_nowhere
    save_producers = save_metadata = note_durable = expired = _kept_nowhere


TP = TopicPartition("00000000-0000-4000-8000-000000000001", 0)
TOPIC = "searched"
CLUSTER = "exhaust"
NOW_MS = 0
"""Time does not pass: its effects (a lag, a retry) are actions of the model instead."""

FIRST_NODE_EPOCH = 1
TIMINGS = NodeTimings(replica_fetch_wait_max_ms=0)
"""Nothing is parked: a fetch without records is answered at once."""

Question = effects.SendFetch | effects.SendEpochEnds | effects.SendListOffsets


def node_epoch(node_id: int) -> NodeEpoch:
    """Every node lives once, so its epoch follows from its id."""
    return NodeEpoch(FIRST_NODE_EPOCH + node_id)


def node_images(replicas: int) -> tuple[messages.NodeImage, ...]:
    """All nodes, registered and unfenced."""
    return tuple(messages.NodeImage(node_id=NodeId(n), node_epoch=node_epoch(n), fenced=False) for n in range(replicas))


class Bench:
    """One variant of the rules on a partition of ``replicas`` nodes."""

    def __init__(self, variant: Variant, replicas: int, min_isr: int) -> None:
        self.variant = variant
        self.replicas = tuple(NodeId(n) for n in range(replicas))
        self.min_isr = min_isr
        self.nodes = node_images(replicas)
        self.steps = 0
        self._logs = RecordLogs()
        self._performers: dict[type[object], Perform] = {
            **LogPerformers(cast(Logs, self._logs), lambda: NOW_MS).table,
            effects.Flush: lambda effect: LogFlushed(NOW_MS, TP, Offset(len(self._logs.records))),
        }

    def core(self, local: Local) -> NodeCore:
        """The production core in the state ``local``."""
        core = NodeCore(node_id=NodeId(local.node_id), rules=self.variant.rules, timings=TIMINGS)
        core.step(Registered(NOW_MS, CLUSTER, node_epoch(local.node_id), 1))
        state = core.state
        state.nodes.update({node.node_id: node for node in self.nodes})
        if local.image is not None:
            self._know(core, local)
            log = self._log(local)
            state.logs[TP] = log
            if isinstance(local.part, Leading):
                self._lead(core, local, local.part, log)
            elif isinstance(local.part, Following):
                follower = FollowerReplica(state.images[TP], log, state.rules, TIMINGS, NOW_MS)
                follower.state = local.part.state
                state.followers[TP] = follower
        self.variant.arm(core, TP)
        return core

    def _know(self, core: NodeCore, local: Local) -> None:
        assert local.image is not None
        image = self.partition_image(local.image)
        core.state.images[TP] = image
        core.state.topic_names[TP.topic_id] = TOPIC
        core._metadata._newest[TP] = image
        core._metadata._topics[TP.topic_id] = _topic(image)

    def _log(self, local: Local) -> ReplicaLog:
        entries = tuple(EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in local.epochs)
        opened = LogOpened(NOW_MS, TP, Offset(0), Offset(len(local.log)), Offset(local.hw), entries)
        return ReplicaLog(TOPIC, opened, fsync=True, fenced=self.variant.fences_logs)

    def _lead(self, core: NodeCore, local: Local, part: Leading, log: ReplicaLog) -> None:
        state = core.state
        image = state.images[TP]
        leader = LeaderReplica(state.identity, image, log, state.nodes, state.rules, TIMINGS, NOW_MS)
        leader.epoch_start_offset = Offset(part.epoch_start_offset)
        for follower in leader.progress.values():
            follower.last_caught_up_ms = None
            # The model carries no limit of its own: what its followers may do decides which of them are honest.
            follower.claim_limit = log.leo
            if follower.node_id in part.agreed:
                follower.reconciled_by = node_epoch(follower.node_id)
            leo = part.remote_leos[follower.node_id]
            if leo is not None:
                follower.remote_leo, follower.node_epoch = Offset(leo), node_epoch(follower.node_id)
                follower.reconciled_by = follower.node_epoch
        if part.proposed is not None:
            proposal = self._proposal(local, part)
            leader.isr = IsrState(leader.isr.committed, leader.isr.partition_epoch, PendingIsr(proposal))
            if part.asking:
                core._isr.waiting[TP] = proposal
        state.leaders[TP] = leader

    def _proposal(self, local: Local, part: Leading) -> messages.ProposedIsr:
        assert part.proposed is not None and local.image is not None
        members = tuple(messages.IsrMember(NodeId(n), node_epoch(n)) for n in part.proposed)
        return messages.ProposedIsr(
            TP, LeaderEpoch(local.image.leader_epoch), PartitionEpoch(part.proposed_at), members
        )

    def partition_image(self, image: Image) -> messages.PartitionImage:
        """An `Image` as a message of the protocol."""
        return messages.PartitionImage(
            tp=TP,
            replicas=self.replicas,
            isr=tuple(map(NodeId, image.isr)),
            elr=tuple(map(NodeId, image.elr)),
            leader=None if image.leader is None else NodeId(image.leader),
            leader_epoch=LeaderEpoch(image.leader_epoch),
            partition_epoch=PartitionEpoch(image.partition_epoch),
            min_isr=self.min_isr,
        )

    def metadata(self, local: Local, image: Image) -> MetadataArrived:
        """The event that brings ``image`` to this node."""
        reported = messages.MetadataImage(
            cluster_id=CLUSTER,
            controller_epoch=1,
            metadata_offset=1,
            is_snapshot=False,
            rules=self.variant.rules,
            topics=(_topic(self.partition_image(image)),),
            to_node_epoch=node_epoch(local.node_id),
        )
        return MetadataArrived(NOW_MS, reported)

    def run(self, core: NodeCore, local: Local, *events: Event) -> tuple[Local, list[effects.Effect]]:
        """Step ``core`` (in the state ``local``) through events; returns its state then, and what it asked for."""
        logs, wanted, queue = self._logs, list[effects.Effect](), list(events)
        logs.node_id, logs.records = core.state.node_id, list(local.log)
        while queue:
            self.steps += 1
            answers: list[Event] = []
            for effect in core.step(queue.pop(0)):
                perform = self._performers.get(type(effect))
                if perform is not None and (answer := perform(effect)) is not None:
                    answers.append(answer)
                wanted.append(effect)
            queue = answers + queue
        return self.read(core, tuple(logs.records)), wanted

    def question(self, core: NodeCore) -> Question | None:
        """The next question of a follower, made by its own core; it then waits for the answer."""
        out: list[effects.Effect] = []
        core._fetcher.consider(TP)
        core._fetcher.ask(NOW_MS, out)
        return next(
            (e for e in out if isinstance(e, effects.SendFetch | effects.SendEpochEnds | effects.SendListOffsets)), None
        )

    def proposal(self, core: NodeCore) -> messages.AlterPartitionRequest | None:
        """The request with which a leader proposes an ISR, made by its own core; it then waits for the answer."""
        out: list[effects.Effect] = []
        core._isr.maybe_send(NOW_MS, out)
        return next((e.request for e in out if isinstance(e, effects.SendAlterPartition)), None)

    def read(self, core: NodeCore, disk: tuple[Rec, ...]) -> Local:
        """The state of ``core``, with the records in its log."""
        state = core.state
        log, image = state.logs.get(TP), state.images.get(TP)
        if log is None or image is None:
            return Local(state.node_id, None, (), 0, (), None)
        assert log.leo == len(disk) == log.durable.point, f"{log!r} holds {len(disk)} records"
        epochs = tuple((e.epoch, e.start_offset) for e in log.epochs.entries)
        leader = state.leaders.get(TP)
        if leader is not None:
            return self._read_leader(core, leader, disk, epochs)
        known = Image(image.leader, image.leader_epoch, (), (), 0)
        return Local(state.node_id, known, disk, log.hw, epochs, Following(state.followers[TP].state))

    def _read_leader(
        self, core: NodeCore, leader: LeaderReplica, disk: tuple[Rec, ...], epochs: tuple[tuple[int, int], ...]
    ) -> Local:
        pending = leader.isr.pending
        leos = {f.node_id: f.remote_leo for f in leader.progress.values()}
        part = Leading(
            epoch_start_offset=0 if leader.knows_true_hw else leader.epoch_start_offset,
            isr=tuple(leader.isr.committed),
            proposed=tuple(sorted(pending.members)) if pending else None,
            proposed_at=pending.proposal.partition_epoch if pending else 0,
            asking=pending is not None and TP in core._isr.waiting,
            remote_leos=tuple(leos.get(n) for n in self.replicas),
            agreed=() if leader._asks_first else _agreed(leader),
        )
        image = leader.image
        known = Image(image.leader, image.leader_epoch, part.isr, (), leader.isr.partition_epoch)
        return Local(core.state.node_id, known, disk, leader.log.hw, epochs, part)


def _agreed(leader: LeaderReplica) -> tuple[int, ...]:
    found = (f.node_id for f in leader.progress.values() if f.remote_leo is None and f.reconciled_by is not None)
    return tuple(sorted(found))


def _topic(image: messages.PartitionImage) -> messages.TopicImage:
    return messages.TopicImage(name=TOPIC, topic_id=TP.topic_id, partitions=(image,))
