"""Decides who leads a partition: a proven member of ISR or ELR, else by comparing logs; unclean only when allowed.

Invariant: without permission no replica outside ISR and ELR leads (I7, I8), nor one that too few logs support
(M65); an observer never leads (M60); better no leader than a wrong one, and a partition without one shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from strandline.core.log_comparison import most_complete
from strandline.core.messages import PartitionImage, ReplicaLogInfo
from strandline.core.types import NodeId

IsActive = Callable[[NodeId], bool]
"""Whether a node is registered to lead, unfenced, and not shutting down."""
HasRoom = Callable[[NodeId], bool]
"""Whether a node has space for appends: one that refuses them is elected last."""


class ElectionType(StrEnum):
    """What made the elected one eligible; the names leave the house in LEADER_CHANGE."""

    ISR = "isr"
    ELR = "elr"
    REPORTED = "reported"
    """By comparing the logs of members that no leader has counted since their process started (M65)."""
    UNCLEAN = "unclean"
    PREFERRED = "preferred"


class Elected(NamedTuple):
    """The outcome of an election."""

    leader: NodeId
    kind: ElectionType


Reports = Mapping[NodeId, ReplicaLogInfo]
"""What active replicas reported of their logs in the partition's present leader epoch."""


def elect(partition: PartitionImage, is_active: IsActive, has_room: HasRoom) -> Elected | None:
    """The proven leader that the partition's committed state allows, or None (M48, M49, KIP-966).

    The ELR is asked when no member of the ISR lives: its members are complete up to the HW as well.
    """
    for members, kind in ((partition.isr, ElectionType.ISR), (partition.elr, ElectionType.ELR)):
        able = [n for n in partition.replicas if n in members and n not in partition.unproven and is_active(n)]
        if able:
            return Elected(next(filter(has_room, able), able[0]), kind)
    return None


def reports_needed(partition: PartitionImage) -> int:
    """How many members must report before one of them may lead unproven (M65).

    Every member of ISR and ELR held all that is committed, and at most min ISR - 1 replicas lose durable records
    (A5), so among min ISR reports one log is whole. Fewer members mean that the missing ones registered as unclean:
    their losses are among those min ISR - 1 already.
    """
    return min(partition.min_isr, len({*partition.isr, *partition.elr}))


def elect_reported(partition: PartitionImage, reports: Reports) -> Elected | None:
    """The member with the most complete log once enough of them have reported; None while too few have (M65)."""
    members = _reporting_members(partition, reports)
    if not members or len(members) < reports_needed(partition):
        return None
    return Elected(_best(members, reports), ElectionType.REPORTED)


def elect_unclean(partition: PartitionImage, reports: Reports, is_active: IsActive) -> Elected | None:
    """The active replica that probably lost least: a member before others, the more complete log before a shorter."""
    candidates = _reporting_members(partition, reports) or [n for n in partition.replicas if n in reports]
    if candidates:
        return Elected(_best(candidates, reports), ElectionType.UNCLEAN)
    first = next((node_id for node_id in partition.replicas if is_active(node_id)), None)
    return None if first is None else Elected(first, ElectionType.UNCLEAN)


def have_all_reported(partition: PartitionImage, reports: Reports, is_active: IsActive) -> bool:
    """Whether no active replica is left whose report could still change an unclean choice."""
    members = {*partition.isr, *partition.elr}
    wanted = [n for n in partition.replicas if n in members and is_active(n)]
    wanted = wanted or [n for n in partition.replicas if is_active(n)]
    return bool(wanted) and all(node_id in reports for node_id in wanted)


def _reporting_members(partition: PartitionImage, reports: Reports) -> list[NodeId]:
    members = {*partition.isr, *partition.elr}
    return [node_id for node_id in partition.replicas if node_id in members and node_id in reports]


def _best(candidates: list[NodeId], reports: Reports) -> NodeId:
    return candidates[most_complete([reports[node_id] for node_id in candidates])]


def elect_preferred(partition: PartitionImage, is_active: IsActive, has_room: HasRoom) -> Elected | None:
    """The first assigned replica, if it is in the ISR, proven and active, and has room; None otherwise (M49b)."""
    preferred = partition.replicas[0]
    is_able = is_active(preferred) and has_room(preferred)
    if preferred in partition.isr and preferred not in partition.unproven and is_able:
        return Elected(preferred, ElectionType.PREFERRED)
    return None


def eligible_set(partition: PartitionImage, is_active: IsActive) -> tuple[NodeId, ...]:
    """Everybody who could have been elected clean without asking for logs, in order of assignment."""
    complete = {*partition.isr, *partition.elr} - set(partition.unproven)
    return tuple(node_id for node_id in partition.replicas if node_id in complete and is_active(node_id))
