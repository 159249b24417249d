"""Which partition a record goes to: by its key as Kafka's default does, or sticky without one.

Invariant: equal keys go to equal partitions as long as the number of partitions stays, and to the very
partition that Kafka's Java client would choose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache

Partitioner = Callable[[str, bytes | None, int], int]
"""A user's own: topic, serialized key and number of partitions; returns the partition."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """MurmurHash2, 32 bits, with Kafka's seed, as an unsigned number (Kafka: Utils.murmur2, there signed)."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(key[at : at + 4], "little") * _M) & _MASK
        k ^= k >> _R
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if length > whole:
        h = ((h ^ int.from_bytes(key[whole:], "little")) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=8192)
def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key: the hash made positive, modulo the count (Kafka: BuiltInPartitioner)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartition:
    """The partition that records without a key go to until its batch is full (KIP-480)."""

    __slots__ = ("_draw", "current")

    def __init__(self, draw: random.Random | None = None) -> None:
        self._draw = draw or random.Random()
        self.current: int | None = None

    def choose(self, partition_count: int, available: Sequence[int]) -> int:
        """Move on to another partition, one with a leader if there is one."""
        among = [index for index in (available or range(partition_count)) if index != self.current]
        if among:
            self.current = self._draw.choice(among)
        elif self.current is None or self.current >= partition_count:
            self.current = 0
        return self.current
