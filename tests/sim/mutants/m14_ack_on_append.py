"""14: acks=all means acks=1."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.leader import LeaderReplica
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.serving.produce import ProduceServing
from strandline.core.types import Acks, Offset


def _at_once(
    real: Real,
    serving: ProduceServing,
    part: ProducePartition,
    base_offset: Offset,
    end: Offset,
    acks: Acks,
    leader: LeaderReplica,
) -> tuple[ProduceResult, Offset | None]:
    result, waits_for = real(serving, part, base_offset, end, acks, leader)
    return result, None if acks is Acks.ALL else waits_for


MUTANTS = (
    Mutant(
        number="14",
        name="acknowledged on the leader's append",
        broken="A produce with acks=all is answered as soon as the leader has appended it.",
        source="M46; I12",
        scenario="tr20_duplicate_of_a_cut_record",
        swaps=(Swap(ProduceServing, "_appended", _at_once),),
    ),
)
