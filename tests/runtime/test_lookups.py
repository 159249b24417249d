"""Offsets by time: one partition after another, within a time limit, and only for a caller who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.core.errors import ErrorCode
from strandline.core.log.effects import AnswerOffsets
from strandline.core.messages import OffsetAnswer, OffsetLookup
from strandline.core.types import Offset, TopicPartition
from strandline.runtime.calls import Calls
from strandline.runtime.threads import MOST_MS, Aside, Lookups

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
