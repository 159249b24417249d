"""Decides who leads a partition: clean by the order of assignment over ISR, then ELR; unclean only when allowed.

Invariant: without permission nobody leads who is in neither ISR nor ELR (I7, I8); an observer never leads
(M60); better no leader than a wrong one, and a partition without one says so.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from strandline.core.messages import PartitionImage
from strandline.core.types import NodeId

IsActive = Callable[[NodeId], bool]
"""Whether a node is registered to lead, unfenced, and not shutting down."""


class ElectionType(StrEnum):
    """What made the elected one eligible; the names leave the house in LEADER_CHANGE."""

    ISR = "isr"
    ELR = "elr"
    UNCLEAN = "unclean"
    PREFERRED = "preferred"


class Elected(NamedTuple):
    """The outcome of an election."""

    leader: NodeId
    kind: ElectionType


def elect(partition: PartitionImage, is_active: IsActive, *, unclean_allowed: bool = False) -> Elected | None:
    """The leader that the partition's committed state allows, or None (M48, M49, KIP-966).

    The ELR is asked when no member of the ISR lives: its members are complete up to the HW as well.
    """
    active = [node_id for node_id in partition.replicas if is_active(node_id)]
    for members, kind in ((partition.isr, ElectionType.ISR), (partition.elr, ElectionType.ELR)):
        for node_id in active:
            if node_id in members:
                return Elected(node_id, kind)
    if unclean_allowed and active:
        return Elected(active[0], ElectionType.UNCLEAN)
    return None


def elect_preferred(partition: PartitionImage, is_active: IsActive) -> Elected | None:
    """The first assigned replica, if it is in the ISR and active; None otherwise (M49b)."""
    preferred = partition.replicas[0]
    if preferred in partition.isr and is_active(preferred):
        return Elected(preferred, ElectionType.PREFERRED)
    return None


def eligible_set(partition: PartitionImage, is_active: IsActive) -> tuple[NodeId, ...]:
    """Everybody who could have been elected clean, in order of assignment."""
    complete = {*partition.isr, *partition.elr}
    return tuple(node_id for node_id in partition.replicas if node_id in complete and is_active(node_id))
