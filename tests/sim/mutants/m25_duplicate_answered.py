"""25: a duplicate is taken to be committed."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.leader import LeaderReplica
from strandline.core.log.producers import SequenceCheck, SequenceVerdict
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.serving.produce import ProduceServing
from strandline.core.types import Acks, Offset


def _at_once(
    real: Real, serving: ProduceServing, part: ProducePartition, check: SequenceCheck, acks: Acks, leader: LeaderReplica
) -> tuple[ProduceResult, Offset | None]:
    result, waits_for = real(serving, part, check, acks, leader)
    return result, None if check.verdict is SequenceVerdict.DUPLICATE else waits_for


MUTANTS = (
    Mutant(
        number="25",
        name="duplicate answered at once",
        broken="A batch that is sent again is acknowledged with its first offset, committed or not.",
        source="TR20; M61",
        scenario="tr20_duplicate_of_a_cut_record",
        swaps=(Swap(ProduceServing, "_out_of_sequence", _at_once),),
    ),
)
