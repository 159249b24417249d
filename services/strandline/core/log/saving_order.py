"""Moves the saves of a step to its front, so that all of them can become durable with one sync.

Saves of many partitions lie between answers and requests of others, and each of those would need its own sync. A save
says nothing of another partition, so it may be moved in front of them.

Invariant: nothing is moved in front of a change of its own log that it follows from: the HW of a log that begins again
is above everything that the log held before.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.log.effects import (
    AdvanceLogStart,
    DeleteLog,
    Effect,
    OpenLog,
    RestartLog,
    SaveEpochs,
    SaveHighWatermarks,
    SaveMetadata,
    SaveReconciledEpochs,
    SetLogAside,
    Truncate,
)
from strandline.core.types import TopicPartition

_SAVES = frozenset({SaveEpochs, SaveHighWatermarks, SaveMetadata, SaveReconciledEpochs})
_RESHAPES = (AdvanceLogStart, DeleteLog, OpenLog, RestartLog, SetLogAside, Truncate)


def saves_first(effects: list[Effect]) -> list[Effect]:
    """The effects of a step, saves in front; the order is kept among saves and among the others."""
    # A single save costs one sync wherever it is.
    if len(effects) < 2 or sum(type(effect) in _SAVES for effect in effects) < 2:
        return effects
    first: list[Effect] = []
    rest: list[Effect] = []
    reshaped: set[TopicPartition] = set()
    for effect in effects:
        if isinstance(effect, _RESHAPES):
            reshaped.add(effect.tp)
        if type(effect) in _SAVES and reshaped.isdisjoint(_logs_of(effect)):
            first.append(effect)
        else:
            rest.append(effect)
    return first + rest


def _logs_of(effect: Effect) -> tuple[TopicPartition, ...]:
    if isinstance(effect, SaveEpochs):
        return (effect.tp,)
    if isinstance(effect, SaveHighWatermarks):
        return tuple(effect.high_watermarks)
    if isinstance(effect, SaveReconciledEpochs):
        return tuple(effect.epochs)
    return ()


# ---- timings
# Durations and bounds of a data node's core, with their defaults.
#
# Kafka's names and defaults where Kafka has them; ours where we differ.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimings:
    """Durations in ms, sizes in bytes."""

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 1 << 20
    replica_fetch_backoff_ms: int = 50
    """First back-off after a failed fetch; doubles up to `replica_fetch_backoff_max_ms`."""
    replica_fetch_backoff_max_ms: int = 1_000
    catch_up_bytes_per_s: int = 0
    """Most bytes per second that all replicas outside the ISR copy, those of reassignments apart; 0: any number."""
    replica_fetch_damaged_limit: int = 5
    """After so many equal corrupt answers at one offset the source is called damaged."""
    alter_partition_retry_ms: int = 50
    high_watermark_checkpoint_interval_ms: int = 5_000
    retention_check_interval_ms: int = 300_000
    pause_grace_after_ms: int = 2_000
    """A tick gap longer than this is a pause of our own: followers are not blamed for it (M59)."""
    purgatory_max_entries: int = 20_000
    purgatory_max_bytes: int = 256 << 20
    """Bytes of acks=all batches that wait for their commit; beyond it new ones are refused."""
    transaction_max_timeout_ms: int = 900_000
    """The longest that a transaction may be open; one that is a minute older is reported as hanging."""
    sample_min_ms: int = 0
    """Least time between two samples of a partition that changes; 0: nothing but transitions is reported."""
    sample_max_ms: int = 10_000
    """Time after which a partition is sampled even if nothing changed; every sample declares it."""

    def __post_init__(self) -> None:
        if self.replica_fetch_wait_max_ms >= self.replica_lag_time_max_ms:
            raise ValueError(
                "replica_fetch_wait_max_ms must be below replica_lag_time_max_ms: "
                "a follower parked for longer than the lag limit would leave the ISR (M20)"
            )
