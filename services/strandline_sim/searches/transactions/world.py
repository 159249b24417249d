"""A producer, its coordinator and two partitions as one value, with what is under way between them.

Invariant: a world is hashable and complete; two worlds that are equal have the same future.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from strandline_sim.searches.transactions.coordinator import Coordinator, started
from strandline_sim.searches.transactions.partition import TPS, Entry, PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBounds:
    """How far a search goes."""

    transactions: int = 2
    """How many the producer begins."""
    mishaps: int = 2
    """How much goes wrong: a copy stays behind, a deadline comes, a leader dies, the coordinator starts again."""


class Sending(StrEnum):
    """How far the producer has come with its batch for one partition."""

    NOT_SENT = "not sent"
    OUT = "out"
    """On its way, perhaps again."""
    WAITS = "waits"
    """It has arrived, and there is no answer."""
    DONE = "done"
    REFUSED = "refused"
    """For good: the transaction can only be aborted."""


class ProducerClient(NamedTuple):
    """What the producer knows."""

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
    """Everything."""

    coordinator: Coordinator
    partitions: tuple[PartitionLog, PartitionLog]
    client: ProducerClient
    late: frozenset[Late] = frozenset()
    decided: tuple[bool, ...] = ()
    """The outcome of each transaction that is decided, by epoch: whether it is committed."""
    mishaps: int = 0


def start() -> TransactionWorld:
    """Nothing was sent."""
    return TransactionWorld(started(), (PartitionLog(), PartitionLog()), ProducerClient())


# ---- symmetry
# The partitions are alike: a world and the one in which they have exchanged their numbers have the same future.


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
