"""What a consumer gives to its user.

Invariant: records of one value are consecutive records of one partition, in the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.core.types import LeaderEpoch, Offset
from strandline.records.codec import Headers, Record


class ConsumerRecord(NamedTuple):
    """One record with where it came from."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class FetchedRecords(NamedTuple):
    """Consecutive records of one partition, and its HW as the node knew it then."""

    topic: str
    partition: int
    records: list[Record]
    high_watermark: Offset | None
    epoch_starts: Sequence[tuple[Offset, LeaderEpoch]] = ()
    """(offset, leader epoch) of every batch: records from that offset on were appended in that epoch."""
