"""26: a leader that restarts and continues in the same epoch."""

from __future__ import annotations

from dataclasses import replace

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import leadership
from strandline.core.control.draft import Draft
from strandline.core.control.election import in_assignment_order
from strandline.core.types import NodeId


def _goes_on(real: Real, draft: Draft, node_id: NodeId, cause: str) -> None:
    for partition in list(draft.partitions()):
        if partition.leader == node_id:
            real.differs()
        elif node_id in (*partition.isr, *partition.elr):
            unproven = in_assignment_order(partition, (*partition.unproven, node_id))
            draft.put_partition(replace(partition, unproven=unproven), cause=cause)


MUTANTS = (
    Mutant(
        number="26",
        name="same epoch after a restart",
        broken="A leader that is back within its session goes on in the leader epoch of its earlier process.",
        source="TR21; M56",
        scenario="tr21_same_epoch_after_restart",
        swaps=(Swap(leadership, "begin_unproven", _goes_on, pure=False),),
    ),
)
