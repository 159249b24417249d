"""The order between a controller's commits and its answers, and how it goes on with a step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from running_controller import stop

from strandline.controller.driver import ControllerDriver
from strandline.controller.watches import Watches
from strandline.core.control.events import Answer, Commit, ContinueStep, ControllerTicked, RequestArrived, StepContinued
from strandline.core.control.messages import DeleteTopics, TopicsChanged
from strandline.core.control.state import ClusterHeader, Transaction
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.metadata.store import StoreAway, StoreDeposed, StoreFailed
from strandline.runtime.exit_codes import ExitCode

DEPOSED = Refusal(ErrorCode.NOT_CONTROLLER, "another one decides")


class Given:
    """A core whose every event is the list of its effects, and a store that commits when it may."""

    purgatory_full = False

    def __init__(self) -> None:
        self.may_commit = asyncio.Event()
        self.committed: list[Any] = []
        self.answered: dict[int, Any] = {}
        given: Any = self
        self.driver = ControllerDriver(
            given, given, clock=lambda: 1_000, sink=given, watches=Watches(1, lambda image: image), stop=stop
        )

    def step(self, effects: Sequence[Any]) -> Sequence[Any]:
        return effects

    async def commit(self, transactions: Sequence[Any]) -> None:
        await self.may_commit.wait()
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


# How the controller's driver goes on with a step: behind the commit, after whatever waits, and only while it may.
# And what it answers where a commit did not end well.


class Core:
    """Answers every tick with the effects given, and requests behind a commit; notes what it is stepped with."""

    purgatory_full = False

    def __init__(self, *effects: Any) -> None:
        self.effects = effects
        self.stepped: list[type] = []

    def step(self, event: Any) -> list[Any]:
        """Note it."""
        self.stepped.append(type(event))
        if isinstance(event, RequestArrived):
            return [COMMIT, Answer(event.request_id, TopicsChanged(topics=()))]
        return list(self.effects) if isinstance(event, ControllerTicked) else []


class Store:
    """Commits, or fails, when it is allowed to."""

    def __init__(self, error: StoreFailed | None = None) -> None:
        self.allowed = asyncio.Event()
        self.error = error

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Wait for the test."""
        assert transactions
        await self.allowed.wait()
        if self.error is not None:
            raise self.error


class Sink:
    """Takes no event."""

    def take(self, tp: object, event: object) -> None:
        """Not expected."""
        raise AssertionError(event)


def fail(code: ExitCode, reason: str) -> NoReturn:
    """The process must not end."""
    raise AssertionError((code, reason))


def driver_of(core: Core, store: Store) -> ControllerDriver:
    """A driver whose clock stands still."""
    watches: Watches[Any] = Watches(10, lambda image: image)
    return ControllerDriver(core, store, clock=lambda: 1_000, sink=Sink(), watches=watches, stop=fail)  # type: ignore[arg-type]


async def turns(count: int = 3) -> None:
    """Let whatever is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


COMMIT = Commit(Transaction(header=ClusterHeader(cluster_id="c")))


async def test_a_step_is_continued_when_its_commit_is_durable() -> None:
    """Not before, whatever else the loop does meanwhile; and once, however often it was asked for."""
    core, store = Core(COMMIT, ContinueStep()), Store()
    driver = driver_of(core, store)
    driver.step(ControllerTicked(1_000))
    driver.step(ControllerTicked(1_000))
    performing = asyncio.create_task(driver.perform_pending())
    await turns()
    early = list(core.stepped)
    store.allowed.set()
    await performing
    await turns()

    assert early == [ControllerTicked, ControllerTicked]
    assert core.stepped == [*early, StepContinued]


async def test_what_waits_comes_before_the_step_is_continued() -> None:
    """A callback that was ready before has its turn first: a heartbeat waits for one part at most."""
    core = Core(ContinueStep())
    driver = driver_of(core, Store())
    driver.step(ControllerTicked(1_000))
    seen: list[list[type]] = []
    asyncio.get_running_loop().call_soon(lambda: seen.append(list(core.stepped)))
    driver.step(ControllerTicked(1_000))
    at_once = list(core.stepped)
    await turns()

    assert at_once == [ControllerTicked, ControllerTicked]
    assert core.stepped[2:] == [StepContinued]
    assert len(seen) == 1


@pytest.mark.parametrize("why", ["may not decide", "dropped"])
async def test_a_reign_that_may_not_decide_does_not_go_on(why: str) -> None:
    """The event does not enter a core that is unsure of its lease, or whose reign is over; and nothing fails."""
    core = Core(ContinueStep())
    driver = driver_of(core, Store())
    driver.step(ControllerTicked(1_000))
    if why == "dropped":
        driver.drop(Refusal(ErrorCode.NOT_CONTROLLER, "over"))
    else:
        driver.may_decide = lambda: False
    await turns()

    assert core.stepped == [ControllerTicked]


async def refused(driver: ControllerDriver) -> ErrorCode:
    """The code with which a request is refused."""
    with pytest.raises(Refused) as caught:
        await driver.request(DeleteTopics(topics=()), TopicsChanged)
    return caught.value.refusal.code


@pytest.mark.parametrize(
    ("error", "code"),
    [(StoreAway("no answer"), ErrorCode.REQUEST_TIMED_OUT), (StoreDeposed("over"), ErrorCode.NOT_CONTROLLER)],
)
async def test_a_change_is_denied_only_where_it_is_certain(error: StoreFailed, code: ErrorCode) -> None:
    """A store that gives no answer may have stored the change (C9); one that names a later reign never will."""
    store = Store(error)
    store.allowed.set()
    driver = driver_of(Core(), store)
    asked = asyncio.create_task(refused(driver))
    await turns()
    await driver.perform_pending()

    assert await asked is code
