"""The coordinators of one node: a shard for each partition of an internal topic that it leads.

Invariant: a shard lives exactly as long as the leadership of its partition in one leader epoch (G2, G5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from strandline.core.coordinator.internal_topics import GROUP_STATE, is_internal, partition_of
from strandline.core.coordinator.machine import Context, MakeMachine, RecordCodec, TopicEntry
from strandline.core.coordinator.shard import Shard, ShardLimits
from strandline.core.coordinator.waiting import TOO_LATE, UnverifiedRequests
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.groups.messages import TransactionMarked
from strandline.core.log import events
from strandline.core.log.effects import AnswerCoordinator, Effect
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.producers import as_producers_hear
from strandline.core.log.state import NodeState
from strandline.core.messages import NodeImage, TopicImage
from strandline.core.types import NodeId, Offset, TopicPartition

# ---- directory
# The topics of the cluster as a node's newest metadata has them, for the machines of its coordinators.


class NodeTopics:
    """A view of the topics and nodes that `MetadataFollower` keeps; code that changes them calls `changed`."""

    def __init__(self, topics: Mapping[str, TopicImage], nodes: Mapping[NodeId, NodeImage]) -> None:
        self._topics = topics
        self._nodes = nodes
        self._version = 0
        self._names: dict[str, str] | None = None
        self._entries: dict[str, TopicEntry] = {}

    @property
    def version(self) -> int:
        """Rises with every change of a topic."""
        return self._version

    def changed(self) -> None:
        """Topics changed."""
        self._version += 1
        self._names = None
        self._entries.clear()

    def by_name(self, name: str) -> TopicEntry | None:
        """The topic that is called ``name`` now."""
        topic_id = self._ids().get(name)
        return self.by_id(topic_id) if topic_id is not None else None

    def by_id(self, topic_id: str) -> TopicEntry | None:
        """The topic with this id; None once it is deleted."""
        entry = self._entries.get(topic_id)
        if entry is None and (topic := self._topics.get(topic_id)) is not None:
            entry = self._entries[topic_id] = self._entry(topic)
        return entry

    def names(self) -> Iterable[str]:
        """The names of all topics, internal ones included."""
        return self._ids().keys()

    def _ids(self) -> dict[str, str]:
        if self._names is None:
            self._names = {topic.name: topic_id for topic_id, topic in self._topics.items()}
        return self._names

    def _entry(self, topic: TopicImage) -> TopicEntry:
        racks = {node_id: node.rack for node_id, node in self._nodes.items() if node.rack is not None}
        of_partitions = tuple(
            frozenset(racks[n] for n in partition.replicas if n in racks) for partition in topic.partitions
        )
        return TopicEntry(topic.topic_id, topic.name, of_partitions, is_internal(topic.name))


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
        self._unverified = UnverifiedRequests(state.next_correlation_id)
        # What to add to the monotonic clock to have the wall clock; None before the first tick.
        self._unix_offset_ms: int | None = None

    @property
    def may_act(self) -> bool:
        """Whether a tick can make a coordinator of this node decide something."""
        return bool(self.shards) or len(self._unverified) > 0

    def partition_for(self, topic: str, key: str) -> TopicPartition | None:
        """The partition whose leader coordinates ``key``; None while the internal topic does not exist (G2)."""
        entry = self.topics.by_name(topic)
        return TopicPartition(entry.topic_id, partition_of(key, entry.partition_count)) if entry else None

    def leads(self, leader: LeaderReplica, now_ms: int, out: list[Effect]) -> None:
        """This node begins to lead a partition; if it is a coordinator's, start to load it."""
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
            refusal = self._not_here(tp)
            shard.resigned(refusal, out)
            out += [AnswerCoordinator(event.request_id, refusal) for event in self._unverified.resigned(tp)]

    def asked(self, event: events.CoordinatorAsked, out: list[Effect]) -> None:
        """A request for one shard."""
        shard = self.shards.get(event.tp)
        if shard is None:
            out.append(AnswerCoordinator(event.request_id, self._not_here(event.tp)))
        # Records carry the wall clock, which is not known before the first tick.
        elif self._unix_offset_ms is None:
            message = f"node {self._state.node_id} has just started; ask again"
            out.append(AnswerCoordinator(event.request_id, Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)))
        else:
            self._ask(shard, event, self._context(shard, event.now_ms), out)

    def _ask(self, shard: Shard, event: events.CoordinatorAsked, context: Context, out: list[Effect]) -> None:
        whose = shard.asked(event, context, out)
        if whose is None:
            return
        if len(self._unverified) >= shard.limits.max_waiting:
            message = f"{len(self._unverified)} requests wait for coordinators of transactions; back off and ask again"
            refusal = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message, Outcome.NOT_APPENDED)
            out.append(AnswerCoordinator(event.request_id, refusal))
        else:
            self._unverified.hold(event, whose, out)

    def verified(self, event: events.AddPartitionsAnswered, out: list[Effect]) -> None:
        """The coordinator of a transaction answered."""
        # What waited is decided again from the beginning, because a marker may have come in between (X10).
        for asked, is_asked, is_alike in self._unverified.answered(event.correlation_id):
            shard = self.shards.get(asked.tp)
            assert shard is not None, "what waits for a coordinator leaves with its leadership"
            if event.refusal is not None and is_alike:
                heard = as_producers_hear(event.refusal)
                refusal = Refusal(heard.code, heard.message, Outcome.NOT_APPENDED)
                out.append(AnswerCoordinator(asked.request_id, refusal))
            else:
                is_verified = is_asked and event.refusal is None
                context = replace(self._context(shard, event.now_ms), is_verified=is_verified)
                self._ask(shard, asked, context, out)

    def takes_markers(self, leader: LeaderReplica) -> bool:
        """Whether a marker for this partition is handled by its coordinator instead of being appended as is (X16)."""
        return leader.log.topic == GROUP_STATE and leader.log.tp in self.shards

    def marked(
        self, leader: LeaderReplica, request: TransactionMarked, now_ms: int, out: list[Effect]
    ) -> tuple[Offset | Refusal, Offset | None]:
        """A marker for a partition of groups: what `Shard.marked` says of it, and the LEO from before if that grew."""
        shard = self.shards[leader.log.tp]
        taken = shard.marked(request, self._context(shard, now_ms), out)
        leo_before, shard.grown_from = shard.grown_from, None
        return taken, leo_before

    def _not_here(self, tp: TopicPartition) -> Refusal:
        state = self._state
        known = state.not_leader(tp) if tp in state.images else state.unknown(tp)
        return Refusal(ErrorCode.NOT_COORDINATOR, known.message, Outcome.NOT_APPENDED)

    def log_read(self, event: events.CoordinatorLogRead, out: list[Effect]) -> None:
        """A piece of the log that a shard loads."""
        shard = self.shards.get(event.tp)
        if shard is not None:
            shard.log_read(event, self._context(shard, event.now_ms), out)

    def computed(self, event: events.Computed, out: list[Effect]) -> None:
        """The result of a computation that a machine requested; one for another leader epoch is dropped."""
        shard = self.shards.get(event.tp)
        if shard is not None and shard.leader.image.leader_epoch == event.leader_epoch:
            shard.computed(event.result, self._context(shard, event.now_ms), out)

    def markers_answered(self, event: events.TxnMarkersAnswered, out: list[Effect]) -> None:
        """Partitions answered a machine's markers; answers for another leader epoch are dropped."""
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
        self._unverified.call_gone(request_id)
        for shard in self.shards.values():
            shard.call_gone(request_id, now_ms, out)

    def ticked(self, event: events.Ticked, out: list[Effect]) -> None:
        """Time passed."""
        self._unix_offset_ms = event.unix_ms - event.now_ms
        out += [AnswerCoordinator(late.request_id, TOO_LATE) for late in self._unverified.expired(event.now_ms)]
        for shard in self.shards.values():
            shard.ticked(self._context(shard, event.now_ms), out)

    def excuse(self) -> None:
        """This process did not run for a while (M59)."""
        for shard in self.shards.values():
            shard.excuse()

    def _context(self, shard: Shard, now_ms: int) -> Context:
        return Context(now_ms, now_ms + (self._unix_offset_ms or 0), shard.leader.image.leader_epoch, self.topics)
