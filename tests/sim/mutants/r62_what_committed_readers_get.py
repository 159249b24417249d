"""R62, 78: readers of committed records are given too much."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.r59_markers_of_transactions import SEARCH
from mutants.verdict import Layer

from strandline.core.log.producers import TransactionLedger
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.types import AbortedTransaction, Offset


def _high_watermark(real: Real, self: ReplicaLog) -> Offset:
    return self.hw


def _begun_in_range(real: Real, self: TransactionLedger, start: Offset, end: Offset) -> tuple[AbortedTransaction, ...]:
    found: tuple[AbortedTransaction, ...] = real(self, start, end)
    return tuple(transaction for transaction in found if transaction.first_offset >= start)


MUTANTS = (
    Mutant(
        number="R62",
        name="the LSO is the HW",
        broken="A reader of committed records is given what may yet be aborted.",
        source="X12; Jepsen on Redpanda 21.10",
        scenario="table_transaction",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ReplicaLog, "lso", _high_watermark),),
    ),
    Mutant(
        number="78",
        name="the list of aborted transactions begins at the fetch offset",
        broken="The rest of an aborted transaction is given to a reader that begins within it.",
        source="X15",
        tests=("tests/core/test_producer_snapshot.py",),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(TransactionLedger, "aborted_between", _begun_in_range),),
    ),
)
