"""A member of a consumer group that behaves as our client must: heartbeats, a lease, commits after processing.

Invariants: it reads only while its lease runs (G22); one commit is in flight (G31); a restart takes a new member id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups import messages
from strandline.core.log.events import CoordinatorAsked
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline_sim.checks.committed import Broken
from strandline_sim.checks.group_history import CommitOutcome, Fetch, Given, OffsetCommitted, Share, Taken
from strandline_sim.clients.clients import Client
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.network import Call

SESSION_MS = 1_500
REBALANCE_MS = 1_000
DEADLINE_US = 450_000
BEAT_US = (120_000, 260_000)
READ_US = (15_000, 60_000)
RECORD_US = 4_000
"""Interval of each partition's records; they need no log, because no check reads their values."""

_TRY_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
_LOST = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


@dataclass(slots=True)
class Reading:
    """One partition that this member reads."""

    position: int | None = None
    """None while the committed offset is not fetched yet."""
    is_asking: bool = False


class GroupMember(Client):
    """One process that reads as a member of a group, leaves, returns and stalls."""

    def __init__(
        self,
        world: Cluster,
        number: int,
        tp: TopicPartition,
        group_id: str,
        *,
        saw: Callable[[Taken | Given | Fetch], None],
        committed: Callable[[OffsetCommitted], None],
    ) -> None:
        super().__init__(world, number, tp)
        self._saw = saw
        self._committed = committed
        self.group_id = group_id
        self.name = f"m{number}"
        self.is_calm = False
        self.is_member = False
        self.instance_id = f"i{number}" if self.draw.chance(300) else None
        self._coordinator_epoch: LeaderEpoch | None = None
        self._slow = self.draw.chance(250)
        self._life = 0
        self._serial = 0
        self._begin()

    def _begin(self) -> None:
        self._life += 1
        self.member_id = f"{self.name}-{self._life}"
        self.epoch = 0
        self.reads: dict[TopicPartition, Reading] = {}
        self._revoking: dict[TopicPartition, int] = {}
        """The time until which it still works on partitions that it must give up."""
        self._lease_us = 0
        self._stalled_us = 0
        self._sequence = 0
        self._commit_sequence = 0
        self._is_committing = False

    @property
    def _now_us(self) -> int:
        return self.world.timeline.now_us

    def leader(self) -> NodeId | None:
        """The coordinator of the group and its epoch, as far as this member knows."""
        if self._leader is None:
            self._coordinator_epoch = self.world.leader_epoch_of(self.tp)
        return super().leader()

    def _known_epoch(self) -> LeaderEpoch | None:
        """What every request names that changes something, as production's client does: else a late copy that reaches
        a later coordinator would count (TR41)."""
        self.leader()
        return self._coordinator_epoch

    def _share(self, tp: TopicPartition) -> Share:
        return Share(self.group_id, tp.topic_id, tp.partition)

    def start(self) -> None:
        """Join."""
        self.is_member = True
        self._beat(self._life)
        self._read(self._life)

    def _ask(self, request: object, done: Any, *, may_repeat: bool = True) -> None:
        leader = self.leader()
        if leader is None:
            self.world.timeline.after(self.draw.between(20_000, 100_000), done, None)
            return
        tp = self.tp

        def serve(call: Call) -> None:
            process = self.world.process_at(int(leader))
            process.serve(call, lambda now_ms, number: CoordinatorAsked(now_ms, number, tp, 400, request))

        again_us = self.draw.between(1_000, 900_000) if may_repeat and self.draw.chance(60) else 0
        if again_us:
            self.world.coverage.saw("groups: request twice")
        self.world.network.call(
            self, int(leader), serve, done, deadline_us=DEADLINE_US, copies=may_repeat, copy_us=again_us
        )

    def _beat(self, life: int, epoch: int | None = None) -> None:
        if life != self._life or not self.is_member:
            return
        now_us = self._now_us
        if epoch is None and now_us < self._stalled_us:
            self.world.timeline.after(self._stalled_us - now_us, self._beat, life)
            return
        self._revoking = {tp: until for tp, until in self._revoking.items() if until > now_us}
        self._sequence += 1
        joins = self.epoch == 0
        owned = tuple(sorted({*self.reads, *self._revoking}))
        request = messages.ConsumerGroupHeartbeat(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
            topic_partitions=owned if joins or self.draw.chance(700) or self._revoking else None,
            subscribed_topic_names=("lines", "short") if joins else None,
            rebalance_timeout_ms=REBALANCE_MS if joins else None,
            session_timeout_ms=SESSION_MS if joins else None,
            coordinator_epoch=self._known_epoch(),
            sequence=self._sequence,
        )
        self._ask(request, lambda answer: self._heard(life, now_us, request, answer))

    def _heard(self, life: int, sent_us: int, request: messages.ConsumerGroupHeartbeat, answer: object) -> None:
        if life != self._life or not self.is_member:
            return
        if isinstance(answer, messages.HeartbeatAnswered):
            self._told(sent_us, answer)
        elif answer is None or (isinstance(answer, Refusal) and answer.code in _TRY_AGAIN):
            self.forget_leader()
        elif isinstance(answer, Refusal) and answer.code in _LOST:
            self.world.coverage.saw(f"groups: {answer.code.name}")
            self.reads, self._revoking, self.epoch = {}, {}, 0
        else:
            raise Broken("I0", f"{request} was answered {answer}")
        self._go_on(life)

    def _go_on(self, life: int) -> None:
        choice = 999 if self.is_calm else self.draw.below(1000)
        if choice < 12:
            self._leave(life)
        elif choice < 24:
            self._die(life)
        else:
            if choice < 40:
                self._stalled_us = self._now_us + self.draw.between(500_000, 2_600_000)
                self.world.coverage.saw("groups: member stalled")
            self.world.timeline.after(self.draw.between(*BEAT_US), self._beat, life)

    def _told(self, sent_us: int, answer: messages.HeartbeatAnswered) -> None:
        self.epoch = answer.member_epoch
        self._lease_us = sent_us + answer.session_timeout_ms * 900
        if answer.assignment is None:
            return
        now_us = self._now_us
        for tp in [tp for tp in self.reads if tp not in answer.assignment]:
            reading = self.reads.pop(tp)
            self._commit(tp, reading)
            slow_us = self.draw.between(800_000, 1_600_000) if self._slow and not self.is_calm else 0
            self._revoking[tp] = now_us + slow_us + self.draw.between(1_000, 60_000)
            if self.draw.chance(200):
                # A thread of the user that does not know yet.
                self.world.timeline.after(self.draw.between(200_000, 900_000), self._commit, tp, reading)
            self.world.coverage.saw("groups: revoked")
        for tp in answer.assignment:
            if tp not in self.reads:
                self._revoking.pop(tp, None)
                self.reads[tp] = Reading()
                self._saw(Taken(self.member_id, self._share(tp), now_us))

    def _leave(self, life: int) -> None:
        """Leave cleanly, static members for a restart; then come back."""
        epoch = -1 if self.instance_id is None else -2
        self.reads, self._revoking = {}, {}
        self.world.coverage.saw("groups: left for a restart" if epoch == -2 else "groups: left")
        self._beat(life, epoch)
        self.is_member = False
        self._life += 1
        self.world.timeline.after(self.draw.between(50_000, 2_000_000), self._return)

    def _die(self, life: int) -> None:
        """End without notice, and start again as another member."""
        self.is_member = False
        self._life += 1
        self.world.coverage.saw("groups: member died")
        self.world.timeline.after(self.draw.between(50_000, 2_000_000), self._return)

    def _return(self) -> None:
        self._begin()
        self.start()

    def _read(self, life: int) -> None:
        if life != self._life or not self.is_member:
            return
        now_us = self._now_us
        if now_us >= self._stalled_us and now_us < self._lease_us:
            for tp, reading in sorted(self.reads.items()):
                self._read_one(tp, reading)
        self.world.timeline.after(self.draw.between(*READ_US), self._read, life)

    def _read_one(self, tp: TopicPartition, reading: Reading) -> None:
        if reading.position is None:
            if not reading.is_asking:
                self._fetch(tp, reading)
            return
        until = min(self._now_us // RECORD_US, reading.position + self.draw.between(0, 40))
        if until > reading.position:
            now_us = self._now_us
            self._saw(Given(self.member_id, self._share(tp), reading.position, until, now_us, now_us))
        reading.position = until
        if self.draw.chance(150):
            self._commit(tp, reading)

    def _fetch(self, tp: TopicPartition, reading: Reading) -> None:
        reading.is_asking = True
        invoked_us = self._now_us
        request = messages.OffsetFetch(
            group_id=self.group_id,
            partitions=(tp,),
            member_id=self.member_id,
            member_epoch=self.epoch,
            require_stable=True,
        )

        def done(answer: object) -> None:
            reading.is_asking = False
            if not isinstance(answer, messages.OffsetsFetched):
                self.forget_leader()
                return
            found = answer.partitions[0]
            serial = None if found.offset is None else found.metadata
            self._saw(Fetch(self._share(tp), found.offset, serial, invoked_us, self._now_us))
            reading.position = found.offset or 0
            self.world.coverage.saw("groups: began at a commit" if found.offset else "groups: began at 0")

        self._ask(request, done, may_repeat=False)

    def _commit(self, tp: TopicPartition, reading: Reading) -> None:
        if self._is_committing or reading.position is None or not self.epoch:
            return
        self._is_committing = True
        self._serial += 1
        self._commit_sequence += 1
        serial, position, life = f"{self.name}.{self._serial}", reading.position, self._life
        open_commit = OffsetCommitted(
            self.member_id, self._share(tp), position, serial, self._now_us, None, CommitOutcome.UNKNOWN
        )
        self._committed(open_commit)
        request = messages.OffsetCommit(
            group_id=self.group_id,
            offsets=(messages.OffsetToCommit(tp, Offset(position), None, serial),),
            member_id=self.member_id,
            member_epoch=self.epoch,
            coordinator_epoch=self._known_epoch(),
            sequence=self._commit_sequence,
        )

        def done(answer: object) -> None:
            if life == self._life:
                self._is_committing = False
            if isinstance(answer, messages.OffsetsCommitted):
                refusal = answer.partitions[0].refusal
                if refusal is None:
                    self._committed(replace(open_commit, completed_us=self._now_us, outcome=CommitOutcome.DONE))
                self.world.coverage.saw("groups: committed" if refusal is None else f"groups: {refusal.code.name}")
            else:
                self.forget_leader()

        self._ask(request, done)
