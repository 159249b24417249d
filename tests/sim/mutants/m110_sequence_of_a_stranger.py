"""110: a sequence that somebody else has used up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Mutant, Real, Swap

from strandline.core import alter_partition
from strandline.core.messages import AlterPartitionAnswer


def _says_not_which(real: Real, *given: Any) -> AlterPartitionAnswer:
    return replace(real(*given), last_sequence=None)


MUTANTS = (
    Mutant(
        number="110",
        name="refused sequence without the last one",
        broken="A leader whose count fell behind a forged proposal never learns what to exceed.",
        source="M71",
        tests=("tests/core/test_alter_partition.py", "tests/core/test_isr_channel.py"),
        swaps=(Swap(alter_partition, "_out_of_sequence", _says_not_which),),
    ),
)
