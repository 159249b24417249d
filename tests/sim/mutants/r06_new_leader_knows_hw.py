"""R6: a new leader that assumes it knows everything committed before it."""

from __future__ import annotations

from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.leader import LeaderReplica
from strandline.core.log.node import NodeCore
from strandline.core.types import TopicPartition


def _commits_its_log(real: Real, core: NodeCore, tp: TopicPartition, *given: Any) -> None:
    real(core, tp, *given)
    log = core.state.logs[tp]
    if log.raise_hw(log.leo):
        real.differs()


def _always(real: Real, leader: LeaderReplica) -> bool:
    return True


MUTANTS = (
    Mutant(
        number="R6a",
        name="a new leader commits its whole log",
        broken="A new leader sets its high watermark to its own log end.",
        source="Raft, section 5.4.2, in Kafka's terms; M6",
        scenario="tr03_leader_epoch",
        swaps=(Swap(NodeCore, "_lead", _commits_its_log, pure=False),),
    ),
    Mutant(
        number="R6b",
        name="a new leader tells an end it does not know",
        broken="A new leader answers the latest offset before its high watermark reached the start of its epoch.",
        source="KIP-207; I13, TR6",
        scenario="tr06_isr_grows_too_early",
        swaps=(Swap(LeaderReplica, "knows_true_hw", _always),),
    ),
)
