"""Work outside of the event loop, and how much may wait on a node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.core.log.effects import AnswerOffsets
from strandline.core.messages import OffsetAnswer, OffsetLookup
from strandline.core.types import Offset, TopicPartition
from strandline.node.fetch_streams import FetchPump
from strandline.runtime.calls import Calls
from strandline.runtime.outbox import MAX_BACKLOG_BYTES, Backlog, Outbox
from strandline.runtime.threads import MOST_MS, Aside, Lookups, giving_way


async def test_the_event_loop_goes_on_while_work_is_done() -> None:
    """A job that waits for the event loop itself completes."""
    aside, from_loop = Aside("test"), threading.Event()
    job = asyncio.ensure_future(aside.run(lambda: from_loop.wait(10)))
    await asyncio.sleep(0)
    from_loop.set()

    assert await job
    aside.close()


async def test_one_job_more_than_may_wait_is_refused() -> None:
    """One is running and two wait; the next is rejected at once, and later there is room again."""
    aside, go_on = Aside("test", waiting=2), threading.Event()
    jobs = [asyncio.ensure_future(aside.run(lambda: go_on.wait(10))) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        await aside.run(lambda: None)
    go_on.set()
    done = await asyncio.gather(*jobs)

    assert refused.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert done == [True] * 3
    assert await aside.run(lambda: "again") == "again"
    aside.close()


async def test_what_work_raises_is_raised_to_its_caller() -> None:
    """A rejection by the work is raised to the caller, and frees its slot like any end."""
    aside, refuses = Aside("test", waiting=0), Mock(side_effect=Refused(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
    for _ in range(3):
        with pytest.raises(Refused, match="too large"):
            await aside.run(refuses)
    aside.close()


def test_giving_way_changes_no_item() -> None:
    """Every item comes through once, in order."""
    assert list(giving_way(range(1_000))) == list(range(1_000))


def take(_: object) -> bool:
    """Take a caller that expects one answer."""
    return True


def test_calls_are_bounded_by_number_and_by_what_they_name() -> None:
    """Beyond either bound a call is rejected, definitely, and an answered or dropped call frees its slot."""
    calls = Calls(limit=3, named_limit=100)
    calls.wait(1, take, named=60)
    calls.wait(2, take, named=40)
    with pytest.raises(Refused) as refused:
        calls.wait(3, take, named=1)
    assert refused.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.value.refusal.outcome is Outcome.NOT_APPENDED

    calls.answer(1, "answer")
    assert calls.drop(2)
    assert not calls.drop(2)

    for number in (4, 5, 6):
        calls.wait(number, take, named=33)
    with pytest.raises(Refused):
        calls.wait(7, take, named=0)


async def test_answers_leave_in_the_order_they_became_ready() -> None:
    """Messages put before and while the writer runs are written in order, and closing ends the writer."""
    outbox: Outbox[int] = Outbox()
    written: list[int] = []

    async def write(message: int) -> None:
        written.append(message)

    outbox.put(1)
    writing = asyncio.create_task(outbox.write_all(write))
    await asyncio.sleep(0)
    outbox.put(2)
    outbox.put(3)
    outbox.close()
    await asyncio.wait_for(writing, 5)

    assert written == [1, 2, 3]


async def test_an_answer_that_is_made_later_keeps_its_place_and_its_room() -> None:
    """It is made when everything put before it is written, and its bytes count until it is written itself."""
    outbox: Outbox[str] = Outbox(max_bytes=100)
    happened: list[str] = []

    async def write(message: str) -> None:
        happened.append(f"{message} written, room {outbox.room_bytes()}")

    async def make() -> str:
        happened.append("made")
        return "later"

    outbox.put("first", 10)
    outbox.put_later(make, 60)
    outbox.put("last")
    outbox.close()
    await outbox.write_all(write)

    assert happened == ["first written, room 30", "made", "later written, room 40", "last written, room 100"]


async def test_what_is_dropped_gives_its_room_back() -> None:
    """After `clear` the whole room may be read for again."""
    outbox: Outbox[int] = Outbox(max_bytes=100)
    outbox.put(1, 60)
    outbox.clear()

    assert (len(outbox), outbox.room_bytes()) == (0, 100)


def test_streams_of_a_node_share_what_may_wait() -> None:
    """Beyond the shared limit a stream gets records only when none of its own wait; what is dropped is free again."""
    shared = Backlog(100)
    nobody: Any = None
    host: Any = SimpleNamespace(backlog=shared, driver=SimpleNamespace(calls=Calls()))
    slow, other, third = (FetchPump(host, nobody)._outbox for _ in range(3))
    slow.put(b"", 90)
    before = (MAX_BACKLOG_BYTES - slow.room_bytes(), MAX_BACKLOG_BYTES - other.room_bytes())
    other.put(b"", 20)
    full = (slow.room_bytes(), other.room_bytes(), third.room_bytes())
    slow.clear()

    assert before == (90, 0)
    assert full == (0, 0, MAX_BACKLOG_BYTES)
    assert (MAX_BACKLOG_BYTES - other.room_bytes(), shared.held_bytes) == (20, 20)


TPS = [TopicPartition("id", index) for index in range(4)]


class Scene:
    """Lookups over logs that answer with the partition's number, and a clock that each of them advances."""

    def __init__(self, *, each_ms: int = 0) -> None:
        self.now_ms, self.each_ms = 1_000, each_ms
        self.read: list[int] = []
        self.failed: list[BaseException] = []
        self.broken: BaseException | None = None
        self.calls = Calls()
        self.aside = Aside("test")
        logs: Any = self
        self.lookups = Lookups(logs, self.calls, self.aside, lambda: self.now_ms, self.failed.append)

    def look_up(self, answer: OffsetAnswer) -> Callable[[], OffsetAnswer]:
        """Read of one log."""
        if self.broken is not None:
            raise self.broken
        self.read.append(answer.tp.partition)
        self.now_ms += self.each_ms
        return lambda: OffsetAnswer(answer.tp, Offset(answer.tp.partition))

    def ask(self) -> tuple[int, asyncio.Future[tuple[OffsetAnswer, ...]]]:
        """A request for a time in each partition, and for the end of the last one."""
        answered: asyncio.Future[tuple[OffsetAnswer, ...]] = asyncio.get_running_loop().create_future()
        request_id = self.calls.new_id()
        self.calls.wait(request_id, lambda answers: answered.set_result(answers) or True)
        lookup = OffsetLookup(7, Offset(9), Offset(9), False)
        asked = (*(OffsetAnswer(tp, lookup=lookup) for tp in TPS), OffsetAnswer(TPS[-1], Offset(99)))
        self.lookups.begin(AnswerOffsets(request_id, asked))
        return request_id, answered

    async def close(self) -> None:
        """End the running lookups."""
        await self.lookups.close()
        self.aside.close()


async def test_every_time_is_answered_in_its_place() -> None:
    """Beside the answers that needed no read of a log."""
    scene = Scene()
    _, answered = scene.ask()
    answers = await asyncio.wait_for(answered, 10)
    await scene.close()

    assert [answer.offset for answer in answers] == [0, 1, 2, 3, 99]


async def test_a_call_that_takes_too_long_is_answered_with_what_was_found() -> None:
    """The partitions that were not read are rejected with the remedy."""
    scene = Scene(each_ms=MOST_MS // 2)
    _, answered = scene.ask()
    answers = await asyncio.wait_for(answered, 10)
    await scene.close()

    assert [answer.offset for answer in answers] == [0, 1, None, None, 99]
    assert answers[2].refusal is not None
    assert answers[2].refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "fewer partitions" in answers[2].refusal.message


async def test_nobody_is_looked_up_for_who_went_away() -> None:
    """A call that was dropped before its first read costs none."""
    scene = Scene()
    request_id, _ = scene.ask()
    scene.calls.drop(request_id)
    await asyncio.sleep(0)
    await scene.close()

    assert scene.read == []


async def test_a_damaged_log_ends_the_process() -> None:
    """An exception of a read that is not a rejection goes to the driver, as in a step."""
    scene = Scene()
    scene.broken = OSError("damaged")
    _, answered = scene.ask()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await answered
    await scene.close()

    assert scene.failed == [scene.broken]
