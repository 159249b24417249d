"""Decides how long a client over its quota must wait: rates per principal, at each node separately (C102).

Invariants: a request is served whole and paid for afterwards, so in any period usage is at most the rate, the burst and
the last request; a client that waits as long as its answer says is never muted (C103). A mute covers only what its
quota covers: a client over its produce quota can still read and stays in its group. The request rate covers all calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.permissions import EVERY_CLIENT, principal_refusal
from strandline.core.token_bucket import TokenBucket

MOST_QUOTAS = 10_000
LEAST, MOST = 0.001, 1e15
"""Bounds of a rate."""
LONGEST_WAIT_MS = 30_000
BURST_MS = 10_000
# Any number of principals may call, so how many rates are remembered of them is bounded.
MOST_METERED = 10_000
# One request must not pay for a search through all of them.
_LOOKED_AT = 8


class QuotaKey(StrEnum):
    """What a quota limits; names as in Kafka, except requests, which Kafka counts as a share of thread time."""

    # Enum's own __hash__ runs in Python, and keys are hashed several times for each message.
    __hash__ = str.__hash__

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_RATE = "request_rate"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


@dataclass(frozen=True, slots=True, order=True)
class Quota:
    """One quota: a rate per second."""

    principal: str
    """``client/`` and the id in the certificate, or `EVERY_CLIENT` for each client without its own rate for the key."""
    key: QuotaKey
    value: float


class QuotaChange(NamedTuple):
    """A quota to set, or to remove if ``value`` is None."""

    principal: str
    key: str
    value: float | None


def quota_refusal(principal: str, key: str, value: float | None) -> Refusal | None:
    """Why this quota cannot be set, or removed if ``value`` is None; None if it can."""
    if (refusal := principal_refusal(principal)) is not None:
        return refusal
    if key not in set(QuotaKey):
        said = f"key {key[:60]!r} is none of {', '.join(QuotaKey)}; give one of them"
        return Refusal(ErrorCode.INVALID_REQUEST, said, field="key")
    if value is not None and not LEAST <= value <= MOST:
        said = f"value {value:g} of {key} is not {LEAST:g} to {MOST:g} per second; give such a rate, or remove it"
        return Refusal(ErrorCode.INVALID_REQUEST, said, field="value")
    return None


class _Metered:
    """One principal's usage of one rate."""

    __slots__ = ("bucket", "muted_until_ms", "rate")

    def __init__(self, rate: float, now_ms: int, burst_ms: int) -> None:
        self.rate = rate
        self.bucket = TokenBucket(rate, now_ms, burst_ms=burst_ms)
        self.muted_until_ms = now_ms


class Meters:
    """The usage of all principals at one node or controller."""

    def __init__(self, burst_ms: int = BURST_MS, most: int = MOST_METERED) -> None:
        # A busy node checks first whether there are any.
        self.quotas: tuple[Quota, ...] = ()
        self._rates: dict[tuple[str, QuotaKey], float] = {}
        self._burst_ms = burst_ms
        self._most = most
        self._metered: dict[tuple[str, QuotaKey], _Metered] = {}
        self.throttled = dict.fromkeys(QuotaKey, 0)
        """How many requests, or messages of streams, had to wait."""
        self.throttled_ms = dict.fromkeys(QuotaKey, 0)
        """Total time that they had to wait, in ms."""

    def know(self, given: tuple[Quota, ...]) -> bool:
        """Set the current quotas; returns whether they changed. Usage of a changed rate starts at zero, unmuted."""
        if given is self.quotas or given == self.quotas:
            return False
        self.quotas, self._rates = given, {(quota.principal, quota.key): quota.value for quota in given}
        self._metered = {of: each for of, each in self._metered.items() if self.rate(*of) == each.rate}
        return True

    def rate(self, principal: str, key: QuotaKey) -> float | None:
        """What a principal may use per second; None if there is no limit."""
        own = self._rates.get((principal, key))
        return self._rates.get((EVERY_CLIENT, key)) if own is None else own

    def take(self, principal: str, key: QuotaKey, count: int, now_ms: int) -> int:
        """Record usage by a principal; returns for how many ms it is now muted for this key."""
        metered = self._metered.get((principal, key))
        if metered is None:
            if (rate := self.rate(principal, key)) is None:
                return 0
            if len(self._metered) >= self._most:
                self._forget_one(now_ms)
            metered = self._metered[principal, key] = _Metered(rate, now_ms, self._burst_ms)
        # Into debt, too: a request is served whole, and its answer says how long to wait (KIP-219).
        metered.bucket.take(count, now_ms)
        if not (wait_ms := min(metered.bucket.debt_ms, LONGEST_WAIT_MS)):
            return 0
        metered.muted_until_ms = max(metered.muted_until_ms, now_ms + wait_ms)
        self.throttled[key] += 1
        self.throttled_ms[key] += wait_ms
        return wait_ms

    def muted_ms(self, principal: str, keys: tuple[QuotaKey, ...], now_ms: int) -> int:
        """For how many more ms a principal is muted for any of these keys: a request waits that long."""
        until_ms = now_ms
        for key in keys:
            if (metered := self._metered.get((principal, key))) is not None:
                until_ms = max(until_ms, metered.muted_until_ms)
        return until_ms - now_ms

    def _forget_one(self, now_ms: int) -> None:
        for oldest in [*islice(self._metered, _LOOKED_AT)]:
            metered = self._metered.pop(oldest)
            # A full bucket is like a new one, so dropping it forgives no debt.
            if metered.bucket.is_full(now_ms):
                return
            # To the end, so that the next search looks at others; what is looked at last goes if none is idle.
            self._metered[oldest] = metered
        self._metered.popitem()

    def __len__(self) -> int:
        return len(self._metered)
