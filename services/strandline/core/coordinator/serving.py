"""The coordinators of one node: a shard for each partition of an internal topic that it leads.

Invariant: a shard lives exactly as long as the leadership of its partition in one leader epoch (G2, G5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.core.coordinator.directory import NodeTopics
from strandline.core.coordinator.internal_topics import partition_of
from strandline.core.coordinator.machine import Context, MakeMachine
from strandline.core.coordinator.records import RecordCodec
from strandline.core.coordinator.shard import Shard, ShardLimits
from strandline.core.effects import AnswerCoordinator, Effect
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.events import Computed, CoordinatorAsked, CoordinatorLogRead, Ticked, TxnMarkersAnswered
from strandline.core.leader import LeaderReplica
from strandline.core.node_state import NodeState
from strandline.core.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """What a node's coordinators are made of."""

    codec: RecordCodec
    machines: Mapping[str, MakeMachine]
    """By internal topic: makes the empty machine of one partition."""
    limits: ShardLimits = field(default_factory=ShardLimits)


class CoordinatorServing:
    """Routes events to the shards; `NodeCore` lets HWs rise and wakes fetches for what they appended."""

    def __init__(self, state: NodeState, parts: Coordinators | None) -> None:
        self._state = state
        self._parts = parts
        self.shards: dict[TopicPartition, Shard] = {}
        self.topics = NodeTopics(state.topics, state.nodes)
        # What to add to the monotonic clock to have the wall clock; None before the first tick.
        self._unix_offset_ms: int | None = None

    def partition_for(self, topic: str, key: str) -> TopicPartition | None:
        """The partition whose leader coordinates ``key``; None while the internal topic does not exist (G2)."""
        entry = self.topics.by_name(topic)
        return TopicPartition(entry.topic_id, partition_of(key, entry.partition_count)) if entry else None

    def leads(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """This node begins to lead a partition; if a coordinator lives in it, that begins to load."""
        make = self._parts.machines.get(leader.log.topic) if self._parts else None
        if make is None or self._parts is None:
            return
        leader.is_coordinator = True
        shard = self.shards[leader.log.tp] = Shard(leader, make, self._parts.codec, self._parts.limits, self.topics)
        shard.begin(self._context(shard, now_ms), out)

    def resigned(self, tp: TopicPartition, out: list[Effect]) -> None:
        """This node no longer leads ``tp``."""
        shard = self.shards.pop(tp, None)
        if shard is not None:
            shard.resigned(self._not_here(tp), out)

    def asked(self, event: CoordinatorAsked, out: list[Effect]) -> None:
        """A request for one shard."""
        shard = self.shards.get(event.tp)
        if shard is None:
            out.append(AnswerCoordinator(event.request_id, self._not_here(event.tp)))
        elif self._unix_offset_ms is None:
            message = f"node {self._state.node_id} has just started; ask again"
            out.append(AnswerCoordinator(event.request_id, Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)))
        else:
            shard.asked(event, self._context(shard, event.now_ms), out)

    def _not_here(self, tp: TopicPartition) -> Refusal:
        state = self._state
        known = state.not_leader(tp) if tp in state.images else state.unknown(tp)
        return Refusal(ErrorCode.NOT_COORDINATOR, known.message, Outcome.NOT_APPENDED)

    def log_read(self, event: CoordinatorLogRead, out: list[Effect]) -> None:
        """A piece of the log that a shard loads."""
        shard = self.shards.get(event.tp)
        if shard is not None:
            shard.log_read(event, self._context(shard, event.now_ms), out)

    def computed(self, event: Computed, out: list[Effect]) -> None:
        """The result of a computation that a machine wanted; one for another leader epoch is dropped."""
        shard = self.shards.get(event.tp)
        if shard is not None and shard.leader.image.leader_epoch == event.leader_epoch:
            shard.computed(event.result, self._context(shard, event.now_ms), out)

    def markers_answered(self, event: TxnMarkersAnswered, out: list[Effect]) -> None:
        """Partitions answered markers that a machine wanted; those for another leader epoch are dropped."""
        shard = self.shards.get(event.tp)
        if shard is not None and shard.leader.image.leader_epoch == event.leader_epoch:
            for answer in event.answers:
                shard.heard(answer, self._context(shard, event.now_ms), out)

    def hw_rose(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """The HW of a partition with a coordinator rose."""
        shard = self.shards.get(leader.log.tp)
        if shard is not None:
            shard.hw_rose(self._context(shard, now_ms), out)

    def fetched(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """A replica's fetch was counted, perhaps with a barrier that it repeats."""
        shard = self.shards.get(leader.log.tp)
        if shard is not None:
            shard.barriers_moved(now_ms, out)

    def isr_changed(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """The ISR or the ELR of a partition with a coordinator changed."""
        shard = self.shards.get(leader.log.tp)
        if shard is not None:
            shard.isr_changed(now_ms, out)

    def call_gone(self, request_id: int, now_ms: int, out: list[Effect]) -> None:
        """A caller went away."""
        for shard in self.shards.values():
            shard.call_gone(request_id, now_ms, out)

    def ticked(self, event: Ticked, out: list[Effect]) -> None:
        """Time passed."""
        self._unix_offset_ms = event.unix_ms - event.now_ms
        for shard in self.shards.values():
            shard.ticked(self._context(shard, event.now_ms), out)

    def excuse(self) -> None:
        """This process did not run for a while (M59)."""
        for shard in self.shards.values():
            shard.excuse()

    def _context(self, shard: Shard, now_ms: int) -> Context:
        return Context(now_ms, now_ms + (self._unix_offset_ms or 0), shard.leader.image.leader_epoch, self.topics)
