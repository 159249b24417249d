"""The core of a data node: every event comes in through `step`, every action leaves as an effect.

Decides which role this node has in each partition as metadata arrives, and in which order the parts of
a step act: append, then HW, then the calls that waited, then the next requests (M21).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from strandline.core.coordinator.internal_topics import is_internal
from strandline.core.coordinator.serving import Coordinators, CoordinatorServing
from strandline.core.coordinator.shard import Shard
from strandline.core.log import events
from strandline.core.log.effects import (
    ApplyRetention,
    DeleteLog,
    Effect,
    Flush,
    OpenLog,
    SaveHighWatermarks,
    SetLogAside,
)
from strandline.core.log.fetcher import Fetcher
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.metadata import MetadataFollower
from strandline.core.log.observer import NodeObserver, Observe, partition_view, replica_view
from strandline.core.log.proposals import IsrChannel, LogReporter
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.log.saving_order import NodeTimings, saves_first
from strandline.core.log.state import NodeState
from strandline.core.messages import MetadataImage, PartitionView, ProposedIsr, ReplicaStateView
from strandline.core.serving.deletion import DeleteServing
from strandline.core.serving.fetch import FetchServing
from strandline.core.serving.offsets import OffsetServing, ProducerSnapshotServing
from strandline.core.serving.produce import ProduceServing
from strandline.core.types import NEVER_MS, ActiveProducer, Durability, NodeId, Offset, Rules, TopicPartition

EXPAND_CHECK_INTERVAL_MS = 200
"""How often a follower that is parked, and so fetches no more, is looked at for joining the ISR."""


class NodeCore:
    """Leader and follower behaviour of every partition on one data node."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        rules: Rules,
        timings: NodeTimings,
        seen: MetadataImage | None = None,
        observe: Observe = NodeObserver,
        coordinators: Coordinators | None = None,
    ) -> None:
        """``seen``: the newest metadata this node stored in an earlier life; nothing older is believed (TR18).
        ``coordinators``: what they are made of; without it this node coordinates nothing, whatever it leads."""
        self.state = NodeState(node_id, rules, timings)
        self._fsync = rules.durability is Durability.FSYNC
        self._reports = observe(self.state)
        self._fetches = FetchServing(self.state)
        self._offsets = OffsetServing(self.state)
        self._deletions = DeleteServing(self.state)
        self._producer_snapshots = ProducerSnapshotServing(self.state)
        self._coordinators = CoordinatorServing(self.state, coordinators)
        self._produce = ProduceServing(self.state, self._coordinators)
        self._fetcher = Fetcher(self.state)
        self._isr = IsrChannel(self.state)
        self._reporter = LogReporter(self.state)
        self._metadata = MetadataFollower(self.state, seen)
        # Logs that were asked for and have not answered with `LogOpened`, which they do before any other event.
        self._opening: set[TopicPartition] = set()
        # Something happened after which every HW must be durable before the next event (M68).
        self._checkpoint_now = False
        # Some led partition may lack a member: set by whatever changes an ISR, or who may be in it.
        self._may_expand = True
        self._last_tick_ms: int | None = None
        self._next_shrink_ms = self._next_expand_ms = self._next_checkpoint_ms = self._next_retention_ms = 0
        self._handlers = self._table()

    def _table(self) -> dict[type[Any], Callable[[Any, list[Effect]], None]]:
        return {
            events.Ticked: self._ticked,
            events.Registered: self._registered,
            events.MetadataArrived: self._metadata_arrived,
            events.LogOpened: self._log_opened,
            events.LogFlushed: self._log_flushed,
            events.LogTruncated: self._log_truncated,
            events.LogRolled: self._log_rolled,
            events.RetentionFound: self._retention_found,
            events.ProduceArrived: self._produce_arrived,
            events.AddPartitionsAnswered: self._add_partitions_answered,
            events.FetchArrived: self._fetch_arrived,
            events.FetchForgotten: self._fetch_forgotten,
            events.FetchServed: self._fetch_served,
            events.CallGone: self._call_gone,
            events.EpochEndsAsked: self._offsets.epoch_ends,
            events.OffsetsAsked: self._offsets.offsets,
            events.ProducerSnapshotAsked: self._producer_snapshots.asked,
            events.DeleteRecordsAsked: self._deletions.asked,
            events.CoordinatorAsked: self._coordinator_event(self._coordinators.asked),
            events.CoordinatorLogRead: self._coordinator_event(self._coordinators.log_read),
            events.Computed: self._coordinator_event(self._coordinators.computed),
            events.TxnMarkersAnswered: self._coordinator_event(self._coordinators.markers_answered),
            events.FetchAnswered: self._fetch_answered,
            events.FetchFailed: lambda event, _: self._fetcher.fetch_failed(event),
            events.EpochEndsAnswered: self._fetcher.epoch_ends,
            events.EpochEndsFailed: lambda event, _: self._fetcher.question_failed(event),
            events.OffsetsAnswered: self._fetcher.offsets,
            events.OffsetsFailed: lambda event, _: self._fetcher.question_failed(event),
            events.ProducerSnapshotAnswered: self._fetcher.producers,
            events.ProducerSnapshotFailed: lambda event, _: self._fetcher.question_failed(event),
            events.AlterPartitionAnswered: self._alter_partition_answered,
            events.AlterPartitionFailed: self._isr.failed,
            events.ReplicaLogsAnswered: self._reporter.answered,
            events.StopRequested: self._stop_requested,
        }

    def step(self, event: events.Event) -> list[Effect]:
        """Handle one event; returns the effects in the order in which they must be performed."""
        out: list[Effect] = []
        self._handlers[type(event)](event, out)
        # Most steps need none of the following; calling each would cost more than many a handler.
        if self._fetches.parked.woken:
            self._fetches.complete_woken(event.now_ms, out)
        if self._isr.waiting:
            self._isr.maybe_send(event.now_ms, out)
        if not self._opening:
            # One message and one write for all the logs that metadata opens, not one for each.
            if self.state.unsaved_reconciled or self._checkpoint_now:
                self._make_durable(out)
            if self._fetcher.candidates:
                self._fetcher.ask(event.now_ms, out)
            if self.state.unreported:
                self._reporter.maybe_send(event.now_ms, out)
        return saves_first(out)

    def _make_durable(self, out: list[Effect]) -> None:
        # After losses an election compares these epochs (M66); by its saved HW a log that lost more is noticed (M68).
        self.state.save_reconciled(out)
        if self._checkpoint_now:
            self._checkpoint_now = False
            self._save_high_watermarks(out, durable=True, even_if_unmoved=True)

    @property
    def purgatory_full(self) -> bool:
        """Whether another produce would be refused; a stream is not read further then."""
        return self._produce.purgatory.is_full

    @property
    def proposals(self) -> Mapping[TopicPartition, ProposedIsr]:
        """The ISR proposals that wait for an answer, by partition."""
        return self._isr.waiting

    @property
    def parked(self) -> tuple[int, int]:
        """How many (produce calls, fetches) are parked."""
        return len(self._produce.purgatory), len(self._fetches.parked)

    @property
    def expired(self) -> tuple[int, int]:
        """How many (produce calls, fetches) were parked until their time was over."""
        return self._produce.purgatory.expired_total, self._fetches.expired_total

    def coordinator_partition(self, topic: str, key: str) -> TopicPartition | None:
        """The partition of an internal topic whose leader coordinates ``key``; None while there is no such topic."""
        return self._coordinators.partition_for(topic, key)

    @property
    def coordinators(self) -> Mapping[TopicPartition, Shard]:
        """The coordinators of this node, for views of them."""
        return self._coordinators.shards

    def coordinated(self, topic: str) -> list[TopicPartition]:
        """The partitions of an internal topic whose coordinator this node is."""
        return [tp for tp, shard in self._coordinators.shards.items() if shard.leader.log.topic == topic]

    def describe_partition(self, tp: TopicPartition, now_ms: int) -> PartitionView | None:
        """One partition as its leader sees it; None if this node does not lead it."""
        leader = self.state.leaders.get(tp)
        return partition_view(leader, now_ms) if leader else None

    def describe_replica(self, tp: TopicPartition) -> ReplicaStateView | None:
        """One replica as it sees itself; None if this node has no log of it."""
        return replica_view(self.state, tp)

    def describe_producers(self, tp: TopicPartition) -> tuple[ActiveProducer, ...] | None:
        """What the log of a partition remembers of producers; None if this node does not lead it."""
        leader = self.state.leaders.get(tp)
        return leader.log.producers.active() if leader else None

    def _produce_arrived(self, event: events.ProduceArrived, out: list[Effect]) -> None:
        grown = self._produce.arrived(event, out)
        self._grew(grown, event.now_ms, out)
        for part in event.partitions:
            # A duplicate may wait for an offset that was committed long ago; no HW move will wake it.
            if part.tp not in grown:
                self._release_waiting(part.tp, out)

    def _add_partitions_answered(self, event: events.AddPartitionsAnswered, out: list[Effect]) -> None:
        grown, seen = self._produce.verified(event, out)
        self._grew(grown, event.now_ms, out)
        for tp in seen:
            if tp not in grown:
                self._release_waiting(tp, out)
        self._coordinators.verified(event, out)
        self._coordinators_acted(event.now_ms, out)

    def _grew(self, grown: Mapping[TopicPartition, Offset], now_ms: int, out: list[Effect]) -> None:
        """This node appended to logs that it leads; ``grown`` has the LEO of each from before."""
        for tp, leo_before in grown.items():
            leader = self.state.leaders[tp]
            self._fetches.meet_append(leader, leo_before, now_ms)
            self._reports.appended(leader, now_ms)
            # With `fsync` the own vote moves only when the flush has ended (M55).
            if not self._fsync:
                self._try_hw(leader, "produce", (leader.node_id,), now_ms, out)
            # Followers get the records before they are durable here, so the syncs of all replicas overlap; the HW waits
            # for all that count.
            self._fetches.parked.wake_replicas(tp)

    def _coordinator_event(self, handle: Callable[[Any, list[Effect]], None]) -> Callable[[Any, list[Effect]], None]:
        def handled(event: Any, out: list[Effect]) -> None:
            handle(event, out)
            shard = self._coordinators.shards.get(event.tp)
            if shard is not None:
                self._coordinator_acted(event.tp, shard, event.now_ms, out)

        return handled

    def _coordinators_acted(self, now_ms: int, out: list[Effect]) -> None:
        for tp, shard in self._coordinators.shards.items():
            self._coordinator_acted(tp, shard, now_ms, out)

    def _coordinator_acted(self, tp: TopicPartition, shard: Shard, now_ms: int, out: list[Effect]) -> None:
        """What follows from what a coordinator appended, and from the read barrier that it began."""
        leo_before, shard.grown_from = shard.grown_from, None
        if leo_before is not None:
            self._grew({tp: leo_before}, now_ms, out)
        if shard.barrier.take_begun():
            self._fetches.parked.wake_replicas(tp)

    def _release_waiting(self, tp: TopicPartition, out: list[Effect]) -> None:
        leader = self.state.leaders.get(tp)
        if leader is not None:
            self._produce.hw_rose(leader, out)
            self._produce.flushed(leader, out)

    def _log_flushed(self, event: events.LogFlushed, out: list[Effect]) -> None:
        log = self.state.logs.get(event.tp)
        if log is None:
            return
        log.flushed(event.issued_leo, out)
        leader = self.state.leaders.get(event.tp)
        if leader is not None:
            self._produce.flushed(leader, out)
            self._try_hw(leader, "flush", (leader.node_id,), event.now_ms, out)
        else:
            self._fetcher.consider(event.tp)

    def _fetch_arrived(self, event: events.FetchArrived, out: list[Effect]) -> None:
        received = self._fetches.received(event, out)
        if event.request.replica is not None:
            self._reports.refused(event.request.replica.node_id, received.results)
        for leader, replica, leo_changed in received.counted:
            self._acknowledged(leader, replica, leo_changed, event.now_ms, out)
        self._fetches.answer(received, out)

    def _fetch_answered(self, event: events.FetchAnswered, out: list[Effect]) -> None:
        for tp in self._fetcher.fetched(event, out):
            self._fetches.parked.wake_consumers(self.state.logs[tp])

    def _acknowledged(
        self, leader: LeaderReplica, replica: NodeId, leo_changed: bool, now_ms: int, out: list[Effect]
    ) -> None:
        self._reports.fetched(leader, replica, now_ms)
        if replica not in leader.isr.committed or replica in leader.isr.unproven:
            proposal = leader.maybe_expand(replica, now_ms)
            if proposal is not None:
                self._isr.propose(proposal, out)
        self._deletions.moved(leader, out)
        if leader.barrier is not None:
            self._coordinators.fetched(leader, now_ms, out)
        if leo_changed:
            self._try_hw(leader, "fetch", (replica,), now_ms, out)

    def _try_hw(
        self, leader: LeaderReplica, cause: str, blockers: Iterable[NodeId], now_ms: int, out: list[Effect]
    ) -> None:
        """``cause`` and ``blockers`` are for the report alone: why it may rise now, and who had held it back."""
        before = leader.log.hw
        if leader.maybe_raise_hw(now_ms):
            self._reports.hw_rose(leader, before, cause, blockers, now_ms, out)
            self._produce.hw_rose(leader, out)
            self._fetches.parked.wake_consumers(leader.log)
            if leader.is_coordinator:
                self._coordinators.hw_rose(leader, now_ms, out)

    def _fetch_served(self, event: events.FetchServed, _: list[Effect]) -> None:
        for tp, end, size_bytes in event.ends:
            leader = self.state.leaders.get(tp)
            if leader is not None and event.replica in leader.progress:
                self._reports.served(leader, event.replica, end)
                leader.progress[event.replica].sent(end)
                self._fetches.sent(leader, event.replica, size_bytes, event.now_ms)

    def _fetch_forgotten(self, event: events.FetchForgotten, out: list[Effect]) -> None:
        if event.partitions:
            self._fetches.forget(event.stream_id, event.partitions, out)
        else:
            self._fetches.end_stream(event.stream_id)

    def _call_gone(self, event: events.CallGone, out: list[Effect]) -> None:
        self._produce.purgatory.release(event.request_id)
        self._fetches.call_gone(event.request_id)
        self._deletions.call_gone(event.request_id)
        self._coordinators.call_gone(event.request_id, event.now_ms, out)

    def _alter_partition_answered(self, event: events.AlterPartitionAnswered, out: list[Effect]) -> None:
        self._may_expand = True
        decisions = {decision.tp: decision for decision in event.answer.partitions}
        for tp in self._isr.answered(event, out):
            self._metadata.decided(decisions[tp], event.answer.position, out)
            leader = self.state.leaders[tp]
            self._isr_changed(leader, event.now_ms, out)
            self._reports.isr_changed(leader, event.now_ms, out, initiator="leader")
            self._try_hw(leader, "isr_change", (), event.now_ms, out)

    def _isr_changed(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        self._deletions.moved(leader, out)
        if leader.is_coordinator:
            self._coordinators.isr_changed(leader, now_ms, out)
        # The HW does not move now; written down, a loss of what it covers is noticed at the next start (M68).
        if leader.is_under_min_isr:
            self._checkpoint_now = True

    def _registered(self, event: events.Registered, out: list[Effect]) -> None:
        state = self.state
        state.cluster_id, state.node_epoch = event.cluster_id, event.node_epoch
        state.controller_epoch = max(state.controller_epoch, event.controller_epoch)
        self._metadata.registered(event.position, out)

    def _metadata_arrived(self, event: events.MetadataArrived, out: list[Effect]) -> None:
        self._may_expand = True
        known_controller = self.state.controller_epoch
        change = self._metadata.take(event.image, out)
        if change is None:
            return
        if self.state.controller_epoch != known_controller:
            self._reporter.consider_all()
        if change.shapes:
            self._coordinators.topics.changed()
        for tp in change.gone:
            self._leave(tp, out)
            is_moved = tp.topic_id in self.state.topic_names
            out.append(SetLogAside(tp) if is_moved else DeleteLog(tp))
        for tp in change.changed:
            if tp in self.state.logs:
                self._apply(tp, event.now_ms, out)
            else:
                self._opening.add(tp)
                out.append(OpenLog(tp, self.state.topic_names[tp.topic_id]))
        if event.image.nodes:
            # A node was fenced or returned: who is counted, and who may join, may have changed (M16, M44).
            self._next_expand_ms = event.now_ms
            for leader in self.state.leaders.values():
                self._try_hw(leader, "isr_change", (), event.now_ms, out)

    def _log_opened(self, event: events.LogOpened, out: list[Effect]) -> None:
        self._opening.discard(event.tp)
        image = self.state.images.get(event.tp)
        if image is None:
            return
        self._may_expand = True
        name = self.state.topic_names[event.tp.topic_id]
        self.state.logs[event.tp] = ReplicaLog(name, event, fsync=self._fsync, fenced=self.state.truncation.fenced)
        self._apply(event.tp, event.now_ms, out)

    def _apply(self, tp: TopicPartition, now_ms: int, out: list[Effect]) -> None:
        image = self.state.images[tp]
        leader = self.state.leaders.get(tp)
        if leader is not None and image.leader_epoch == leader.image.leader_epoch:
            cause = "isr_change" if image.min_isr == leader.image.min_isr else "min_isr_change"
            proposed = leader.isr.pending.members if leader.isr.pending else None
            if leader.update(image, now_ms):
                self._isr.forget(tp)
            self._isr_changed(leader, now_ms, out)
            initiator = "leader" if proposed == frozenset(leader.isr.committed) else "controller"
            self._reports.isr_changed(leader, now_ms, out, initiator=initiator)
            self._try_hw(leader, cause, (), now_ms, out)
            self._fetches.parked.wake_all(tp)
            return
        follower = self.state.followers.get(tp)
        if follower is not None and image.leader_epoch == follower.leader_epoch and image.leader != self.state.node_id:
            follower.image = image
            # Its throttle may have gone.
            self._fetcher.consider(tp)
            return
        self._leave(tp, out)
        if image.leader != self.state.node_id:
            self._follow(tp, now_ms, out)
        elif self.state.logs[tp].may_begin(image.leader_epoch):
            self._lead(tp, now_ms, out)
        else:
            # This log has records of a later reign than the controller knows of: no leader until it does (TR18).
            self.state.images[tp] = replace(image, leader=None)
            self._follow(tp, now_ms, out)

    def _leave(self, tp: TopicPartition, out: list[Effect]) -> None:
        """Give up the role this node had, if any; callers that wait here are answered at once (T15)."""
        leader = self.state.leaders.pop(tp, None)
        if leader is not None:
            self._reports.leaves(leader, out)
            self._isr.forget(tp)
            self._produce.resigned(tp, out)
            self._deletions.resigned(tp, out)
            self._coordinators.resigned(tp, out)
        follower = self.state.followers.pop(tp, None)
        if follower is not None:
            self._fetcher.release(follower, out)
        self._fetches.parked.wake_all(tp)
        if tp not in self.state.images:
            self._reporter.forget(tp)
            self.state.logs.pop(tp, None)

    def _lead(self, tp: TopicPartition, now_ms: int, out: list[Effect]) -> None:
        state = self.state
        image, log = state.images[tp], state.logs[tp]
        log.assign_epoch(image.leader_epoch, out)
        state.reconcile(tp, image.leader_epoch)
        # This log's HW becomes the leader's (M68).
        self._checkpoint_now = True
        leader = LeaderReplica(state.identity, image, log, state.nodes, state.rules, state.timings, now_ms)
        state.leaders[tp] = leader
        self._reports.leads(leader, now_ms, out)
        self._coordinators.leads(leader, now_ms, out)
        self._try_hw(leader, "epoch_start", (), now_ms, out)

    def _follow(self, tp: TopicPartition, now_ms: int, out: list[Effect]) -> None:
        self._metadata.begin_following(tp, now_ms, out)
        self._reports.follows(tp, now_ms)
        self._fetcher.consider(tp)
        self.state.unreported[tp] = None

    def _log_truncated(self, event: events.LogTruncated, out: list[Effect]) -> None:
        log = self.state.logs.get(event.tp)
        if log is not None:
            log.truncated(event.leo, event.producers, out, event.transactions)
            self._fetcher.consider(event.tp)

    def _log_rolled(self, event: events.LogRolled, out: list[Effect]) -> None:
        log = self.state.logs.get(event.tp)
        if log is not None:
            log.save_producers(out)

    def _retention_found(self, event: events.RetentionFound, out: list[Effect]) -> None:
        leader = self.state.leaders.get(event.tp)
        if leader is not None:
            leader.log.advance_log_start(event.offset, out)

    def _stop_requested(self, event: events.StopRequested, out: list[Effect]) -> None:
        for log in self.state.logs.values():
            log.save_producers(out)
            if not self._fsync:
                out.append(Flush(log.tp))
        self._save_high_watermarks(out, durable=True)

    def _ticked(self, event: events.Ticked, out: list[Effect]) -> None:
        now_ms = event.now_ms
        self._excuse_pause(now_ms)
        self._produce.ticked(now_ms, out)
        self._fetches.ticked(now_ms, out)
        self._deletions.ticked(now_ms, out)
        self._coordinators.ticked(event, out)
        self._coordinators_acted(now_ms, out)
        self._fetcher.ticked(now_ms)
        timings = self.state.timings
        if now_ms >= self._next_expand_ms:
            self._next_expand_ms = now_ms + EXPAND_CHECK_INTERVAL_MS
            if self._may_expand:
                self._expand_isrs(now_ms, out)
        if now_ms >= self._next_shrink_ms:
            # As in Kafka: a member that stopped leaves after one and a half lag times at most (M42).
            self._next_shrink_ms = now_ms + timings.replica_lag_time_max_ms // 2
            self._shrink_isrs(now_ms, out)
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + timings.high_watermark_checkpoint_interval_ms
            self._fetcher.ask_again(now_ms)
            # Without a sync: a HW that is lost with the power is only older, and no promise depends on its age (M68).
            self._save_high_watermarks(out, durable=False)
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + timings.retention_check_interval_ms
            # For an internal topic its coordinators decide what may be deleted (G9).
            out.extend(
                ApplyRetention(tp, leader.log.hw)
                for tp, leader in self.state.leaders.items()
                if not is_internal(leader.log.topic)
            )
        self._reports.ticked(now_ms, out)

    @property
    def due_ms(self) -> int:
        """When a tick next has something to do if nothing else happens; 0: at the next one, as always when in doubt."""
        # These wait for times of their own, but only while something is under way.
        is_busy = self._isr.waiting or self.state.unreported or self._fetcher.candidates or self._fetcher.is_backing_off
        if is_busy or self._coordinators.may_act or self._deletions.is_waiting:
            return 0
        return min(
            self._produce.purgatory.next_deadline_ms,
            self._fetches.due_ms,
            self._fetcher.due_ms,
            self._next_expand_ms if self._may_expand else NEVER_MS,
            self._next_shrink_ms,
            self._next_checkpoint_ms,
            self._next_retention_ms,
        )

    def _excuse_pause(self, now_ms: int) -> None:
        last, self._last_tick_ms = self._last_tick_ms, now_ms
        gap_ms = now_ms - last if last is not None else 0
        # A pause of this process is no follower's fault (M59).
        if gap_ms > self.state.timings.pause_grace_after_ms:
            for leader in self.state.leaders.values():
                leader.excuse(gap_ms)
            self._coordinators.excuse()

    def _expand_isrs(self, now_ms: int, out: list[Effect]) -> None:
        self._may_expand = False
        for leader in self.state.leaders.values():
            isr = leader.isr
            if isr.unproven or len(isr.committed) < len(leader.image.replicas):
                self._may_expand = True
                for node_id in leader.image.replicas:
                    proposal = leader.maybe_expand(node_id, now_ms)
                    if proposal is not None:
                        self._isr.propose(proposal, out)
                        break

    def _shrink_isrs(self, now_ms: int, out: list[Effect]) -> None:
        for leader in self.state.leaders.values():
            proposal = leader.maybe_shrink(now_ms)
            if proposal is not None:
                self._isr.propose(proposal, out)

    def _save_high_watermarks(self, out: list[Effect], *, durable: bool, even_if_unmoved: bool = False) -> None:
        moved = {tp: log.hw for tp, log in self.state.logs.items() if log.hw != log.checkpointed_hw}
        # Recovery points are written with the HWs, and may have moved when no HW did.
        if not moved and not even_if_unmoved:
            return
        for tp in moved:
            self.state.logs[tp].checkpointed_hw = moved[tp]
        out.append(SaveHighWatermarks(moved, durable))
