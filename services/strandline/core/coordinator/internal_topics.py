"""The topics that hold coordinators' state: their names, and which partition of one a key belongs to (G1, G2).

Invariant: the partition of a key never changes, so the number of partitions of such a topic never does.
"""

from __future__ import annotations

from functools import lru_cache

from strandline.core.errors import ErrorCode, Outcome, Refusal

GROUP_STATE = "__group_state"
"""Consumer groups. Not Kafka's name, because the format is not Kafka's."""

TRANSACTION_STATE = "__transaction_state"
"""Transactional ids. Kafka's name, but not its format."""

INTERNAL_TOPICS = frozenset({GROUP_STATE, TRANSACTION_STATE})
"""Topics that only coordinators write to."""


def is_internal(name: str) -> bool:
    """Whether this topic holds the state of coordinators."""
    return name in INTERNAL_TOPICS


def not_for_clients(name: str, outcome: Outcome | None = None) -> Refusal:
    """The refusal of a client's change to an internal topic: only its coordinators may change it."""
    message = f"topic '{name}' is internal: only its coordinators write to it and delete from it; use their calls"
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message, outcome)


# Each heartbeat of a group needs the hash of the group's id.
@lru_cache(maxsize=1_024)
def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 units, as a signed number of 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of(key: str, partitions: int) -> int:
    """The partition whose leader coordinates ``key``, as Kafka's `Utils.abs(hashCode) % partitions`."""
    # The smallest number has no positive counterpart of 32 bits; Kafka counts it as 0.
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
