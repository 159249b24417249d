"""The simulator runs the services' own runtime: a bug there breaks an invariant or a promise here."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.controller.driver import ControllerDriver
from strandline.core.log.events import LogFlushed
from strandline.node.leader_links import LeaderLinks
from strandline.runtime.log_performers import Flusher
from strandline.runtime.session import Session
from strandline.storage.journal import Journal
from strandline_sim.runs.run import run_seed
from strandline_sim.world.memory_logs import MemoryLogs

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
