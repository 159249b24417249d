"""26: a leader that comes back and goes on."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core import leadership
from strandline.core.draft import Draft
from strandline.core.types import NodeId


def _goes_on(real: Real, draft: Draft, node_id: NodeId, cause: str) -> None:
    if any(partition.leader == node_id for partition in draft.partitions()):
        real.differs()


MUTANTS = (
    Mutant(
        number="26",
        name="same epoch after a restart",
        broken="A leader that is back within its session goes on in the leader epoch of its earlier process.",
        source="TR21; M56",
        scenario="tr21_same_epoch_after_restart",
        swaps=(Swap(leadership, "reign_anew", _goes_on, pure=False),),
    ),
)
