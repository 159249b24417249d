"""Many members in one process that do as they are asked: heartbeats only, nothing is read."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from strandline.client.background import Background
from strandline.client.coordinator import ATTEMPT_MS, passes_by
from strandline.client.group_coordinator import GroupCoordinator
from strandline.client.member import Confirmed, Member, MemberTerms, Subscription
from strandline.client.membership import heartbeat_request, judge_heartbeat
from strandline.client.metadata import Cluster
from strandline.core import types
from strandline.core.errors import Refused

_RETRY_S = 0.1


class Crowd:
    """Members of one group; ``owned`` is what those whose lease runs may work on."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str, count: int, session_timeout_ms: int) -> None:
        self._cluster = cluster
        self.group_id = group_id
        self._coordinator = GroupCoordinator(cluster, group_id)
        self._background = Background()
        subscription = Subscription((topic,))
        self.members = [
            Member(
                MemberTerms(
                    member_id=f"member-{number:04}",
                    instance_id=None,
                    rack=None,
                    assignor="uniform",
                    session_timeout_ms=session_timeout_ms,
                    rebalance_timeout_ms=60_000,
                ),
                subscription,
            )
            for number in range(count)
        ]
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.heartbeats = 0
        self.refused = 0

    def begin(self) -> None:
        """All join at once."""
        for number, member in enumerate(self.members):
            job = self._background.start(partial(self._live, member), f"member {number}", once=True)
            assert job.task is not None
            self._tasks[number] = job.task

    def kill(self, number: int) -> Member:
        """One falls silent."""
        self._tasks.pop(number).cancel()
        member = self.members[number]
        self.members[number] = Member(member.terms, Subscription())
        return member

    async def close(self) -> None:
        """All fall silent."""
        await self._background.close()

    def owned(self) -> set[types.TopicPartition]:
        """What somebody may work on; each partition once, or an error. A member that was not answered for a session
        does not know yet that its partitions are given to others, but its lease is over (G22).

        Raises:
            AssertionError: two members own one partition.
        """
        found: set[types.TopicPartition] = set()
        now_ms = time.monotonic() * 1000
        for member in self.members:
            if not member.has_lease(now_ms):
                continue
            assert found.isdisjoint(member.owned), "two members own one partition"
            found |= member.owned
        return found

    async def _live(self, member: Member) -> None:
        while True:
            sent, sent_ms = member.heartbeat(), time.monotonic() * 1000
            request = heartbeat_request(self._cluster, self._coordinator, member.terms, sent)
            try:
                answer = await self._coordinator.ask_once(
                    lambda to: to.ConsumerGroupHeartbeat, request, judge_heartbeat, deadline_ms=ATTEMPT_MS
                )
            except Refused as refused:
                self.refused += 1
                if passes_by(refused.refusal):
                    member.unanswered()
                else:
                    member.rejected(refused.refusal.code)
                await asyncio.sleep(_RETRY_S)
                continue
            self.heartbeats += 1
            assigned = None
            if answer.HasField("assignment"):
                assigned = frozenset(
                    types.TopicPartition(row.topic_id, index)
                    for row in answer.assignment.topics
                    for index in row.partitions
                )
            said = Confirmed(answer.member_epoch, answer.heartbeat_interval_ms, answer.session_timeout_ms, assigned)
            moves = member.confirmed(sent, sent_ms, said)
            if moves.revoked:
                member.given_up(moves.revoked)
            if not member.has_news:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
