"""In which order a member withholds, commits, hands back and reports its partitions, without sockets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.client.consume.cursor import Cursor
from strandline.client.groups.member import Confirmed, MemberTerms, Subscription
from strandline.client.groups.membership import Membership, MembershipHooks, MembershipSettings
from strandline.client.records import RebalanceListener, TopicPartition
from strandline.core import types
from strandline.core.errors import ErrorCode, Refused
from strandline.v1 import group_service_pb2 as pb, partition_pb2

ID = "id"
NEVER_MS = 3_600_000


class Started:
    """A job of the background, as far as a membership uses it."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self.task = asyncio.ensure_future(work())

    async def wait(self) -> None:
        await asyncio.wait([self.task])

    async def cancel(self) -> None:
        self.task.cancel()
        await self.wait()


class Told(RebalanceListener):
    """Notes every step, and waits in `on_assigned` until it is let go on."""

    def __init__(self, steps: list[str]) -> None:
        self.steps = steps
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.steps.append("on_assigned")
        self.began.set()
        await self.goes_on.wait()

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.steps.append("on_revoked")

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.steps.append("on_lost")


class Joined:
    """A membership with what it uses at hand; ``steps`` is what it did, in order."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.cursors: dict[types.TopicPartition, Cursor] = {}
        self.listener = Told(self.steps)
        self.sent: asyncio.Queue[pb.ConsumerGroupHeartbeatRequest] = asyncio.Queue()
        everything: Any = SimpleNamespace(
            topic=self._topic,
            view=SimpleNamespace(topic_by_id=lambda _: None),
            cursors=self.cursors,
            add=self._add,
            remove=lambda cursors: [self.cursors.pop(cursor.tp, None) for cursor in cursors],
            until_worked_on=self._until_worked_on,
            commit_last=self._commit_last,
            taken_away=lambda cursor: None,
            start=lambda work, name: Started(work),
            ask_once=self._ask_once,
            group_id="g",
            epoch=0,
            cluster_id="c",
            client_id="",
        )
        self.membership = Membership(
            everything, everything, everything, everything, everything, everything,
            terms=MemberTerms(
                member_id="m", instance_id=None, rack=None, assignor="", session_timeout_ms=NEVER_MS,
                rebalance_timeout_ms=NEVER_MS,
            ),
            subscription=Subscription(("t",)),
            settings=MembershipSettings(
                start="beginning", max_poll_interval_ms=NEVER_MS, strict_ownership=True, commits_by_itself=True
            ),
            listener=self.listener,
            hooks=MembershipHooks(lambda: None, lambda: None, lambda _: None),
        )  # fmt: skip
        given_up = self.membership.member.given_up

        def note(partitions: Collection[types.TopicPartition]) -> None:
            self.steps.append("given up")
            given_up(partitions)

        self.membership.member.given_up = note  # type: ignore[method-assign]

    async def _topic(self, name: str) -> Any:
        return SimpleNamespace(topic_id=ID)

    def _add(self, name: str, tp: types.TopicPartition, start: object) -> Cursor:
        cursor = self.cursors[tp] = Cursor(name, tp)
        cursor.seek(offset=types.Offset(0))
        return cursor

    async def _until_worked_on(self, cursors: Collection[Cursor]) -> None:
        self.steps.append("worked on")

    async def _commit_last(self, cursors: Collection[Cursor]) -> None:
        self.steps.append("committed")

    async def _ask_once(self, method: object, request: Any, judge: object, *, deadline_ms: int) -> None:
        self.sent.put_nowait(request)
        raise Refused(ErrorCode.NETWORK_EXCEPTION, "no answer")

    def answered(self, *partitions: int) -> None:
        """A heartbeat's answer that assigns these and no other."""
        member = self.membership.member
        rows = partition_pb2.TopicPartitions(topic_id=ID, topic="t", partitions=partitions)
        answer = pb.ConsumerGroupHeartbeatResponse(member_epoch=1, session_timeout_ms=NEVER_MS)
        answer.assignment.topics.append(rows)
        self.membership._take(member.heartbeat(), 0.0, answer)

    async def moved(self) -> None:
        """Once everything that answers started is done."""
        moving: Any = self.membership._moving
        await moving.wait()


def tp(partition: int) -> types.TopicPartition:
    return types.TopicPartition(ID, partition)


async def _with(*partitions: int) -> Joined:
    joined = Joined()
    joined.listener.goes_on.set()
    joined.answered(*partitions)
    await joined.moved()
    joined.steps.clear()
    return joined


async def test_what_an_answer_takes_away_is_withheld_at_once() -> None:
    """Before anything else runs, the user gets no more of it; the rest goes on."""
    joined = await _with(0, 1)
    joined.answered(0)
    withheld = {cursor.tp.partition: cursor.is_withheld for cursor in joined.cursors.values()}
    await joined.moved()

    assert withheld == {0: False, 1: True}


async def test_a_partition_is_given_up_last() -> None:
    """The user has finished, what was worked on is committed, and `on_revoked` has returned."""
    joined = await _with(0, 1)
    joined.answered(0)
    await joined.moved()

    assert joined.steps == ["worked on", "committed", "on_revoked", "given up"]


async def test_answers_are_carried_out_one_after_the_other() -> None:
    """A revocation waits for the listener of the assignment before it, and its partition is never given meanwhile."""
    joined = Joined()
    joined.answered(0, 1)
    await joined.listener.began.wait()
    withheld = [cursor.is_withheld for cursor in joined.cursors.values()]
    joined.answered(0)
    for _ in range(20):
        await asyncio.sleep(0)
    meanwhile = list(joined.steps)
    joined.listener.goes_on.set()
    await joined.moved()

    assert withheld == [True, True]
    assert meanwhile == ["on_assigned"]
    assert joined.steps[1:] == ["worked on", "committed", "on_revoked", "given up"]


async def test_the_loss_of_a_deleted_topic_waits_for_what_is_under_way() -> None:
    """`on_lost` follows the `on_assigned` of the same partition, however soon its topic is deleted."""
    joined = Joined()
    joined.answered(0)
    await joined.listener.began.wait()
    joined.membership.topics_changed()
    for _ in range(20):
        await asyncio.sleep(0)
    meanwhile = list(joined.steps)
    joined.listener.goes_on.set()
    await joined.moved()

    assert meanwhile == ["on_assigned"]
    assert joined.steps == ["on_assigned", "on_lost"]
    assert not joined.cursors


async def test_a_loss_ends_all_that_was_under_way() -> None:
    """What was to be given up, and what waits behind that, may be assigned again before the user has finished."""
    joined, finished = await _with(0, 1), asyncio.Event()
    joined.membership._commits.until_worked_on = lambda _: finished.wait()  # type: ignore[method-assign,assignment]
    joined.answered(0)
    joined.answered(0, 2)
    await asyncio.sleep(0)
    await joined.membership._lose(joined.membership.member.lose())
    finished.set()
    for _ in range(20):
        await asyncio.sleep(0)

    assert joined.steps == ["on_lost"]
    assert joined.membership._moves == []


async def test_heartbeats_that_begin_again_say_everything_again() -> None:
    """The answer to the one that was cut off may be lost, and with it what the coordinator knows."""
    joined = await _with(0)
    member = joined.membership.member
    member.confirmed(member.heartbeat(), 0.0, Confirmed(1, NEVER_MS, NEVER_MS, None))
    is_silent = member.heartbeat().held is None
    joined.membership.begin()
    async with asyncio.timeout(60):
        sent = await joined.sent.get()
    await joined.membership.leave(for_a_restart=False)

    assert is_silent
    assert [list(row.partitions) for row in sent.topic_partitions.topics] == [[0]]
    assert list(sent.subscribed_topic_names.names) == ["t"]


@pytest.mark.parametrize(("lease_end_ms", "steps"), [(math.inf, ["committed", "on_revoked"]), (0.0, [])])
async def test_a_member_whose_lease_is_over_commits_nothing_when_it_leaves(
    lease_end_ms: float, steps: list[str]
) -> None:
    """Its partitions may be another's by then; what it has read and not committed is read again."""
    joined = await _with(0)
    joined.membership.member._lease_end_ms = lease_end_ms
    await joined.membership.leave(for_a_restart=False)

    assert joined.steps == steps
    assert not joined.cursors
