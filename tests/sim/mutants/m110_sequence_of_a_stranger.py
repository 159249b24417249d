"""110a, 110b: a sequence that another sender has used, in the controller's answer and in the leader's handling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import alter_partition
from strandline.core.log.effects import Effect
from strandline.core.log.events import AlterPartitionAnswered
from strandline.core.log.proposals import IsrChannel
from strandline.core.messages import AlterPartitionAnswer
from strandline.core.types import TopicPartition


def _says_not_which(real: Real, *given: Any) -> AlterPartitionAnswer:
    return replace(real(*given), last_sequence=None)


def _does_not_look(
    real: Real, self: IsrChannel, event: AlterPartitionAnswered, out: list[Effect]
) -> list[TopicPartition]:
    if event.answer.last_sequence is not None:
        real.differs()
        event = replace(event, answer=replace(event.answer, last_sequence=None))
    answer: list[TopicPartition] = real(self, event, out)
    return answer


MUTANTS = (
    Mutant(
        number="110a",
        name="refused sequence without the last one",
        broken="A leader whose count fell behind a forged proposal never learns what to exceed.",
        source="M71",
        tests=("tests/core/test_alter_partition.py", "tests/core/test_isr_channel.py"),
        swaps=(Swap(alter_partition, "_out_of_sequence", _says_not_which),),
    ),
    Mutant(
        number="110b",
        name="last sequence not taken over",
        broken="A leader goes on counting below a forged proposal, and none of its own is looked at again.",
        source="M71",
        tests=("tests/core/test_isr_channel.py",),
        swaps=(Swap(IsrChannel, "answered", _does_not_look, pure=False),),
    ),
)
