"""asyncio on virtual time: the clock is the machine's, and a process that is gone does nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from strandline_sim.world.clock import Clock, Timeline
from strandline_sim.world.virtual_loop import Life, VirtualLoop


class Machine:
    """A process that can be paused."""

    def __init__(self, loop: VirtualLoop, rate: int = 1_000) -> None:
        self.clock = Clock(loop.timeline)
        self.clock.set_rate(rate)
        self.life = Life(loop, self.clock, self.hand, self._work)
        self.timeline = loop.timeline
        self.is_paused = False
        self.inbox: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def hand(self, action: Callable[..., object], *given: Any) -> None:
        """Run it now, or when the machine is resumed."""
        if self.is_paused:
            self.inbox.append((action, given))
        else:
            self.life.enter(action, *given)

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False
        for action, given in self.inbox:
            self.life.enter(action, *given)

    def _work(self, work: Callable[[], Any], done: asyncio.Future[Any]) -> None:
        self.timeline.after(500, lambda: self.hand(lambda: done.set_result(work())))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task."""
        self.life.enter(lambda: self.life.loop.create_task(work))


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """The event loop that asyncio finds."""
    found = VirtualLoop(Timeline())
    with found.running():
        yield found


def test_sleep_lasts_as_long_as_the_machines_clock_says(loop: VirtualLoop) -> None:
    """A clock that runs at half the world's rate makes a sleep of 10 ms last 20 ms of the world."""
    woken: list[int] = []

    async def nap() -> None:
        await asyncio.sleep(0.010)
        woken.append(loop.timeline.now_us)

    Machine(loop).begin(nap())
    Machine(loop, rate=500).begin(nap())
    loop.timeline.run_until(100_000)

    assert woken == [10_000, 20_000]


def test_a_paused_process_wakes_when_it_goes_on(loop: VirtualLoop) -> None:
    """A timer that was due in the pause fires after it, once."""
    woken: list[int] = []
    machine = Machine(loop)

    async def nap() -> None:
        await asyncio.sleep(0.010)
        woken.append(loop.timeline.now_us)

    machine.begin(nap())
    machine.is_paused = True
    loop.timeline.run_until(50_000)
    assert woken == []
    machine.resume()

    assert woken == [50_000]


def test_a_timeout_ends_a_wait(loop: VirtualLoop) -> None:
    """`asyncio.timeout` counts virtual time."""
    ended: list[int] = []

    async def wait() -> None:
        try:
            async with asyncio.timeout(0.005):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append(loop.timeline.now_us)

    Machine(loop).begin(wait())
    loop.timeline.run_until(20_000)

    assert ended == [5_000]


def test_work_in_a_thread_takes_the_time_of_the_machine(loop: VirtualLoop) -> None:
    """`run_in_executor` completes when the machine allows it."""
    done: list[tuple[int, str]] = []

    async def sync() -> None:
        found = await asyncio.get_running_loop().run_in_executor(None, lambda: "synced")
        done.append((loop.timeline.now_us, found))

    Machine(loop).begin(sync())
    loop.timeline.run_until(10_000)

    assert done == [(500, "synced")]


def test_a_process_that_is_gone_does_nothing_more(loop: VirtualLoop) -> None:
    """The tasks of a process that is gone are cancelled, its timers pass, and anything it starts is cancelled too."""
    said: list[str] = []
    machine = Machine(loop)

    async def live() -> None:
        try:
            await asyncio.sleep(0.010)
            said.append("woken")
        finally:
            said.append("ended")
            asyncio.get_running_loop().create_task(late())

    async def late() -> None:
        said.append("began after the end")

    machine.begin(live())
    machine.life.shut()
    loop.timeline.run_until(50_000)

    assert said == ["ended"]


def test_an_error_that_nobody_takes_is_raised_by_the_entry(loop: VirtualLoop) -> None:
    """A callback that fails ends the run; the failure is not just logged."""
    machine = Machine(loop)

    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        machine.life.enter(lambda: loop.call_soon(fail))
