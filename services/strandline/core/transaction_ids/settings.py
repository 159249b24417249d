"""The bounds of transactions, with Kafka's defaults where Kafka has the setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """All times in ms."""

    timeout_ms: int = 60_000
    """For producers that choose none: a transaction that is open for longer is aborted."""
    max_timeout_ms: int = 900_000
    """The longest that a producer may choose (`transaction.max.timeout.ms`)."""
    timeout_check_ms: int = 1_000
    """How often open transactions are looked at."""
    marker_retry_ms: int = 200
    """How long after a marker was refused it is sent again."""
    id_expiration_ms: int = 7 * 86_400_000
    """How long a transactional id without a transaction is remembered (`transactional.id.expiration.ms`)."""
    id_expiration_check_ms: int = 600_000
    expiration_step: int = 2_000
    """How many ids one tick looks at, so that a check of many does not hold the event loop."""
