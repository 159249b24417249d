"""R10: a node is identified by its id alone, regardless of its disk."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import alter_partition
from strandline.core.control.draft import Draft
from strandline.core.errors import Refusal
from strandline.core.messages import IsrMember, PartitionImage


def _any_incarnation(
    real: Real, draft: Draft, partition: PartitionImage, members: tuple[IsrMember, ...]
) -> Refusal | None:
    records = [draft.node(member.node_id) for member in members]
    current = tuple(
        member._replace(node_epoch=record.image.node_epoch) if record is not None else member
        for member, record in zip(members, records, strict=True)
    )
    found: Refusal | None = real(draft, partition, current)
    return found


MUTANTS = (
    Mutant(
        number="R10",
        name="node epoch not checked",
        broken="The controller admits a member to the ISR whose proof was given by an earlier process of that node.",
        source="KIP-903, KAFKA-14139; TR10",
        scenario="tr10_old_incarnation",
        swaps=(Swap(alter_partition, "_check_members", _any_incarnation),),
    ),
)
