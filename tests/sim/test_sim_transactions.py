"""Transactions in the simulator: seeds break nothing, and removed rules are caught."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.core.replica_log import ReplicaLog
from strandline.core.transactions import MarkerVerdict, TransactionLedger
from strandline.core.types import LastMarker, Marker
from strandline.sim.run import run_seed


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
def test_readers_up_to_the_high_watermark_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R62: G1a at the end, for records were read before they were aborted."""
    monkeypatch.setattr(ReplicaLog, "lso", property(lambda self: self.hw))
    broken = run_seed(0, "transactions").violation

    assert broken is not None
    assert broken.name in ("G1a", "L13")


@pytest.mark.timeout(60)
def test_a_late_marker_that_ends_a_later_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R59: what its producer commits is aborted by a copy of the marker before."""
    honest = TransactionLedger.judge

    def takes_copies(
        self: TransactionLedger, producer_id: int, producer_epoch: int, marker: Marker, newest_epoch: int | None
    ) -> tuple[MarkerVerdict, LastMarker | None]:
        verdict, last = honest(self, producer_id, producer_epoch, marker, newest_epoch)
        return (MarkerVerdict.APPEND if verdict is MarkerVerdict.LATE_COPY else verdict), last

    monkeypatch.setattr(TransactionLedger, "judge", takes_copies)
    broken = run_seed(12, "transactions").violation

    assert broken is not None
    assert broken.name in ("lost", "torn", "G1a")
