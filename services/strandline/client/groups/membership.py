"""One consumer's life in its group: heartbeats, partitions that come and go, the listener that hears of them.

Invariants: heartbeats are sent one after the other, whatever the user or the listener does; what an answer takes away
is given to the user no more from that moment on, and is reported as given up only when the user has finished with it,
what was worked on is committed and `on_revoked` has returned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from strandline.client.background import Background, Job, Work
from strandline.client.cluster.metadata import Cluster
from strandline.client.consume.cursor import Cursor
from strandline.client.consume.fetching import Fetching
from strandline.client.consume.positions import Assignment, Where
from strandline.client.errors import TopicDeleted
from strandline.client.groups.committed_offsets import AsMember
from strandline.client.groups.committing import Superseded
from strandline.client.groups.coordinator import ATTEMPT_MS, GroupCoordinator, passes_by, verdict_of
from strandline.client.groups.group_commits import GroupCommits
from strandline.client.groups.member import (
    Confirmed,
    Heartbeat,
    HeartbeatVerdict as Meaning,
    Member,
    MemberTerms,
    Moves,
    Subscription,
)
from strandline.client.log import RetryLog, log, some_of
from strandline.client.records import RebalanceListener, TopicPartition
from strandline.core import types
from strandline.core.errors import Refusal, Refused
from strandline.rpc.channels import Backoff
from strandline.rpc.convert.errors import by_topic
from strandline.v1 import group_service_pb2 as pb, partition_pb2

_Listens = Callable[[Sequence[TopicPartition]], Awaitable[None]]

_LEAVE_MS = 2_000
"""How long the coordinator is asked to take a member's leave; without it the session ends by itself."""
_RETRY_INSTANCE_MS = 1_000


class GroupMetadata(NamedTuple):
    """The member that commits for a group inside a transaction."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    superseded: Superseded = ()
    """What was given before a partition was lost and not since; a transaction with these positions is aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """How a consumer is a member; durations in ms."""

    start: Where | None
    """Where reading begins in partitions for which the group has committed nothing; None: such a one is an error."""
    max_poll_interval_ms: int
    strict_ownership: bool
    commits_by_itself: bool


class MembershipHooks(NamedTuple):
    """What the consumer does when something changes."""

    on_news: Callable[[], None]
    """There may be something to give, or to raise."""
    on_begin: Callable[[], None]
    """Positions have to be found."""
    on_withheld: Callable[[Collection[Cursor]], None]
    """These are given no more."""


class Membership:
    """From `subscribe` to `unsubscribe` or `close`."""

    def __init__(
        self,
        cluster: Cluster,
        coordinator: GroupCoordinator,
        fetching: Fetching,
        assignment: Assignment,
        commits: GroupCommits,
        background: Background,
        *,
        terms: MemberTerms,
        subscription: Subscription,
        settings: MembershipSettings,
        listener: RebalanceListener | None,
        hooks: MembershipHooks,
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._fetching = fetching
        self._assignment = assignment
        self._commits = commits
        self._background = background
        self._settings = settings
        self._listener = listener or RebalanceListener()
        self._hooks = hooks
        self.member = Member(terms, subscription)
        # The names of what is assigned; an id stays with one topic for ever.
        self._names: dict[str, str] = {}
        self.failure: BaseException | None = None
        """Why this consumer is no member any more; raised to the user."""
        self._deleted: list[str] = []
        """The topics that were named, were read, and are deleted; each is raised once to the user."""
        self._first = asyncio.Event()
        self._wake = asyncio.Event()
        self._asked_ms = _now_ms()
        self._is_asking = False
        self._is_away = False
        self._beating: Job | None = None
        # What answers demand and is not carried out yet, in order, and the job that does it.
        self._moves: list[Work] = []
        self._moving: Job | None = None

    def begin(self) -> None:
        """Join, and stay until `leave`."""
        self._beating = self._background.start(self._beat_forever, "heartbeats")

    async def until_heard(self, timeout_ms: int) -> None:
        """Until the coordinator has said something of the join, or the time is over.

        Raises:
            Refused: it rejected the join for good.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._first.wait()
        except TimeoutError:
            log.warning(
                "the coordinator of group %s has not answered yet; the consumer goes on asking",
                self._coordinator.group_id,
            )
        self.check()

    def check(self) -> None:
        """Raise why this consumer is no member any more, or, once, that a topic is deleted to which it has subscribed.

        Raises:
            Refused: the coordinator rejected it; or whatever the listener raised.
            TopicDeleted: the member goes on without it.
        """
        if self.failure is not None:
            raise self.failure
        if self._deleted:
            raise TopicDeleted(self._deleted.pop(0))

    def subscribe(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        """Want something else."""
        self._listener = listener or RebalanceListener()
        self.member.subscribe(subscription)
        self._wake.set()

    def asks(self) -> None:
        """The user asks for records."""
        self._asked_ms, self._is_asking = _now_ms(), True
        if self._is_away:
            self._is_away = False
            self._wake.set()

    def given(self) -> None:
        """The user has got what there was, and works on it."""
        self._asked_ms, self._is_asking = _now_ms(), False

    def may_give(self) -> bool:
        """Whether what is assigned may be worked on now (G22)."""
        return not self._settings.strict_ownership or self.member.has_lease(_now_ms())

    def gives_on(self) -> bool:
        """Whether the user may have one more record of what is there: `asks`, `may_give` and `given` in one.

        Called for every record. If not, nothing was noted, and those say why.
        """
        if self.failure is not None or self._is_away or self._deleted:
            return False
        now_ms = time.monotonic() * 1000
        if self._settings.strict_ownership and not self.member.has_lease(now_ms):
            return False
        self._asked_ms, self._is_asking = now_ms, False
        return True

    def as_member(self) -> AsMember | None:
        """The member that commits; None before the join is confirmed, when there is nothing to commit either."""
        terms = self.member.terms
        return AsMember(terms.member_id, self.member.epoch, terms.instance_id)

    async def leave(self, *, for_a_restart: bool) -> None:
        """Give everything up in good order, and tell the coordinator, if it listens."""
        if self._beating is not None:
            await self._beating.cancel()
        await self._stop_moving()
        cursors = self._cursors_of(self.member.held)
        # Without a lease another member may have them, so nothing of them is committed any more.
        if cursors and self.may_give() and self.failure is None:
            self._withhold(cursors)
            await self._hand_back(cursors)
        else:
            self._drop(cursors)
        was_member = self.member.is_member
        self.member.lose()
        # A `subscribe` that waits for an answer no longer waits.
        self._first.set()
        if was_member:
            await self._say(self.member.leave(for_a_restart=for_a_restart), _LEAVE_MS)

    async def _say(self, heartbeat: Heartbeat, deadline_ms: int) -> None:
        try:
            await self._send(heartbeat, deadline_ms)
        except Refused as refused:
            log.info("the group was left without an answer; its session ends by itself: %s", refused)

    async def _beat_forever(self) -> None:
        backoff = Backoff()
        retry = RetryLog(f"sending heartbeats to group {self._coordinator.group_id}")
        # The answer to one that was cut off may have been lost.
        self.member.unanswered()
        while self.failure is None:
            if self._has_gone():
                await self._go_away()
            while self._is_away:
                self._wake.clear()
                await self._wake.wait()
            sent, sent_ms = self.member.heartbeat(), _now_ms()
            try:
                answer = await self._send(sent, ATTEMPT_MS)
            except Refused as refused:
                wait_ms = await self._rejected(refused.refusal, backoff, retry)
            else:
                backoff.reset()
                retry.worked()
                self._take(sent, sent_ms, answer)
                wait_ms = 0 if self.member.has_news else self.member.interval_ms
            await self._sleep(wait_ms)
        await self._end()

    async def _end(self) -> None:
        """The listener failed, or the coordinator wants no such member."""
        held, leaving = self.member.held, self.member.leave(for_a_restart=False)
        was_member = self.member.is_member
        self.member.lose()
        await self._lose(held)
        if was_member:
            await self._say(leaving, _LEAVE_MS)

    async def _sleep(self, wait_ms: float) -> None:
        """Until the next heartbeat is due, or there is something to say."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _rejected(self, refusal: Refusal, backoff: Backoff, retry: RetryLog) -> float:
        """Returns after how many ms the next heartbeat is due."""
        if passes_by(refusal):
            self.member.unanswered()
            retry.failed(_now_ms(), str(refusal))
            return backoff.next_s() * 1000
        held = self.member.held
        meaning = self.member.rejected(refusal.code)
        if meaning is Meaning.WAIT:
            retry.failed(_now_ms(), str(refusal))
            return _RETRY_INSTANCE_MS
        log.warning("group %s: %s", self._coordinator.group_id, refusal)
        await self._lose(held)
        if meaning is Meaning.FATAL:
            self._fail(Refused.of(refusal))
        return backoff.next_s() * 1000

    def _take(self, sent: Heartbeat, sent_ms: float, answer: pb.ConsumerGroupHeartbeatResponse) -> None:
        had_lease = self.member.has_lease(_now_ms())
        moves = self.member.confirmed(sent, sent_ms, self._read(answer))
        self._first.set()
        if moves.revoked or moves.assigned:
            # At once: the move itself may have to wait for an earlier one.
            self._withhold(self._cursors_of(moves.revoked))
            self._then(partial(self._move, moves))
        # Records that were withheld without a lease can be given again.
        if not had_lease:
            self._hooks.on_news()

    def _read(self, answer: pb.ConsumerGroupHeartbeatResponse) -> Confirmed:
        assignment = None
        if answer.HasField("assignment"):
            self._names.update({row.topic_id: row.topic for row in answer.assignment.topics})
            assignment = frozenset(
                types.TopicPartition(row.topic_id, index)
                for row in answer.assignment.topics
                for index in row.partitions
            )
        return Confirmed(answer.member_epoch, answer.heartbeat_interval_ms, answer.session_timeout_ms, assignment)

    def _then(self, move: Work) -> None:
        """Do this behind what an earlier answer said."""
        self._moves.append(move)
        if len(self._moves) == 1:
            self._moving = self._background.start(self._move_on, "take and give up partitions")

    async def _move_on(self) -> None:
        while self._moves:
            await self._moves[0]()
            # Not before, so that what is cut off in the middle begins again; a listener may have left the group.
            del self._moves[:1]

    async def _move(self, moves: Moves) -> None:
        """Carry out what an answer says."""
        if moves.revoked:
            await self._give_up(moves.revoked)
        if moves.assigned and self.failure is None:
            await self._begin_to_read(moves.assigned)

    def topics_changed(self) -> None:
        """What is deleted is read no more; the coordinator takes it away with a later answer."""
        view = self._cluster.view
        gone = [one for one in self._cursors_of(self.member.held) if view.topic_by_id(one.tp.topic_id) is None]
        if not gone:
            return
        self._drop(gone)
        self._deleted += sorted({one.topic for one in gone}.intersection(self.member.subscription.topics))
        self._then(lambda: self._tell(self._listener.on_lost, gone))
        self._hooks.on_news()

    async def _give_up(self, partitions: Collection[types.TopicPartition]) -> None:
        cursors = self._cursors_of(partitions)
        await self._commits.until_worked_on(cursors)
        await self._hand_back(cursors)
        # Last, because the heartbeat that says so lets another member begin to read.
        self.member.given_up(partitions)
        self._wake.set()

    async def _hand_back(self, cursors: Collection[Cursor]) -> None:
        """Commit what was worked on of these, let the listener do the same, and read them no more."""
        if self._settings.commits_by_itself:
            await self._commits.commit_last(cursors)
        await self._tell(self._listener.on_revoked, cursors)
        self._drop(cursors)

    def _drop(self, cursors: Collection[Cursor]) -> None:
        self._withhold(cursors)
        self._assignment.remove(cursors)
        for cursor in cursors:
            self._commits.taken_away(cursor)

    async def _begin_to_read(self, partitions: Iterable[types.TopicPartition]) -> None:
        cursors: list[Cursor] = []
        for tp in sorted(partitions):
            name = self._names[tp.topic_id]
            if await self._is_known(name, tp.topic_id):
                cursor = self._assignment.add(name, tp, self._settings.start)
                # Until `on_assigned` has returned, which may seek.
                cursor.is_withheld = True
                cursors.append(cursor)
            else:
                # The next answer assigns it again; by then its topic may be known here.
                self.member.given_up([tp])
        if not cursors:
            return
        log.info("group %s assigned %s", self._coordinator.group_id, some_of(one.name for one in cursors))
        await self._tell(self._listener.on_assigned, cursors)
        for cursor in cursors:
            # It may have been taken away again meanwhile.
            cursor.is_withheld = cursor.tp not in self.member.owned
        self._hooks.on_begin()

    async def _is_known(self, name: str, topic_id: str) -> bool:
        try:
            topic = await self._cluster.topic(name)
        except Refused:
            return False
        return topic.topic_id == topic_id

    async def _lose(self, held: Collection[types.TopicPartition]) -> None:
        """Others may own these by now."""
        cursors = self._cursors_of(held)
        # Before anything is awaited: another member may work on them already.
        self._withhold(cursors)
        await self._stop_moving()
        self._drop(cursors)
        await self._tell(self._listener.on_lost, cursors)

    async def _stop_moving(self) -> None:
        self._moves.clear()
        if self._moving is not None and self._moving.task is not asyncio.current_task():
            await self._moving.cancel()

    def _has_gone(self) -> bool:
        """Whether the user has not asked for records for too long."""
        waited_ms = _now_ms() - self._asked_ms
        # Heartbeats go on beside a user who hangs, and would keep the partitions from the other members for ever.
        return not self._is_asking and self.member.is_member and waited_ms > self._settings.max_poll_interval_ms

    async def _go_away(self) -> None:
        """Leave, so that others read on, until the user asks for records."""
        log.warning(
            "no record was asked for in %d ms (max_poll_interval_ms): the consumer leaves group %s until it asks again",
            self._settings.max_poll_interval_ms,
            self._coordinator.group_id,
        )
        held = self.member.held
        leaving = self.member.leave(for_a_restart=False)
        self._is_away = True
        self.member.lose()
        await self._lose(held)
        await self._say(leaving, _LEAVE_MS)

    def _withhold(self, cursors: Collection[Cursor]) -> None:
        for cursor in cursors:
            cursor.is_withheld = True
        self._hooks.on_withheld(cursors)

    def _cursors_of(self, partitions: Iterable[types.TopicPartition]) -> list[Cursor]:
        known = self._fetching.cursors
        return [known[tp] for tp in sorted(partitions) if tp in known]

    async def _tell(self, listens: _Listens, of: Collection[Cursor]) -> None:
        """Let the listener hear of these; what it raises is the user's to see, and ends the membership."""
        if not of:
            return
        try:
            await listens([one.name for one in of])
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            log.warning("%s failed; the consumer leaves its group", listens.__qualname__)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._first.set()
        self._wake.set()
        self._hooks.on_news()

    async def _send(self, heartbeat: Heartbeat, deadline_ms: int) -> pb.ConsumerGroupHeartbeatResponse:
        request = heartbeat_request(self._cluster, self._coordinator, self.member.terms, heartbeat)
        return await self._coordinator.ask_once(
            lambda to: to.ConsumerGroupHeartbeat, request, verdict_of, deadline_ms=deadline_ms
        )


def heartbeat_request(
    cluster: Cluster, coordinator: GroupCoordinator, terms: MemberTerms, heartbeat: Heartbeat
) -> pb.ConsumerGroupHeartbeatRequest:
    """A heartbeat as it is sent."""
    request = pb.ConsumerGroupHeartbeatRequest(
        cluster_id=cluster.cluster_id,
        group_id=coordinator.group_id,
        member_id=terms.member_id,
        member_epoch=heartbeat.member_epoch,
        instance_id=terms.instance_id,
        sequence=heartbeat.sequence,
        coordinator_epoch=coordinator.epoch,
        client_id=cluster.client_id,
    )
    if heartbeat.joins is not None:
        request.subscribed_topic_names.names.extend(heartbeat.joins.topics)
        request.subscribed_topic_names.SetInParent()
        request.subscribed_topic_regex = heartbeat.joins.pattern or ""
        request.server_assignor = terms.assignor
        request.session_timeout_ms = terms.session_timeout_ms
        request.rebalance_timeout_ms = terms.rebalance_timeout_ms
        request.rack_id = terms.rack or ""
    if heartbeat.held is not None:
        request.topic_partitions.SetInParent()
        request.topic_partitions.topics.extend(
            partition_pb2.TopicPartitions(topic_id=topic_id, partitions=[tp.partition for tp in tps])
            for topic_id, tps in by_topic(sorted(heartbeat.held), lambda tp: tp)
        )
    return request


def _now_ms() -> float:
    return time.monotonic() * 1000
