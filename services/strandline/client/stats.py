"""What a producer and a consumer can say of themselves: counts since they were made, and what they hold now.

Invariant: counting costs something per batch and per answer, never per record; a snapshot does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from strandline.client.logger import log
from strandline.client.topic_partition import TopicPartition

STATS_INTERVAL_MS = 10_000

_Stats = TypeVar("_Stats")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStats:
    """One producer. The difference of two snapshots is what happened in between."""

    client_id: str
    records_acknowledged: int
    records_failed: int
    """Records whose delivery ended in `SendFailed`."""
    batches_acknowledged: int
    batches_failed: int
    bytes_acknowledged: int
    """Keys, values and headers of what was acknowledged, before compression, with 24 bytes per record."""
    retries: int
    """Attempts beyond the first one of each batch that has ended."""
    delivery_ms_sum: float
    """How long all acknowledged batches took, from their first record to the answer: divide by their number."""
    batches_waiting: int
    """Closed batches whose end is not known, on their way or queued."""
    buffered_bytes: int
    """What is in use of ``buffer_bytes``."""
    metadata_age_ms: int | None
    """How old the metadata in use may be; None before `Producer.start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    """One partition of a consumer; what is None is not known yet."""

    position: int | None
    high_watermark: int | None
    log_start_offset: int | None
    lag: int | None
    """Records between the position and the HW that the last answer brought."""
    buffered_bytes: int
    """Fetched and not unpacked."""
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """One consumer. The difference of two snapshots is what happened in between."""

    client_id: str
    records_read: int
    """Records unpacked to be given."""
    bytes_read: int
    """Bytes of batches fetched, as they came."""
    fetch_answers: int
    """Answers for one partition, empty and rejected ones too."""
    fetches_rejected: int
    """Answers that were a refusal."""
    buffered_bytes: int
    metadata_age_ms: int | None
    """How old the metadata in use may be; None before `Consumer.start`."""
    partitions: Mapping[TopicPartition, PartitionStats]


def stats_reporter(snapshot: Callable[[], _Stats], on_stats: Callable[[_Stats], None]) -> Callable[[], None]:
    """Hands a snapshot to a user's function; an exception of that is logged."""

    def report() -> None:
        try:
            on_stats(snapshot())
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            log.exception("on_stats failed")

    return report
