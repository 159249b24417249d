"""What must hold in every world of transactions, seen from outside of the rules that lead there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from strandline_sim.searches.transactions import partition as leading
from strandline_sim.searches.transactions.partition import PartitionLog
from strandline_sim.searches.transactions.world import TransactionBounds, TransactionWorld


class TransactionBroken(AssertionError):
    """A world that must not be."""


def check(world: TransactionWorld) -> None:
    """I36 to I38 in one world.

    Raises:
        Broken: under the number of the invariant.
    """
    coordinator = world.coordinator
    for p, partition in enumerate(world.partitions):
        ends = coordinator.row.identity.producer_epoch - (coordinator.is_ending and p not in coordinator.done)
        _check(partition, world.decided, ends)


@cache
def _check(partition: PartitionLog, decided: tuple[bool, ...], ended_below: int) -> None:
    _markers(partition, decided)
    _stable(partition)
    _given(partition, decided)
    _ended(partition, ended_below)


def check_step(before: TransactionWorld, after: TransactionWorld) -> None:
    """I36 between two worlds: the LSO goes back only with the leader.

    Raises:
        Broken: I36.
    """
    for p, (was, is_now) in enumerate(zip(before.partitions, after.partitions, strict=True)):
        if was is is_now or is_now == leading.left_by_leader(was):
            continue
        if leading.last_stable_offset(is_now) < leading.last_stable_offset(was):
            raise TransactionBroken(f"I36: the LSO of p{p} went back from {leading.last_stable_offset(was)}")


def check_end(world: TransactionWorld, bounds: TransactionBounds) -> None:
    """L13 where nothing can happen any more: every transaction is ended everywhere.

    Raises:
        Broken: L13.
    """
    if world.client.transaction <= bounds.transactions:
        raise TransactionBroken(f"L13: the producer never ends its transaction: {world.client}")
    if world.coordinator.is_ending:
        raise TransactionBroken(f"L13: {world.coordinator.missing} never answer their markers")
    for p, partition in enumerate(world.partitions):
        if leading.last_stable_offset(partition) != len(partition.log):
            raise TransactionBroken(f"L13: the LSO of p{p} stays at {leading.last_stable_offset(partition)}")


def _own_marker(partition: PartitionLog, offset: int) -> int | None:
    """Where the transaction of a record is ended; the first marker behind a record ends it."""
    epoch = partition.log[offset].epoch
    for at in range(offset + 1, len(partition.log)):
        entry = partition.log[at]
        if entry.commits is not None:
            if entry.epoch != epoch + 1:
                raise TransactionBroken(f"I38: the marker {entry} ends the transaction of epoch {epoch}")
            return at
    return None


def _markers(partition: PartitionLog, decided: tuple[bool, ...]) -> None:
    """I38: a marker says what was decided, and ends its own transaction only."""
    for offset, entry in enumerate(partition.log):
        if entry.commits is None:
            _own_marker(partition, offset)
        elif decided[entry.epoch - 1 : entry.epoch] != (entry.commits,):
            raise TransactionBroken(f"I38: a partition has {entry}, decided is {decided}")


def _stable(partition: PartitionLog) -> None:
    """I36: the LSO is not above the HW, nor above a record whose marker is not committed."""
    lso = leading.last_stable_offset(partition)
    if lso > partition.hw:
        raise TransactionBroken(f"I36: the LSO is {lso}, the HW {partition.hw}")
    for offset in range(lso):
        if partition.log[offset].commits is None and not _is_ended(partition, offset):
            raise TransactionBroken(f"I36: the LSO is {lso}, and the record at {offset} may be lost or aborted yet")


def _given(partition: PartitionLog, decided: tuple[bool, ...]) -> None:
    """I37: what a reader gets from any offset on is what was committed, whole and in order."""
    lso = leading.last_stable_offset(partition)
    for start in range(lso):
        wanted = tuple(
            e for e in partition.log[start:lso] if e.commits is None and decided[e.epoch : e.epoch + 1] == (True,)
        )
        found = leading.given(partition, start)
        if found != wanted:
            raise TransactionBroken(f"I37: a reader is given {found} from {start} on, committed is {wanted}")


def _ended(partition: PartitionLog, ended_below: int) -> None:
    """I38: where the coordinator counts a transaction as ended, it is ended, and nothing can undo that."""
    for offset, entry in enumerate(partition.log):
        if entry.commits is None and entry.epoch < ended_below and not _is_ended(partition, offset):
            raise TransactionBroken(f"I38: epoch {entry.epoch} counts as ended, its record at {offset} is not")


def _is_ended(partition: PartitionLog, offset: int) -> bool:
    """Whether the marker of a record's transaction is committed."""
    marker = _own_marker(partition, offset)
    return marker is not None and marker < partition.hw


CACHED: tuple[Callable[[], None], ...] = (_check.cache_clear,)
"""Forget what was looked at; a test that changes a rule calls it."""
