"""One machine of a run: its power, its disk and its process, with their pauses and speed.

Invariant: a process starts only from what the disk kept (TR17); machine and disk outlive it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from strandline.core.types import Durability, NodeId, Role, TopicPartition
from strandline_sim.checks.committed import Broken
from strandline_sim.world.clock import Clock
from strandline_sim.world.disk import CommitFailed, Disk, LogFile
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.environment import Environment
from strandline_sim.world.network import Party

_NO_LOG = LogFile()

BOOT_US = (5_000, 80_000)


class Living(Party, Protocol):
    """A process as its machine sees it."""

    def start(self) -> None:
        """Begin to live."""

    def stop(self) -> None:
        """Begin a controlled shutdown."""

    def end(self) -> None:
        """End this life."""


class Onlooker(Protocol):
    """The checks, as a machine sees them."""

    def hash_below(self, tp: TopicPartition, offset: int) -> int:
        """The hash of everything committed below ``offset``."""

    def disk_changed(self, node_id: NodeId) -> None:
        """A disk lost data."""

    def died(self, process: Any) -> None:
        """A process ended."""

    def befell(self, machine: Any, what: str) -> None:
        """A machine had a fault that no core is informed of."""


P = TypeVar("P", bound=Living)


class Machine(Generic[P]):
    """One data node's machine. ``live`` creates the process of a life."""

    def __init__(
        self, world: Environment, checks: Onlooker, node_id: NodeId, live: Callable[[Machine[P], int], P]
    ) -> None:
        self.world = world
        self.checks = checks
        self.node_id = node_id
        self._live = live
        self.disk = Disk(int(node_id))
        self.clock = Clock(world.timeline, start_ms=1_000_000 * (int(node_id) + 1))
        self.draw = Draw(world.shape.seed, Purpose.DISK, int(node_id))
        self.draw_of_saves = Draw(world.shape.seed, Purpose.SAVES, int(node_id))
        self.process: P | None = None
        self.is_paused = False
        self.is_buried = False
        # The next commit fails; with True the power also fails before anybody starts the process again.
        self.fsync_fails: bool | None = None
        self.inbox: list[tuple[Any, Callable[..., object], tuple[Any, ...]]] = []
        self.lag_us = 0
        self.slow_fsync_us = 0
        is_observer = int(node_id) >= world.shape.nodes - world.shape.observers
        self.roles = frozenset({Role.FOLLOWER} if is_observer else {Role.LEADER, Role.FOLLOWER})
        self._life = 0

    @property
    def running(self) -> P | None:
        """The live process, if there is one."""
        return self.process if self.process is not None and self.process.alive else None

    def log(self, tp: TopicPartition) -> LogFile:
        """The log on this disk; an empty one if there is none."""
        return self.disk.logs.get(tp) or _NO_LOG

    def fsync_us(self) -> int:
        """The duration of the next commit."""
        return self.draw.between(*self.world.shape.fsync_us) + self.slow_fsync_us

    def work_aside(self, work: Callable[[], object], done: asyncio.Future[Any]) -> None:
        """Sync in a thread of the process. The kernel syncs on while a process is paused; only the completion waits."""
        self.world.timeline.after(self.fsync_us(), self._worked, self.process, work, done)

    def _worked(self, process: P, work: Callable[[], object], done: asyncio.Future[Any]) -> None:
        if not process.alive:
            return
        if self.fsync_fails is not None:
            process.hand(_fail, done)
            return
        work()
        process.hand(_succeed, done)

    def start(self) -> None:
        """Boot, recover the disk, register."""
        if self.running is None:
            self.world.timeline.after(self.draw.between(*BOOT_US), self._start)

    def _start(self) -> None:
        if self.running is not None or self.is_buried:
            return
        self._life += 1
        self.is_paused = False
        self.inbox.clear()
        self.disk.recover(
            trusts_only_clean_stops=self.world.rules.durability is Durability.PAGE_CACHE,
            hash_below=self.checks.hash_below,
        )
        if self.disk.is_unclean:
            self.world.coverage.saw("unclean start")
        self.process = self._live(self, self._life)
        self.world.network.parties[int(self.node_id)] = self.process
        self.world.note(f"n{self.node_id}", f"starts life {self._life}")
        self.process.start()

    def kill(self, *, silently: bool = False) -> bool:
        """End the process at once; the disk keeps all that was written. Returns whether there was one."""
        process = self.running
        if process is None:
            return False
        process.alive = self.is_paused = False
        self.inbox.clear()
        self.world.network.break_streams_of(process, silently=silently)
        process.end()
        self.checks.died(process)
        self.checks.befell(self, "crash")
        return True

    def bury(self) -> None:
        """End the process, if there is one, and never start another."""
        self.is_buried = True
        self.kill()

    def lose_power(self) -> bool:
        """End the process; of the data that was not synced only some prefix remains."""
        was_running = self.kill(silently=True)
        lost = self.disk.lose_power(self.draw)
        self.disk.journal = journal = self.disk.journal.lose_power(self.draw_of_saves)
        if journal.found.fault is not None:
            raise Broken("M58", f"node {self.node_id} lost its power, and {journal.found.fault}")
        if lost:
            self.world.coverage.saw("unsynced records lost", lost)
        self.checks.befell(self, "power-off")
        self.checks.disk_changed(self.node_id)
        return was_running

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.kill(silently=True)
        self.disk.wipe()
        self.checks.befell(self, "wipe")
        self.checks.disk_changed(self.node_id)

    def halted(self, reason: str) -> None:
        """The process ended itself; a supervisor starts it again."""
        self.world.coverage.saw("process ended itself")
        self.world.note(f"n{self.node_id}", f"ends itself: {reason}")
        self.kill()
        self.start()

    def fsync_failed(self) -> None:
        """A commit failed: the process ends at once and never asks again (A3).

        The kernel took the pages for clean (ATC'20): a process that starts again reads what was written, and writes
        it again before it believes it; a loss of power before that takes it.
        """
        with_power, self.fsync_fails = bool(self.fsync_fails), None
        self.world.coverage.saw("fsync failed")
        self.world.note(f"n{self.node_id}", "ends itself: a commit failed")
        self.kill()
        if with_power:
            self.lose_power()
        self.world.timeline.after(self.draw.between(20_000, 600_000), self.start)

    def stop(self) -> None:
        """Ask for a controlled shutdown."""
        process = self.running
        if process is not None:
            process.hand(process.stop)

    def stopped(self, process: P) -> None:
        """A process has stopped with everything saved; it comes back a little later."""
        if process is not self.running:
            return
        for log in self.disk.logs.values():
            log.synced, log.flushing = log.leo, None
        self.disk.was_stopped_cleanly = True
        self.world.coverage.saw("clean stop")
        self.kill()
        self.world.timeline.after(self.draw.between(20_000, 600_000), self.start)

    def pause(self) -> None:
        """SIGSTOP: nothing runs, everything waits."""
        self.is_paused = self.running is not None

    def resume(self) -> None:
        """SIGCONT: what waited happens now, in the order in which it came."""
        self.is_paused = False
        waiting, self.inbox = self.inbox, []
        for process, action, given in waiting:
            self.world.timeline.after(0, process.hand, action, *given)


def _succeed(done: asyncio.Future[Any]) -> None:
    if not done.done():
        done.set_result(None)


def _fail(done: asyncio.Future[Any]) -> None:
    if not done.done():
        done.set_exception(CommitFailed("a commit failed"))
