"""R8: a proposal made for a state that no longer holds."""

from __future__ import annotations

from mutants.mutant import Mutant, Real, Swap

from strandline.core.control import alter_partition
from strandline.core.errors import Refusal
from strandline.core.messages import PartitionImage, ProposedIsr
from strandline.core.types import NodeId


def _sender_alone(real: Real, partition: PartitionImage, sender: NodeId, proposal: ProposedIsr) -> Refusal | None:
    current = proposal._replace(leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch)
    found: Refusal | None = real(partition, sender, current)
    return found


MUTANTS = (
    Mutant(
        number="R8",
        name="stale AlterPartition accepted",
        broken="The controller applies a proposal of the leader without comparing leader epoch and partition epoch.",
        source="KIP-497; I14",
        scenario="r08_proposal_of_another_state",
        swaps=(Swap(alter_partition, "_check_epochs", _sender_alone),),
    ),
)
