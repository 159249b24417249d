"""R60, 79, 80: epochs that do not tell one transaction from the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap
from mutants.r59_markers_of_transactions import SEARCH
from mutants.verdict import Layer

from strandline.core.coordinator.machine import Context, Decision
from strandline.core.log.producer_id_blocks import ProducerIdSupply
from strandline.core.transactions import decisions, ending
from strandline.core.transactions.messages import EndTxn
from strandline.core.transactions.records import TransactionalId, TxnState


def _same_epoch(real: Real, value: TransactionalId, *given: Any) -> TransactionalId | None:
    after: TransactionalId | None = real(value, *given)
    return None if after is None else replace(after, identity=value.identity)


def _whatever_epoch(
    real: Real, value: TransactionalId | None, request: EndTxn, context: Context, supply: ProducerIdSupply
) -> Decision:
    if value is not None and value.state is TxnState.ONGOING:
        request = replace(request, identity=value.identity)
    decision: Decision = real(value, request, context, supply)
    return decision


def _twice(
    real: Real, name: str, value: TransactionalId, context: Context, supply: ProducerIdSupply
) -> Decision | None:
    later = value.identity._replace(producer_epoch=value.identity.producer_epoch + 1)
    decision: Decision | None = real(name, replace(value, identity=later), context, supply)
    return decision


MUTANTS = (
    Mutant(
        number="R60",
        name="no epoch raised per transaction",
        broken="All transactions of a process have one epoch, so that a late message lands in the next one.",
        source="X6; KIP-890, Jepsen on Bufstream 2024",
        scenario="x06_late_end",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(decisions, "prepared", _same_epoch),),
    ),
    Mutant(
        number="79",
        name="a late EndTxn of an old epoch is taken",
        broken="A copy of the request that ended one transaction ends the next.",
        source="X6; KAFKA-17754",
        scenario="x06_late_end",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ending, "end_txn", _whatever_epoch),),
    ),
    Mutant(
        number="80",
        name="a time-out raises the epoch twice",
        broken="The producer of a transaction that timed out is fenced, and cannot go on by an abort.",
        source="X7; KAFKA-19367",
        scenario="x09_timed_out_producer",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ending, "timed_out", _twice),),
    ),
)
