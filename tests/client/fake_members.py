"""Members of a fake cluster's groups: the real state machine of groups, decided and applied at once."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.coordinator.serving import NodeTopics
from strandline.core.errors import Refusal
from strandline.core.groups.group import Group
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import ConsumerGroupHeartbeat, GroupSettings
from strandline.core.messages import TopicImage
from strandline.core.types import LeaderEpoch
from strandline.rpc.convert.errors import write_error
from strandline.rpc.convert.groups import heartbeat_response, read_commit, read_heartbeat, read_txn_commit
from strandline.runtime.host import TopicDirectory
from strandline.runtime.patterns import Re2Patterns
from strandline.v1 import group_service_pb2 as pb

if TYPE_CHECKING:
    from tests.client.fake_cluster import FakeCluster

SETTINGS = GroupSettings(assignment_interval_ms=0, min_session_timeout_ms=100, heartbeat_interval_ms=20)


class FakeMembers:
    """One machine for all groups; its clock is the machine's, moved on by ``skipped_ms``."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._images: dict[str, TopicImage] = {}
        self._topics = NodeTopics(self._images, {})
        self._wire = TopicDirectory()
        self.machine = GroupMachine(Re2Patterns(), SETTINGS)
        self.skipped_ms = 0
        self.heartbeats: list[ConsumerGroupHeartbeat] = []

    def group(self, group_id: str = "g") -> Group:
        return self.machine.group(group_id)

    def topics(self) -> TopicDirectory:
        """The cluster's topics as they are now, for the wire; `_topics` has the same ones for the machine."""
        image = self._cluster.image()
        if image.metadata_offset != self._wire.metadata_offset:
            self._wire.apply(image)
            self._images.clear()
            self._images.update((topic.topic_id, topic) for topic in image.topics)
            self._topics.changed()
        return self._wire

    @property
    def _context(self) -> Context:
        self.topics()
        now_ms = int(time.monotonic() * 1000) + self.skipped_ms
        return Context(now_ms, now_ms, LeaderEpoch(self._cluster.groups.epoch), self._topics)

    def tick(self) -> None:
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
        request = read_heartbeat(message, self.topics(), "here")
        self.heartbeats.append(request)
        self.tick()
        answer = self._take(self.machine.decide(request, self._context))
        if not isinstance(answer, Refusal):
            return heartbeat_response(answer, self.topics())
        response = pb.ConsumerGroupHeartbeatResponse()
        write_error(response, answer)
        return response

    def commit(self, message: pb.OffsetCommitRequest) -> dict[int, Refusal | None]:
        """What a member's commit is answered, by partition."""
        request = read_commit(message, self.topics()).request
        answer = self._take(self.machine.decide(request, self._context))
        if isinstance(answer, Refusal):
            return {one.tp.partition: answer for one in request.offsets}
        return {row.tp.partition: row.refusal for row in answer.partitions}

    def stage(self, message: pb.TxnOffsetCommitRequest) -> dict[int, Refusal | None]:
        """What a member's commit in a transaction is answered, by partition; what it stages is not kept here."""
        request = read_txn_commit(message, self.topics()).request
        answer = self.machine.decide(request, replace(self._context, is_verified=True)).answer
        if isinstance(answer, Refusal):
            return {one.tp.partition: answer for one in request.offsets}
        return {row.tp.partition: row.refusal for row in answer.partitions}
