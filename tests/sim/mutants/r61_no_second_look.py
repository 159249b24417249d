"""R61: a batch is appended as soon as the coordinator agrees, whatever came in between."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap
from mutants.r59_markers_of_transactions import SEARCH
from mutants.verdict import Layer

from strandline.core.log.effects import Effect
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.serving.produce import ProduceServing
from strandline.core.serving.produce_checks import ParkedProduce
from strandline.core.types import Offset, TopicPartition


def _appends_what_is_verified(
    real: Real,
    self: ProduceServing,
    part: ProducePartition,
    call: ParkedProduce,
    index: int,
    now_ms: int,
    grown: dict[TopicPartition, Offset],
    out: list[Effect],
    *,
    verified: bool = False,
) -> tuple[ProduceResult, Offset | None]:
    if not verified:
        answer: tuple[ProduceResult, Offset | None] = real(self, part, call, index, now_ms, grown, out)
        return answer
    real.differs()
    leader = self._state.leaders[part.tp]
    grown.setdefault(part.tp, leader.log.leo)
    base = leader.log.append_as_leader(part.header, part.payload, leader.image.leader_epoch, out)
    return self._appended(part, base, leader.log.leo, call.acks, leader)


MUTANTS = (
    Mutant(
        number="R61",
        name="no second look after verification",
        broken="A batch whose transaction was ended while the coordinator's answer was on its way is appended.",
        source="X10; KAFKA-14402, KAFKA-18401",
        scenario="x10_late_consent",
        tests=(SEARCH,),
        layers=(Layer.TESTS, Layer.SCENARIOS, Layer.SEEDS),
        profiles=("transactions",),
        swaps=(Swap(ProduceServing, "_append", _appends_what_is_verified, pure=False),),
    ),
)
