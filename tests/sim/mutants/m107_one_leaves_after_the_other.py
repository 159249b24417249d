"""107a, 107b: sessions that end together are ended one by one."""

from __future__ import annotations

from collections.abc import Collection

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import leadership
from strandline.core.control.draft import Draft
from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


def _nobody_waits(real: Real, draft: Draft, due: Collection[NodeId], silent: Collection[NodeId]) -> set[NodeId]:
    return set()


def _one_by_one(
    real: Real,
    draft: Draft,
    partition: PartitionImage,
    leaving: frozenset[NodeId],
    cause: str,
    unclean: Collection[NodeId] = (),
) -> None:
    members = [member for member in partition.isr if member in leaving]
    if len(members) > 1:
        real.differs()
    for node_id in members:
        current = draft.partition(partition.tp)
        assert current is not None
        real(draft, current, frozenset([node_id]), cause, unclean)


MUTANTS = (
    Mutant(
        number="107a",
        name="the dead leave one after the other",
        broken="After a blackout the last members to fall silent are the only ones that are known to be complete.",
        source="M64",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(leadership, "held_back", _nobody_waits),),
    ),
    Mutant(
        number="107b",
        name="the dead of one tick leave one after the other",
        broken="Sessions that end in one step leave the ISR in an order, and only the last keeps its place.",
        source="M64",
        tests=("tests/core/test_reported_elections.py",),
        swaps=(Swap(leadership, "_leave", _one_by_one, pure=False),),
    ),
)
