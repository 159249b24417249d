"""Transactions in the simulator: seeds break nothing, and removed rules are caught."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.core.log.replica_log import ReplicaLog
from strandline_sim.clients.copiers import Copier
from strandline_sim.clients.transactors import Transactor
from strandline_sim.runs.run import run_seed


@pytest.mark.timeout(120)
def test_seeds_of_transactions_break_nothing() -> None:
    """I36 to I38, L12 and L13 hold in seeds in which processes die and fence each other, and much is late."""
    counts: Counter[str] = Counter()
    for seed in range(300, 304):
        outcome = run_seed(seed, "transactions")
        assert outcome.violation is None, (seed, outcome.violation)
        counts.update(outcome.counts)

    assert counts["transactions: ended committed"] > 20
    assert counts["transactions: ended aborted"] > 20
    assert counts["transactions: aborted records passed over"] > 20
    assert counts["transactions: fenced"] > 0


@pytest.mark.timeout(60)
def test_a_seed_of_copiers_breaks_nothing() -> None:
    """I39 holds where processes that consume, transform and produce are fenced and aborted."""
    outcome = run_seed(11, "transactions")

    assert outcome.violation is None
    assert outcome.counts["transactions: offset staged"] > 1
    assert outcome.counts["transactions: read on at a committed offset"] > 5


@pytest.mark.timeout(60)
def test_an_abort_without_a_rewind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant 81: I39 breaks, for a process that was fenced writes what another has written."""

    def reads_on(self: Copier) -> None:
        if self._open is not None and self._open.offsets:
            self._position = self._open.offsets[0].offset
        Transactor._forget(self)

    monkeypatch.setattr(Copier, "_forget", reads_on)
    broken = run_seed(11, "transactions").violation

    assert broken is not None
    assert broken.name in ("duplicate", "lost-offset")


@pytest.mark.timeout(60)
def test_readers_up_to_the_high_watermark_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R62: G1a at the end, for records were read before they were aborted."""
    monkeypatch.setattr(ReplicaLog, "lso", property(lambda self: self.hw))
    broken = run_seed(0, "transactions").violation

    assert broken is not None
    assert broken.name in ("G1a", "L13")
