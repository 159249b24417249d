"""Members of a fake cluster's groups: the real state machine of groups, decided and applied at once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.core.coordinator.machine import Context, Decision, TopicEntry
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.group_messages import OffsetsCommitted
from strandline.core.groups.group import Group
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.membership_messages import ConsumerGroupHeartbeat
from strandline.core.groups.settings import GroupSettings
from strandline.core.types import LeaderEpoch
from strandline.rpc.convert_errors import write_error
from strandline.rpc.convert_groups import heartbeat_response, read_commit, read_heartbeat, read_txn_commit
from strandline.runtime.patterns import Re2Patterns
from strandline.v1 import group_service_pb2 as pb

if TYPE_CHECKING:
    from tests.client.fake_cluster import FakeCluster

SETTINGS = GroupSettings(assignment_interval_ms=0, min_session_timeout_ms=100, heartbeat_interval_ms=20)


class _Topics:
    """The cluster's topics, as a coordinator and as the wire know them."""

    cluster_id = None

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    @property
    def version(self) -> int:
        return self._cluster.offset

    def _entries(self) -> list[TopicEntry]:
        topics = [topic for topic in self._cluster.image().topics if not topic.name.startswith("__")]
        none: tuple[frozenset[str], ...] = (frozenset(),)
        return [TopicEntry(topic.topic_id, topic.name, none * len(topic.partitions), False) for topic in topics]

    def by_name(self, name: str) -> TopicEntry | None:
        return next((each for each in self._entries() if each.name == name), None)

    def by_id(self, topic_id: str) -> TopicEntry | None:
        return next((each for each in self._entries() if each.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return [each.name for each in self._entries()]

    def resolve(self, name: str, topic_id: str) -> str | Refusal:
        entry = self.by_id(topic_id) if topic_id else self.by_name(name)
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID) if entry is None else entry.topic_id

    def name_of(self, topic_id: str) -> str:
        entry = self.by_id(topic_id)
        return "" if entry is None else entry.name


class FakeMembers:
    """One machine for all groups; its clock is the machine's, moved on by ``skipped_ms``."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._topics: Any = _Topics(cluster)
        self._cluster = cluster
        self.machine = GroupMachine(Re2Patterns(), SETTINGS)
        self.skipped_ms = 0
        self.heartbeats: list[ConsumerGroupHeartbeat] = []

    def group(self, group_id: str = "g") -> Group:
        return self.machine.group(group_id)

    @property
    def _context(self) -> Context:
        now_ms = int(time.monotonic() * 1000) + self.skipped_ms
        return Context(now_ms, now_ms, LeaderEpoch(self._cluster.groups.epoch), self._topics)

    def tick(self) -> None:
        """Do what is due."""
        for decision in self.machine.tick(self._context):
            self._take(decision)

    def _take(self, decision: Decision) -> Any:
        context = self._context
        for batch in decision.batches:
            for record in batch:
                self.machine.apply(record)
        if decision.taken is not None:
            self.machine.taken(decision.taken, context.now_ms)
        if decision.answered is not None:
            self.machine.answered(decision.answered, context.now_ms)
        assert decision.work is None, "groups of tests are small"
        return decision.answer

    def heartbeat(self, message: pb.ConsumerGroupHeartbeatRequest) -> pb.ConsumerGroupHeartbeatResponse:
        request = read_heartbeat(message, self._topics, "here")
        self.heartbeats.append(request)
        self.tick()
        answer = self._take(self.machine.decide(request, self._context))
        if not isinstance(answer, Refusal):
            return heartbeat_response(answer, self._topics)
        response = pb.ConsumerGroupHeartbeatResponse()
        write_error(response, answer)
        return response

    def commit(self, message: pb.OffsetCommitRequest) -> dict[int, Refusal | None]:
        """What a member's commit is answered, by partition."""
        request = read_commit(message, self._topics).request
        answer = self._take(self.machine.decide(request, self._context))
        if isinstance(answer, Refusal):
            return {one.tp.partition: answer for one in request.offsets}
        return {row.tp.partition: row.refusal for row in answer.partitions}

    def stage(self, message: pb.TxnOffsetCommitRequest) -> dict[int, Refusal | None]:
        """What a member's commit in a transaction is answered, by partition; what it stages is not kept here."""
        request = read_txn_commit(message, self._topics).request
        answer = self.machine.decide(request, replace(self._context, is_verified=True)).answer
        if isinstance(answer, Refusal):
            return {one.tp.partition: answer for one in request.offsets}
        assert isinstance(answer, OffsetsCommitted)
        return {row.tp.partition: row.refusal for row in answer.partitions}
