"""Decides who is an eligible leader replica: out of the ISR, yet known to hold every committed record (KIP-966).

Invariant: a member of the ELR left the ISR (or was in it) while the HW could not move any more without it,
that is below min ISR; a node that may have lost records is never a member (I15), and with a full ISR there
are none (M57).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId


def elr_after(
    partition: PartitionImage, new_isr: Collection[NodeId], *, unclean: Collection[NodeId] = ()
) -> tuple[NodeId, ...]:
    """The ELR that goes with ``new_isr``, in order of assignment.

    Below min ISR everybody who was in ISR or ELR and is not in the new ISR; ``unclean`` members excepted.
    """
    if len(new_isr) >= partition.min_isr:
        return ()
    complete = {*partition.isr, *partition.elr} - set(new_isr) - set(unclean)
    return in_assignment_order(partition, complete)


def elr_with_min_isr(partition: PartitionImage, min_isr: int) -> tuple[NodeId, ...]:
    """The ELR after a change of min ISR: cleared when the ISR suffices, else as it was (M57, TR19).

    A raise adds no replica: one that left the ISR before the raise may lack what was committed since.
    """
    return () if len(partition.isr) >= min_isr else partition.elr


def in_assignment_order(partition: PartitionImage, members: Iterable[NodeId]) -> tuple[NodeId, ...]:
    """Members as a tuple in the order of assignment, so that equal sets are equal values."""
    wanted = set(members)
    return tuple(node_id for node_id in partition.replicas if node_id in wanted)
