"""The order between a controller's commits and its answers, and how it goes on with a step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from running_controller import stop

from strandline.controller.driver import ControllerDriver
from strandline.controller.watches import Watches
from strandline.core.control.events import Answer, Commit, ContinueStep, OpenWatch, StepContinued
from strandline.core.control.messages import WatchMetadata
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.metadata.store import StoreAway, StoreDeposed

DEPOSED = Refusal(ErrorCode.NOT_CONTROLLER, "another one decides")


class Given:
    """A core whose event is the tuple of its effects or has none, and a store that commits when it may."""

    purgatory_full = False

    def __init__(self) -> None:
        self.may_commit = asyncio.Event()
        self.fails: Exception | None = None
        self.continued: list[Any] = []
        self.committed: list[Any] = []
        self.answered: dict[int, Any] = {}
        given: Any = self
        self.driver = ControllerDriver(
            given, given, clock=lambda: 1_000, sink=given, watches=Watches(1, lambda image: image), stop=stop
        )

    def step(self, event: Any) -> Sequence[Any]:
        if isinstance(event, tuple):
            return event
        self.continued.append(event)
        return ()

    async def commit(self, transactions: Sequence[Any]) -> None:
        await self.may_commit.wait()
        if self.fails is not None:
            raise self.fails
        self.committed += transactions

    def happens(self, *effects: Any) -> None:
        """A step with these effects; who is answered by them waits."""
        for effect in effects:
            if isinstance(effect, Answer):
                self.driver.calls.wait(effect.request_id, self._heard(effect.request_id))
        self.driver.step(effects)

    def _heard(self, request_id: int) -> Any:
        def sink(answer: Any) -> bool:
            self.answered[request_id] = answer
            return True

        return sink

    @property
    def codes(self) -> dict[int, ErrorCode]:
        """Why calls ended."""
        return {call: answer.code for call, answer in self.answered.items()}


def _commit(name: str) -> Commit:
    transaction: Any = name
    return Commit(transaction)


def _answer(request_id: int) -> Answer:
    answer: Any = SimpleNamespace(refusal=None)
    return Answer(request_id, answer)


async def test_what_comes_before_a_commit_has_begun_waits_behind_it() -> None:
    """An answer that needs no commit itself may tell of what the step before it has decided."""
    given = Given()
    given.happens(_commit("a"), _answer(1))
    given.happens(_answer(2))
    before = dict(given.answered)
    given.may_commit.set()
    await given.driver.perform_pending()

    assert before == {}
    assert (given.committed, list(given.answered)) == (["a"], [1, 2])


async def test_what_comes_while_a_commit_is_under_way_waits_behind_it_and_shares_the_next() -> None:
    """Nothing is answered before what is in front of it is durable, and one fsync serves all that waited."""
    given = Given()
    given.happens(_commit("a"), _answer(1))
    performing = asyncio.create_task(given.driver.perform_pending())
    await asyncio.sleep(0)
    given.happens(_answer(2))
    given.happens(_commit("b"), _answer(3))
    before = dict(given.answered)
    given.may_commit.set()
    await performing
    first = list(given.answered)
    await given.driver.perform_pending()

    assert before == {}
    assert first == [1]
    assert (given.committed, list(given.answered)) == (["a", "b"], [1, 2, 3])


async def test_the_end_of_a_reign_leaves_open_what_is_being_committed() -> None:
    """C9: its callers hear that it may have been done; those behind it hear that nothing was, and the commit that ends
    later performs nothing."""
    given = Given()
    given.happens(_commit("a"), _answer(1))
    performing = asyncio.create_task(given.driver.perform_pending())
    await asyncio.sleep(0)
    given.happens(_commit("b"), _answer(2))
    given.driver.drop(DEPOSED)
    codes = given.codes
    # Would hear what a commit that ends after the reign performs.
    given.driver.calls.wait(1, given._heard(3))
    given.may_commit.set()
    await performing
    await given.driver.perform_pending()

    assert codes == {1: ErrorCode.REQUEST_TIMED_OUT, 2: ErrorCode.NOT_CONTROLLER}
    assert (given.committed, list(given.answered)) == (["a"], [1, 2])
    with pytest.raises(Refused, match="another one decides"):
        given.driver.step(())


@pytest.mark.parametrize(
    ("fails", "code"),
    [(StoreAway("no answer"), ErrorCode.REQUEST_TIMED_OUT), (StoreDeposed("over"), ErrorCode.NOT_CONTROLLER)],
)
async def test_only_a_commit_that_was_refused_is_known_not_to_be_done(fails: Exception, code: ErrorCode) -> None:
    """A store that gives no answer may have done it, or may do it later (C9); one that names a later reign will not."""
    given = Given()
    given.fails = fails
    given.may_commit.set()
    given.happens(_commit("a"), _answer(1))
    await given.driver.perform_pending()

    assert given.codes == {1: code}


@pytest.mark.parametrize("is_cancelled_first", [False, True])
async def test_a_watch_whose_caller_left_before_its_turn_is_closed(is_cancelled_first: bool) -> None:
    """It was opened behind a commit, in the moment in which its caller is cancelled: nothing would ever close it."""
    given = Given()
    given.happens(_commit("a"))
    opening = asyncio.create_task(given.driver.watch(WatchMetadata()))
    await asyncio.sleep(0)
    snapshot: Any = SimpleNamespace(is_snapshot=True, position=None)
    given.happens(OpenWatch(given.continued[0].request_id, snapshot, None, None))
    given.may_commit.set()
    if is_cancelled_first:
        opening.cancel()
    await given.driver.perform_pending()
    opening.cancel()
    await asyncio.wait({opening})

    assert len(given.driver.watches) == 0


async def turns(count: int = 3) -> None:
    """Let whatever is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_step_is_continued_when_its_commit_is_durable() -> None:
    """Not before, whatever else the loop does meanwhile; and once, however often it was asked for."""
    given = Given()
    given.happens(_commit("a"), ContinueStep())
    given.happens(_commit("b"), ContinueStep())
    performing = asyncio.create_task(given.driver.perform_pending())
    await turns()
    early = list(given.continued)
    given.may_commit.set()
    await performing
    await turns()

    assert early == []
    assert given.continued == [StepContinued(1_000)]


async def test_what_waits_comes_before_the_step_is_continued() -> None:
    """A callback that was ready before has its turn first: a heartbeat waits for one part at most."""
    given = Given()
    given.happens(ContinueStep())
    seen: list[list[Any]] = []
    asyncio.get_running_loop().call_soon(lambda: seen.append(list(given.continued)))
    given.happens(ContinueStep())
    at_once = list(given.continued)
    await turns()

    assert at_once == []
    assert given.continued == [StepContinued(1_000)]
    assert len(seen) == 1


@pytest.mark.parametrize("why", ["may not decide", "dropped"])
async def test_a_reign_that_may_not_decide_does_not_go_on(why: str) -> None:
    """The event does not enter a core that is unsure of its lease, or whose reign is over; and nothing fails."""
    given = Given()
    given.happens(ContinueStep())
    if why == "dropped":
        given.driver.drop(DEPOSED)
    else:
        given.driver.may_decide = lambda: False
    await turns()

    assert given.continued == []
