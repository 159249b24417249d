"""121: a proposal that outlives the leader epoch in which it was made."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.log.proposals import IsrChannel
from strandline.core.types import TopicPartition


def _keeps_what_waits(real: Real, self: IsrChannel, tp: TopicPartition) -> None:
    if tp in self._state.leaders:
        real(self, tp)
    elif tp in self.waiting:
        real.differs()


MUTANTS = (
    Mutant(
        number="121",
        name="proposal not forgotten at a new epoch",
        broken="A leader that is deposed, or elected again, goes on asking for what it proposed in the epoch before.",
        source="M45; TR9",
        swaps=(Swap(IsrChannel, "forget", _keeps_what_waits, pure=False),),
    ),
)
