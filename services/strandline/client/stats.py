"""Statistics of a producer and a consumer: counts since they were created, and what they hold now.

Invariant: counting has a cost per batch and per answer, never per record; a snapshot does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from strandline.client.log import log
from strandline.client.records import TopicPartition

STATS_INTERVAL_MS = 10_000

_Stats = TypeVar("_Stats")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStats:
    """Counts of one producer. The difference of two snapshots is what happened in between."""

    client_id: str
    records_acknowledged: int
    records_failed: int
    """Records whose delivery ended in `SendFailed`."""
    batches_acknowledged: int
    batches_failed: int
    bytes_acknowledged: int
    """Size of the acknowledged batches before compression."""
    retries: int
    """Attempts beyond the first one of each batch that has ended."""
    delivery_ms_sum: float
    """Total time of all acknowledged batches, from their first record to the answer: divide by their number."""
    batches_waiting: int
    """Closed batches that have not ended, sent or queued."""
    buffered_bytes: int
    """The used part of ``buffer_bytes``."""
    metadata_age_ms: int | None
    """The greatest possible age of the metadata in use; None before `Producer.start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    """One partition of a consumer; None means not known yet."""

    position: int | None
    high_watermark: int | None
    log_start_offset: int | None
    lag: int | None
    """Records between the position and the HW in the last answer."""
    buffered_bytes: int
    """Fetched and not unpacked."""
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """Counts of one consumer. The difference of two snapshots is what happened in between."""

    client_id: str
    records_read: int
    """Records that were unpacked to be returned."""
    bytes_read: int
    """Bytes of fetched batches, as received."""
    fetch_answers: int
    """Answers for one partition, including empty and rejected ones."""
    fetches_rejected: int
    """Answers that were a refusal."""
    buffered_bytes: int
    metadata_age_ms: int | None
    """The greatest possible age of the metadata in use; None before `Consumer.start`."""
    partitions: Mapping[TopicPartition, PartitionStats]


def stats_reporter(snapshot: Callable[[], _Stats], on_stats: Callable[[_Stats], None]) -> Callable[[], None]:
    """Passes a snapshot to a user's function, whose exceptions are logged."""

    def report() -> None:
        try:
            on_stats(snapshot())
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_stats failed")

    return report
