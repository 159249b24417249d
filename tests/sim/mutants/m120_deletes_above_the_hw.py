"""120: an operator may delete records above the high watermark."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.errors import Refusal
from strandline.core.log.effects import AdvanceLogStart, Effect
from strandline.core.log.replica_log import ReplicaLog
from strandline.core.messages import DeletePartition
from strandline.core.serving.deletion import DeleteServing
from strandline.core.types import Offset


def _up_to_the_leo(real: Real, self: ReplicaLog, offset: Offset, out: list[Effect]) -> None:
    target = min(offset, self.leo)
    if target <= self.hw:
        real(self, offset, out)
        return
    real.differs()
    self.log_start_offset = self.hw = target
    out.append(AdvanceLogStart(self.tp, target))


def _any_offset(real: Real, self: DeleteServing, part: DeletePartition) -> Offset | Refusal:
    leader = self._state.leaders.get(part.tp)
    if leader is None or part.offset is None or part.offset <= leader.log.hw:
        target: Offset | Refusal = real(self, part)
        return target
    return min(part.offset, leader.log.leo)


MUTANTS = (
    Mutant(
        number="120",
        name="DeleteRecords above the high watermark",
        broken="A leader deletes records that are not committed, and takes its new log start for committed.",
        source="M10",
        profiles=("trim", "swarm"),
        swaps=(
            Swap(DeleteServing, "_target", _any_offset),
            Swap(ReplicaLog, "advance_log_start", _up_to_the_leo, pure=False),
        ),
    ),
)
