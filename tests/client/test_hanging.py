"""Which open transactions are said to hang: those that nobody will end, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.client import DescribedTransaction, PartitionProducer, TopicPartition
from strandline.client.administer.transaction_admin import hanging_of, is_suspect

OPEN = PartitionProducer(
    topic="t",
    partition=0,
    producer_id=7,
    producer_epoch=3,
    last_sequence=9,
    last_timestamp_ms=1_000_000,
    coordinator_epoch=2,
    open_since_offset=100,
)
KNOWN = DescribedTransaction(
    transactional_id="pay",
    producer_id=7,
    producer_epoch=3,
    state="Ongoing",
    timeout_ms=60_000,
    start_ms=900_000,
    partitions=(TopicPartition("t", 0),),
    coordinator=1,
)


@pytest.mark.parametrize(
    ("producer", "is_one"),
    [
        (OPEN, True),
        (replace(OPEN, open_since_offset=None), False),
        (replace(OPEN, last_timestamp_ms=1_000_001), False),
        (replace(OPEN, last_timestamp_ms=9_000_000), False),
    ],
)
def test_a_suspect_is_open_and_silent_for_longer(producer: PartitionProducer, is_one: bool) -> None:
    """The limit itself is not longer, and a time in the future is not old."""
    assert is_suspect(producer, now_ms=1_060_001, older_than_ms=60_000) is is_one


@pytest.mark.parametrize(
    ("described", "why"),
    [
        (None, "no coordinator knows the producer id"),
        (replace(KNOWN, state="CompleteAbort"), "its coordinator has no transaction open: CompleteAbort"),
        (replace(KNOWN, state="Empty"), "its coordinator has no transaction open: Empty"),
        (
            replace(KNOWN, partitions=(TopicPartition("t", 1),)),
            "the transaction that its coordinator has open (Ongoing) does not include the partition",
        ),
        (replace(KNOWN, producer_epoch=4), "its coordinator has another transaction open, of epoch 4"),
        (
            replace(KNOWN, producer_epoch=5, state="PrepareCommit"),
            "its coordinator has another transaction open, of epoch 4",
        ),
    ],
)
def test_what_no_coordinator_will_end_hangs(described: DescribedTransaction | None, why: str) -> None:
    """With what the coordinator says, and whose it is as far as one knows."""
    (found,) = hanging_of([OPEN], {} if described is None else {7: described})

    assert (found.producer, found.why) == (OPEN, why)
    assert found.transactional_id == (None if described is None else "pay")


@pytest.mark.parametrize(
    "described",
    [
        KNOWN,
        replace(KNOWN, state="PrepareCommit", producer_epoch=4),
        replace(KNOWN, state="PrepareAbort", producer_epoch=4),
    ],
)
def test_what_a_coordinator_will_end_does_not_hang(described: DescribedTransaction) -> None:
    """While it is ended its markers, and so its coordinator, have the epoch after its own."""
    assert hanging_of([OPEN], {7: described}) == []
