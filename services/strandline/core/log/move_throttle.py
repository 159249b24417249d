"""Decides which copies of moving replicas wait for their rate limit, separately as leader and as follower (C80).

Invariants: which replicas are limited is derived from the partition's own state, never listed: a replica that a running
reassignment adds, until it is in the ISR, and on the follower's side a returning one, if its node has a rate for
those. Neither waits within a batch of the HW, so a throttle never keeps a replica from joining.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from strandline.core.messages import PartitionImage
from strandline.core.token_bucket import TokenBucket
from strandline.core.types import NEVER_MS, NodeId, TopicPartition

_BURST_MS = 200
"""Several ticks, so that no rate is lost between two; not more, or a copy that begins would delay others."""


def rate_of(image: PartitionImage, node_id: NodeId, isr: Collection[NodeId]) -> int | None:
    """The rate limit of this replica's copying in bytes per second; None if there is none."""
    return image.throttle_bytes_per_s if node_id in image.adding and node_id not in isr else None


class HeldTime:
    """How long the copy of one replica has waited for its rate."""

    __slots__ = ("_since_ms", "_total_ms")

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._total_ms = 0

    def note(self, is_held: bool, now_ms: int) -> bool:
        """Record whether it waits now; returns ``is_held``."""
        if not is_held:
            self._total_ms, self._since_ms = self.total_ms(now_ms), None
        elif self._since_ms is None:
            self._since_ms = now_ms
        return is_held

    def total_ms(self, now_ms: int) -> int:
        """Total time of its waits so far."""
        return self._total_ms + (0 if self._since_ms is None else now_ms - self._since_ms)


class MoveThrottle:
    """For each rate one bucket, which all reassignments of that rate share, and the partitions that wait for it."""

    def __init__(self) -> None:
        self._buckets: dict[int, TokenBucket] = {}
        # In the order in which they began to wait.
        self._waiting: dict[int, dict[TopicPartition, None]] = {}

    def holds(self, tp: TopicPartition, rate: int, now_ms: int) -> bool:
        """Whether the partition waits; `released` returns it when it no longer needs to."""
        if self._bucket(rate, now_ms).is_open(now_ms):
            return False
        self._waiting.setdefault(rate, {})[tp] = None
        return True

    def passed(self, rate: int, size_bytes: int, now_ms: int) -> None:
        """Count what was copied."""
        self._bucket(rate, now_ms).take(size_bytes, now_ms)

    def released(self, now_ms: int) -> Iterator[TopicPartition]:
        """For each rate the next partition that may continue: only one, because what it copies is not counted yet."""
        for rate, waiting in list(self._waiting.items()):
            if self._bucket(rate, now_ms).is_open(now_ms):
                tp = next(iter(waiting))
                del waiting[tp]
                if not waiting:
                    del self._waiting[rate]
                yield tp

    @property
    def due_ms(self) -> int:
        """When `released` will next return a partition."""
        return min((self._buckets[rate].opens_at_ms for rate in self._waiting), default=NEVER_MS)

    def _bucket(self, rate: int, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(rate)
        if bucket is None:
            # A full bucket is equivalent to a new one, so buckets of past rates are dropped.
            for past in [each for each, one in self._buckets.items() if one.is_full(now_ms)]:
                if past not in self._waiting:
                    del self._buckets[past]
            bucket = self._buckets[rate] = TokenBucket(rate, now_ms, burst_ms=_BURST_MS)
        return bucket
