"""How the controller's driver goes on with a step: behind the commit, after whatever waits, and only while it may.

And what it answers where a commit did not end well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from strandline.controller.driver import ControllerDriver
from strandline.controller.watches import Watches
from strandline.core.control.events import Answer, Commit, ContinueStep, ControllerTicked, RequestArrived, StepContinued
from strandline.core.control.messages import DeleteTopics, TopicsChanged
from strandline.core.control.state import ClusterHeader, Transaction
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.metadata.store import StoreAway, StoreDeposed, StoreFailed
from strandline.runtime.exit_codes import ExitCode


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


async def test_a_reign_that_ends_says_not_controller_only_of_what_was_not_being_stored() -> None:
    """The change that was being stored may be done (C9); the one behind it never will be."""
    driver = driver_of(Core(), Store())
    stored = asyncio.create_task(refused(driver))
    await turns()
    performing = asyncio.create_task(driver.perform_pending())
    await turns()
    waiting = asyncio.create_task(refused(driver))
    await turns()
    driver.drop(Refusal(ErrorCode.NOT_CONTROLLER, "over"))
    answers = await stored, await waiting
    performing.cancel()

    assert answers == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)


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
