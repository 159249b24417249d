"""What a consumer gives to its user.

Invariant: records of one value are consecutive records of one partition, in the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple

from strandline.core.types import LeaderEpoch, Offset
from strandline.records.codec import Headers, Record

if TYPE_CHECKING:
    # Only for type checkers: at run time the parameters need no default.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record with where it came from. Without deserializers ``key`` and ``value`` are bytes."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int | None
    key: K | None
    value: V | None
    headers: Headers


class FetchedRecords(NamedTuple):
    """Consecutive records of one partition, and its HW as the node knew it then."""

    topic: str
    partition: int
    records: list[Record]
    high_watermark: Offset | None
    epoch_starts: Sequence[tuple[Offset, LeaderEpoch]] = ()
    """(offset, leader epoch) of every batch: records from that offset on were appended in that epoch."""
    end: Offset = Offset(0)
    """Where reading goes on: behind the last record, and behind markers and aborted records that follow it."""


# ---- topic_partition
# How a user names a partition: by its topic's name. Inside, partitions go by their topic's id.


class TopicPartition(NamedTuple):
    """One partition of a topic; where one is taken, a plain tuple of name and index does as well."""

    topic: str
    partition: int


# ---- rebalance_listener
# What a consumer that subscribes hears of its partitions: given, taken in good order, or lost.
#
# Invariant: each partition that is assigned is later either revoked or lost. A loss that comes while `on_revoked` runs
# cancels it.


class RebalanceListener:
    """Derive from it, override what is of interest, and give it to `Consumer.subscribe`.

    The methods are called in the consumer's event loop, one at a time, while heartbeats go on. An exception of one
    ends the membership and is raised by the next `Consumer.poll`.
    """

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on. Called before their first record is given; it may seek."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These are given up when this returns; until then they are owned, and commits of them are taken.

        Called when nothing of them is in the user's hand: all that was given of them has been worked on. It has to
        return within ``rebalance_timeout_ms`` of the coordinator's question, or the partitions are lost.
        """

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These belong to another member already, because heartbeats or an answer came too late: commit nothing."""
