"""A token bucket with time as input: decides when work that has a rate limit may continue.

Invariant: in any span of time at most ``rate x (span + burst)`` passes, plus the last request, which is always taken
whole and paid for afterwards (KIP-73, KIP-219).
"""

from __future__ import annotations

from math import ceil

_MS_PER_S = 1_000


class TokenBucket:
    """Tokens that arrive at a rate, up to a burst. It starts full; below 0 it is in debt."""

    __slots__ = ("_at_ms", "_most", "_rate", "_tokens")

    def __init__(self, rate_per_s: float, now_ms: int, *, burst_ms: int = 1_000) -> None:
        """``rate_per_s`` must be above 0."""
        self._rate = rate_per_s
        # In thousandths of a token, so that refills are exact.
        self._most = self._tokens = rate_per_s * burst_ms
        self._at_ms = now_ms

    def is_open(self, now_ms: int) -> bool:
        """Whether work may continue."""
        self._refill(now_ms)
        return self._tokens > 0

    def is_full(self, now_ms: int) -> bool:
        """Whether it is full, like a new one."""
        self._refill(now_ms)
        return self._tokens == self._most

    def take(self, count: int, now_ms: int) -> None:
        """Take ``count`` tokens, even if there are fewer."""
        self._refill(now_ms)
        self._tokens -= count * _MS_PER_S

    @property
    def opens_at_ms(self) -> int:
        """When it will be open if nothing more is taken."""
        # Open means above 0, so the ms at which the debt is just paid is one too early.
        return self._at_ms if self._tokens > 0 else self._at_ms + 1 + int(-self._tokens // self._rate)

    @property
    def debt_ms(self) -> int:
        """How long the rate takes to pay the debt, in ms; 0 without a debt."""
        return ceil(-self._tokens / self._rate) if self._tokens < 0 else 0

    def _refill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self._tokens = min(self._most, self._tokens + (now_ms - self._at_ms) * self._rate)
            self._at_ms = now_ms
