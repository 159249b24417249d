"""R59, R63, R64, R86: markers that end another transaction, or count before every partition has them for good."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.verdict import Layer

from strandline.core.log.leader import LeaderReplica
from strandline.core.log.producers import MarkerVerdict, TransactionLedger
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.serving.produce import ProduceServing
from strandline.core.transactions.ending import Markers
from strandline.core.types import Acks, LastMarker, Marker, Offset, TopicPartition

_FILE = "tests/sim/test_transactions_search.py"
SEARCH = f"{_FILE}::test_the_first_worlds_of_two_transactions_hold"
_LATE = f"{_FILE}::test_a_late_copy_of_the_first_transaction_changes_nothing"


def _ends_what_is_open(
    real: Real, self: TransactionLedger, producer_id: int, producer_epoch: int, marker: Marker, newest: int | None
) -> tuple[MarkerVerdict, LastMarker | None]:
    verdict, last = real(self, producer_id, producer_epoch, marker, newest)
    return (MarkerVerdict.APPEND if verdict is MarkerVerdict.LATE_COPY else verdict), last


def _answered_at_once(
    real: Real,
    self: ProduceServing,
    part: ProducePartition,
    base: Offset,
    end: Offset,
    acks: Acks,
    leader: LeaderReplica,
) -> tuple[ProduceResult, Offset | None]:
    result, wait = real(self, part, base, end, acks, leader)
    return result, wait if part.header.marker is None else None


def _copies_answered_at_once(
    real: Real, self: ProduceServing, part: ProducePartition, marker: Marker, leader: LeaderReplica
) -> tuple[ProduceResult, Offset | None] | None:
    settled = real(self, part, marker, leader)
    return None if settled is None else (settled[0], None)


def _one_is_enough(real: Real, self: Markers, tp: TopicPartition) -> None:
    if len(self._due_ms) > 1:
        real.differs()
    self._due_ms.clear()


MUTANTS = (
    Mutant(
        number="R59",
        name="a marker of equal epoch ends a transaction",
        broken="A late copy of the last transaction's marker ends the next one.",
        source="X11; KAFKA-19446, and KAFKA-14402 before version 2",
        scenario="x11_late_marker",
        tests=(_LATE,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(TransactionLedger, "judge", _ends_what_is_open),),
    ),
    Mutant(
        number="R63",
        name="markers answered before their HW",
        broken="The coordinator counts a marker that is lost with its leader.",
        source="X8, X11",
        scenario="x11_repeated_marker",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ProduceServing, "_appended", _answered_at_once),),
    ),
    Mutant(
        number="R64",
        name="complete before all markers",
        broken="A transaction counts as ended as soon as one partition has its marker.",
        source="X8",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(Markers, "written", _one_is_enough, pure=False),),
    ),
    Mutant(
        number="R86",
        name="a repeated marker answered before the first is committed",
        broken="A copy of a marker that may still be lost is answered as done.",
        source="X11; KAFKA-19999",
        scenario="x11_repeated_marker",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ProduceServing, "_judge_marker", _copies_answered_at_once),),
    ),
)
