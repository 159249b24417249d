"""asyncio on virtual time, and the services' own runtime on it: a bug there breaks an invariant or a promise here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from strandline.controller.driver import ControllerDriver
from strandline.core.log.events import LogFlushed
from strandline.node.leader_links import LeaderLinks
from strandline.runtime.log_performers import Flusher
from strandline.runtime.session import Session
from strandline.storage.journal import Journal
from strandline_sim.runs.run import run_seed
from strandline_sim.world.clock import Clock, Timeline
from strandline_sim.world.memory_logs import MemoryLogs
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


def test_an_unhandled_error_is_raised_by_the_entry(loop: VirtualLoop) -> None:
    """A callback that fails ends the run; the failure is not just logged."""
    machine = Machine(loop)

    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        machine.life.enter(lambda: loop.call_soon(fail))


# The simulator runs the services' own runtime: a bug there breaks an invariant or a promise here.


SEEDS = range(12)
ANY = {"I0", "I5", "I8", "I15", "I16", "L5", "L6", "L7", "M55"}
"""What a disk that forgets whole logs breaks first; which of these depends on the seed."""


def broken_by(names: set[str]) -> str:
    """The first of these that some seed breaks, with the seed; else everything that was broken."""
    others = []
    for seed in SEEDS:
        violation = run_seed(seed).violation
        if violation is not None and violation.name in names:
            return violation.name
        others.append(violation and violation.name)
    return str(others)


def test_a_commit_reported_before_its_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flusher that raises its event on issuing the commit lets replicas vote for undurable records (M55)."""

    def too_early(self: Any, tp: Any) -> LogFlushed:
        return LogFlushed(self._clock(), tp, self._logs.issue_flush(tp).leo_at_issue)

    monkeypatch.setattr(Flusher, "flush", too_early)

    # A second commit of a log is issued while the first is running, or its votes are above what is synced.
    assert broken_by({"M55", "I0"}) in {"M55", "I0"}


def test_saves_that_are_never_synced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that ends without its sync loses its logs, epochs and metadata with the process."""

    def never(self: Any) -> None:
        self.saves_wait = False

    monkeypatch.setattr(MemoryLogs, "sync_saves", never)

    assert broken_by(ANY) in ANY


def test_a_journal_that_leaves_a_file_unsynced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of the file that was left are lost with the power, and with them durable ones of the other (M58)."""
    take_turns = Journal._take_turns

    def unsynced(self: Journal) -> None:
        self.durable = self.sequence
        take_turns(self)

    monkeypatch.setattr(Journal, "_take_turns", unsynced)

    assert broken_by({"M58"}) == "M58"


def test_a_broken_stream_that_is_not_reported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that is not prompted to fetch again never catches up (L5, L6)."""
    monkeypatch.setattr(LeaderLinks, "fetch_failed", lambda *_: None)

    assert broken_by({"L5", "L6"}) in {"L5", "L6"}


def test_heartbeats_that_end_after_a_failure_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that sends no heartbeat after a failed one leaves its node fenced for ever (L1, L5)."""
    beat = Session._beat

    async def once(self: Any) -> Any:
        answer = await beat(self)
        if answer is None:
            await self._host.driver.wait_for_room()
            while True:
                await self._may_stop.wait()
                self._may_stop.clear()
        return answer

    monkeypatch.setattr(Session, "_beat", once)

    assert broken_by({"L1", "L5", "L7"}) in {"L1", "L5", "L7"}


def test_an_answer_before_its_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that performs effects without waiting for the commit before them contradicts itself later."""
    perform = ControllerDriver.__mro__[1].carry_out

    def at_once(self: Any, effects: Any) -> Any:
        self._pending += [effect for effect in effects if type(effect).__name__ == "Commit"]
        self._work.set()
        return perform(self, effects)

    monkeypatch.setattr(ControllerDriver, "carry_out", at_once)

    assert any(run_seed(seed).violation for seed in range(40))
