"""Which open transactions of partitions nobody will end: their coordinators do not know them, or know them ended (X19).

By X9 to X11 there are none, but for an unclean election or a restored state of coordinators (X20).

Invariant: a transaction whose coordinator was not heard is never called hanging, for to abort one that lives tears it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.client.described_transactions import UNDER_WAY, DescribedTransaction, PartitionProducer
from strandline.client.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in one partition that nobody will end."""

    producer: PartitionProducer
    transactional_id: str | None
    """Whose producer it is as coordinators know it; None: none of them knows the producer id."""
    why: str
    """What its coordinator says, as a sentence."""


def is_suspect(producer: PartitionProducer, *, now_ms: int, older_than_ms: int) -> bool:
    """Whether a producer has a transaction open in a partition, and was not heard there for so long.

    The time of its newest batch is its sender's; a clock that is ahead makes it look younger, so that it is found
    later.
    """
    return producer.open_since_offset is not None and now_ms - producer.last_timestamp_ms > older_than_ms


def hanging_of(
    suspects: Iterable[PartitionProducer], known: Mapping[int, DescribedTransaction]
) -> list[HangingTransaction]:
    """Those of the suspects that hang; ``known``: what coordinators say, by producer id, of every id that they have."""
    found = []
    for producer in suspects:
        described = known.get(producer.producer_id)
        why = _why(producer, described)
        if why:
            found.append(HangingTransaction(producer, described.transactional_id if described else None, why))
    return found


def _why(producer: PartitionProducer, described: DescribedTransaction | None) -> str:
    """Why nobody will end it; empty if somebody will."""
    if described is None:
        return "no coordinator knows the producer id"
    place = TopicPartition(producer.topic, producer.partition)
    if described.state not in UNDER_WAY:
        return f"its coordinator has no transaction open: {described.state}"
    if place not in described.partitions:
        return f"the transaction that its coordinator has open ({described.state}) does not include the partition"
    # While it is being ended its coordinator has the epoch of the markers, which is one higher.
    epoch = described.producer_epoch - (described.state != "Ongoing")
    if epoch != producer.producer_epoch:
        return f"its coordinator has another transaction open, of epoch {epoch}"
    return ""
