"""Which settings a producer accepts, and what each is by default.

Invariant: a setting that would break order or exactly-once producing is refused when the producer is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.types import Acks
from strandline.records.batch import MAX_BATCH_BYTES
from strandline.records.compression import Compression

MAX_IN_FLIGHT = 5
"""As many as leaders remember per producer and partition (M61)."""
MAX_TRANSACTIONAL_ID = 255
"""Characters of a transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer batches, sends and gives up."""

    acks: Acks = Acks.ALL
    idempotent: bool = True
    linger_ms: float = 5.0
    batch_bytes: int = 256 << 10
    max_in_flight: int = MAX_IN_FLIGHT
    compression: Compression = Compression.NONE
    request_timeout_ms: int = 30_000
    """How long a leader may wait for replicas before it answers REQUEST_TIMED_OUT."""
    delivery_timeout_ms: int = 120_000
    """How long a record may take from `send` to its end, retries included."""
    max_block_ms: int = 60_000
    """How long `send` may wait for room in the buffer, or for the topic to be known."""
    buffer_bytes: int = 32 << 20
    connect_timeout_ms: int = 2_000
    transactional_id: str | None = None
    """Whose transactions all records are part of; None: there are none."""
    transaction_timeout_ms: int = 60_000
    """After which the coordinator aborts a transaction that is still open."""

    def __post_init__(self) -> None:
        """Raises:
        ValueError: with the setting, the rule and the value.
        """
        if not 1024 <= self.batch_bytes <= MAX_BATCH_BYTES:
            raise ValueError(f"batch_bytes {self.batch_bytes} must be 1024 to {MAX_BATCH_BYTES}")
        if self.max_in_flight < 1 or (self.idempotent and self.max_in_flight > MAX_IN_FLIGHT):
            raise ValueError(f"max_in_flight {self.max_in_flight} must be 1 to {MAX_IN_FLIGHT} when idempotent")
        if self.buffer_bytes < self.batch_bytes:
            raise ValueError(f"buffer_bytes {self.buffer_bytes} must be at least batch_bytes {self.batch_bytes}")
        if self.linger_ms < 0 or min(self.request_timeout_ms, self.delivery_timeout_ms, self.max_block_ms) <= 0:
            raise ValueError("linger_ms must not be negative, and every timeout must be positive")
        if self.transactional_id is not None:
            self._check_transactional(self.transactional_id)

    def _check_transactional(self, transactional_id: str) -> None:
        if not 1 <= len(transactional_id) <= MAX_TRANSACTIONAL_ID:
            raise ValueError(f"transactional_id must have 1 to {MAX_TRANSACTIONAL_ID} characters")
        if self.transaction_timeout_ms <= 0:
            raise ValueError(f"transaction_timeout_ms {self.transaction_timeout_ms} must be positive")
        if self.acks is not Acks.ALL or not self.idempotent:
            raise ValueError("a producer with a transactional_id needs acks='all' and idempotent=True")


def parse_acks(acks: Acks | int | str) -> Acks:
    """0, 1, -1 or "all".

    Raises:
        ValueError: it is none of these.
    """
    if acks == "all":
        return Acks.ALL
    try:
        return Acks(int(acks))
    except ValueError:
        raise ValueError(f"acks {acks!r} must be 0, 1, -1 or 'all'") from None


def parse_compression(compression: Compression | str | None) -> Compression:
    """None, "none", "gzip", "snappy", "lz4" or "zstd".

    Raises:
        ValueError: it is none of these.
    """
    if compression is None:
        return Compression.NONE
    if isinstance(compression, Compression):
        return compression
    try:
        return Compression[compression.upper()]
    except KeyError:
        raise ValueError(f"compression {compression!r} must be none, gzip, snappy, lz4 or zstd") from None
