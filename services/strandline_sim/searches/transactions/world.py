"""A producer, its coordinator and two partitions as one value, with the messages between them.

Invariant: a world is hashable and complete; two worlds that are equal have the same future.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from strandline_sim.searches.transactions import partition as leading
from strandline_sim.searches.transactions.coordinator import Coordinator, started
from strandline_sim.searches.transactions.partition import TPS, Entry, PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBounds:
    """The size of a search."""

    transactions: int = 2
    """Transactions that the producer begins."""
    mishaps: int = 2
    """Number of mishaps: a copy stays behind, a deadline passes, a leader dies, the coordinator restarts."""


class Sending(StrEnum):
    """The progress of the producer's batch for one partition."""

    NOT_SENT = "not sent"
    OUT = "out"
    """In transit, perhaps again."""
    WAITS = "waits"
    """Arrived, but not answered."""
    DONE = "done"
    REFUSED = "refused"
    """Refused permanently: the transaction can only be aborted."""


class ProducerClient(NamedTuple):
    """The knowledge of the producer."""

    transaction: int = 1
    """The number of its transaction; above the last one it has finished."""
    epoch: int = 0
    sending: tuple[Sending, Sending] = (Sending.NOT_SENT, Sending.NOT_SENT)
    ends: bool | None = None
    """Whether it wants a commit or an abort; None while it sends."""


@dataclass(frozen=True, slots=True)
class LateBatch:
    """A copy of a batch of the producer."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LateMarker:
    """A copy of a marker of the coordinator."""

    partition: int
    marker: Entry


@dataclass(frozen=True, slots=True)
class LateQuestion:
    """A copy of a leader's question for its partition."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LateEnd:
    """A copy of the producer's request to end a transaction."""

    epoch: int
    commits: bool


Late = LateBatch | LateMarker | LateQuestion | LateEnd


class TransactionWorld(NamedTuple):
    """The whole world."""

    coordinator: Coordinator
    partitions: tuple[PartitionLog, PartitionLog]
    client: ProducerClient
    late: frozenset[Late] = frozenset()
    decided: tuple[bool, ...] = ()
    """The outcome of each transaction that is decided, by epoch: whether it is committed."""
    mishaps: int = 0


def start() -> TransactionWorld:
    """The first world: nothing was sent."""
    return TransactionWorld(started(), (PartitionLog(), PartitionLog()), ProducerClient())


# ---- symmetry
# The partitions are alike: a world and the one with exchanged partition numbers have the same future.


def exchanged(world: TransactionWorld) -> TransactionWorld:
    """The world with its partitions exchanged."""
    first, second = world.partitions
    one, other = world.client.sending
    return world._replace(
        coordinator=_coordinator(world.coordinator),
        partitions=(second, first),
        client=world.client._replace(sending=(other, one)),
        late=_late(world.late),
    )


@cache
def _coordinator(coordinator: Coordinator) -> Coordinator:
    partitions = tuple(sorted(TPS[1 - tp.partition] for tp in coordinator.row.partitions))
    done = frozenset(1 - partition for partition in coordinator.done)
    return coordinator._replace(row=replace(coordinator.row, partitions=partitions), done=done)


@cache
def _late(late: frozenset[Late]) -> frozenset[Late]:
    return frozenset(
        each if isinstance(each, LateEnd) else replace(each, partition=1 - each.partition) for each in late
    )


# ---- rules
# The invariants of every world of transactions, checked independently of the rules that lead there.


class TransactionBroken(AssertionError):
    """A world that must not occur."""


def check(world: TransactionWorld) -> None:
    """Check I36 to I38 in one world.

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
    """Check I36 between two worlds: the LSO goes back only with a change of the leader.

    Raises:
        Broken: I36.
    """
    for p, (was, is_now) in enumerate(zip(before.partitions, after.partitions, strict=True)):
        if was is is_now or is_now == leading.left_by_leader(was):
            continue
        if leading.last_stable_offset(is_now) < leading.last_stable_offset(was):
            raise TransactionBroken(f"I36: the LSO of p{p} went back from {leading.last_stable_offset(was)}")


def check_end(world: TransactionWorld, bounds: TransactionBounds) -> None:
    """Check L13 in a world where nothing more can happen: every transaction is ended everywhere.

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
    """The marker that ends the transaction of a record: the first marker after the record."""
    epoch = partition.log[offset].epoch
    for at in range(offset + 1, len(partition.log)):
        entry = partition.log[at]
        if entry.commits is not None:
            if entry.epoch != epoch + 1:
                raise TransactionBroken(f"I38: the marker {entry} ends the transaction of epoch {epoch}")
            return at
    return None


def _markers(partition: PartitionLog, decided: tuple[bool, ...]) -> None:
    """I38: a marker has the decided outcome, and ends only its own transaction."""
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
    """I37: a reader gets from any offset on exactly what was committed, whole and in order."""
    lso = leading.last_stable_offset(partition)
    for start in range(lso):
        wanted = tuple(
            e for e in partition.log[start:lso] if e.commits is None and decided[e.epoch : e.epoch + 1] == (True,)
        )
        found = leading.given(partition, start)
        if found != wanted:
            raise TransactionBroken(f"I37: a reader is given {found} from {start} on, committed is {wanted}")


def _ended(partition: PartitionLog, ended_below: int) -> None:
    """I38: in a partition where the coordinator counts a transaction as ended, it is ended irrevocably."""
    for offset, entry in enumerate(partition.log):
        if entry.commits is None and entry.epoch < ended_below and not _is_ended(partition, offset):
            raise TransactionBroken(f"I38: epoch {entry.epoch} counts as ended, its record at {offset} is not")


def _is_ended(partition: PartitionLog, offset: int) -> bool:
    """Whether the marker of a record's transaction is committed."""
    marker = _own_marker(partition, offset)
    return marker is not None and marker < partition.hw


CACHED: tuple[Callable[[], None], ...] = (_check.cache_clear,)
"""Clears the cached results; a test that changes a rule calls it."""
