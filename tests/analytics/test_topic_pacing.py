"""When a micro-batch begins that has a least number of records."""

from __future__ import annotations

from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.pacing import Pacing


def pacing(**options: str) -> Pacing:
    """Of a query with these options."""
    return Pacing(read_options({"bootstrap": "127.0.0.1:1", "topic": "t"} | options, streaming=True))


def test_records_wait_until_there_are_enough() -> None:
    """After the first micro-batch, fewer than the least number of records wait."""
    query = pacing(minOffsetsPerTrigger="10")

    assert not query.waits(1, 0.0)
    assert query.waits(9, 1.0)
    assert not query.waits(10, 2.0)


def test_records_wait_no_longer_than_the_delay() -> None:
    """The delay counts from the last micro-batch that began."""
    query = pacing(minOffsetsPerTrigger="10", maxTriggerDelay="2s")
    query.waits(1, 0.0)

    assert query.waits(1, 1_999.0)
    assert not query.waits(1, 2_000.0)
    assert query.waits(1, 3_999.0)


def test_without_a_least_number_nothing_waits() -> None:
    """A micro-batch begins for one record."""
    query = pacing()
    query.waits(1, 0.0)

    assert not query.waits(1, 0.0)
