"""Decides who leads a partition: a proven member of ISR or ELR, else by comparing logs; unclean only when allowed.

Invariant: without permission no replica outside ISR and ELR leads (I7, I8), nor one that too few logs support
(M65); an observer never leads (M60); better no leader than a wrong one, and a partition without one shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from strandline.core.log.truncation import EpochCache
from strandline.core.messages import PartitionImage, ReplicaLogInfo
from strandline.core.types import NodeId, Offset

# ---- elr
# Decides who is an eligible leader replica: out of the ISR, yet known to hold every committed record (KIP-966).
#
# Invariant: a member of the ELR left the ISR (or was in it) while the HW could not move any more without it,
# that is below min ISR; a node that may have lost records is never a member (I15), and with a full ISR there
# are none (M57).


def elr_after(
    partition: PartitionImage, new_isr: Collection[NodeId], *, unclean: Collection[NodeId] = ()
) -> tuple[NodeId, ...]:
    """The ELR that goes with ``new_isr``, in order of assignment.

    Below min ISR all that were in ISR or ELR and are not in the new ISR; ``unclean`` members excepted.
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


# ---- log_comparison
# Decides which of several reported logs is certain to hold everything committed, if one of them does (M65).
#
# Invariant: with at least one log among them that lost nothing, the chosen log holds every committed record. Losses
# may be a tail of any length or the return of the whole directory to an earlier state.
#
# Why comparing the last epoch and the LEO, as Raft does, is not enough: the high watermark may commit records of
# older epochs, so a log that ends in a newer epoch may lack them. Two facts decide instead. Equal (offset, epoch) means
# equal logs up to there (I2), so a prefix is recognized and the longer log wins. If two logs forked, the *reconciled
# epoch* decides: a log that holds a record committed in leader epoch c was counted in c, so it was reconciled in c or
# later; a log reconciled in c or later held, at that moment, all that was committed before, and so cannot differ from
# it there. A fork below a committed record therefore leaves the log that lacks the record with the lower epoch.


def extends(longer: ReplicaLogInfo, shorter: ReplicaLogInfo) -> bool:
    """Whether ``longer`` holds all of ``shorter`` and more."""
    if shorter.leo >= longer.leo:
        return False
    if shorter.leo <= longer.log_start_offset:
        # A log start moves only below the high watermark, so all that ``shorter`` could add was committed and deleted.
        return True
    last = Offset(shorter.leo - 1)
    written_by = EpochCache(shorter.epochs).epoch_of(last)
    # Without an epoch nothing is left of ``shorter`` but its position.
    return written_by is None or EpochCache(longer.epochs).epoch_of(last) == written_by


def most_complete(logs: Sequence[ReplicaLogInfo]) -> int:
    """The index of the log to elect among at least one.

    The highest reconciled epoch, of equal ones the longest, is the candidate; while others extend the candidate,
    the choice is made again among these. A log that holds everything committed is never left behind on this way: it
    either extends the candidate, or the candidate holds everything committed as well.
    """
    left = list(range(len(logs)))
    while True:
        candidate = max(left, key=lambda index: _rank(logs[index]))
        left = [index for index in left if extends(logs[index], logs[candidate])]
        if not left:
            return candidate


def _rank(log: ReplicaLogInfo) -> tuple[bool, int, int, int, int]:
    # Only a log of an older release does not know where it was reconciled; then its last epoch has to do.
    known = log.reconciled_epoch is not None
    last_epoch = log.epochs[-1].epoch if log.epochs else 0
    # Of logs that are equal otherwise, one that went back in time may hold records again that were deleted (I27).
    return known, log.reconciled_epoch or 0, last_epoch, log.leo, log.log_start_offset


IsActive = Callable[[NodeId], bool]
"""Whether a node is registered to lead, unfenced, and not shutting down."""
HasRoom = Callable[[NodeId], bool]
"""Whether a node has space for appends; one that has none is elected last."""


class ElectionType(StrEnum):
    """Why the elected replica was eligible; the names appear in LEADER_CHANGE events."""

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
"""What active replicas reported of their logs in the partition's current leader epoch."""


def elect(partition: PartitionImage, is_active: IsActive, has_room: HasRoom) -> Elected | None:
    """The proven leader that the partition's committed state allows, or None (M48, M49, KIP-966).

    The ELR is asked when no member of the ISR lives: its members are complete up to the HW as well.
    """
    for members, kind in ((partition.isr, ElectionType.ISR), (partition.elr, ElectionType.ELR)):
        able = [n for n in partition.replicas if n in members and n not in partition.unproven and is_active(n)]
        if able:
            # A full disk is better than no leader: it refuses appends, but consumers can read on.
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
    """The active replica that probably lost least: a member before others, the more complete log before a shorter.

    A replica that a reassignment adds may hold nothing yet, so it is no candidate unless it is a member (C76).
    """
    settled = partition.settled_replicas
    candidates = _reporting_members(partition, reports) or [n for n in settled if n in reports]
    if candidates:
        return Elected(_best(candidates, reports), ElectionType.UNCLEAN)
    first = next((node_id for node_id in settled if is_active(node_id)), None)
    return None if first is None else Elected(first, ElectionType.UNCLEAN)


def have_all_reported(partition: PartitionImage, reports: Reports, is_active: IsActive) -> bool:
    """Whether no active replica is left whose report could still change an unclean choice."""
    members = {*partition.isr, *partition.elr}
    wanted = [n for n in partition.replicas if n in members and is_active(n)]
    wanted = wanted or [n for n in partition.settled_replicas if is_active(n)]
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
    """All replicas that could be elected clean without reports of logs, in order of assignment."""
    complete = {*partition.isr, *partition.elr} - set(partition.unproven)
    return tuple(node_id for node_id in partition.replicas if node_id in complete and is_active(node_id))
