"""106: a directory that went back in time."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import nodes
from strandline.core.control.state import NodeRecord
from strandline.core.messages import RegisterNode


def _never(real: Real, before: NodeRecord, request: RegisterNode) -> bool:
    return False


MUTANTS = (
    Mutant(
        number="106",
        name="older copy of a directory unnoticed",
        broken="A directory that does not remember the process that ran from it last registers as clean.",
        source="M67; TR44",
        scenario="tr44_copy_of_an_earlier_process",
        swaps=(Swap(nodes, "_is_older_copy", _never),),
    ),
)
