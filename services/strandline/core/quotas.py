"""Decides how long a client waits that uses more than its quota: rates of principals, of each node for itself (C102).

Invariants: a request is served whole and paid for afterwards, so over any time at most the rate, the burst and what was
last begun are used; a client that waits as long as its answer says meets no mute (C103). A mute is of what its quota
is about: who produces too much may still read, and stays in its group. Requests per second are about all.
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
"""Of a rate."""
LONGEST_WAIT_MS = 30_000
BURST_MS = 10_000
MOST_METERED = 10_000
"""Rates of principals that are remembered; beyond that the oldest are forgotten, first those that used nothing."""
_LOOKED_AT = 8


class QuotaKey(StrEnum):
    """What has a rate; names as in Kafka, but for the requests, which Kafka counts in time of its threads."""

    # An enumeration's own is computed in Python, several times for each message.
    __hash__ = str.__hash__

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_RATE = "request_rate"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


@dataclass(frozen=True, slots=True, order=True)
class Quota:
    """One rate, per second."""

    principal: str
    """``client/`` and the id in the certificate, or `EVERY_CLIENT`: of each client that has no own rate for the key."""
    key: QuotaKey
    value: float


class QuotaChange(NamedTuple):
    """A quota to set; without a value one to remove."""

    principal: str
    key: str
    value: float | None


def quota_refusal(principal: str, key: str, value: float | None) -> Refusal | None:
    """Why this can be no quota; without a value why it can be none that is removed."""
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
    """What one principal has used of one rate."""

    __slots__ = ("bucket", "muted_until_ms", "rate")

    def __init__(self, rate: float, now_ms: int, burst_ms: int) -> None:
        self.rate = rate
        self.bucket = TokenBucket(rate, now_ms, burst_ms=burst_ms)
        self.muted_until_ms = now_ms


class Meters:
    """What principals use, at one node or controller."""

    def __init__(self, burst_ms: int = BURST_MS, most: int = MOST_METERED) -> None:
        self.quotas: tuple[Quota, ...] = ()
        """Empty while there is none at all, which is what a busy node asks first."""
        self._rates: dict[tuple[str, QuotaKey], float] = {}
        self._burst_ms = burst_ms
        self._most = most
        self._metered: dict[tuple[str, QuotaKey], _Metered] = {}
        self.throttled = dict.fromkeys(QuotaKey, 0)
        """How many requests, or parts of one, had to wait."""
        self.throttled_ms = dict.fromkeys(QuotaKey, 0)
        """For how long, all of them together."""

    def know(self, given: tuple[Quota, ...]) -> bool:
        """Take the quotas of now; whether they are others. A rate that has changed begins with nothing used of it, so
        who was muted for it is muted no more."""
        if given is self.quotas or given == self.quotas:
            return False
        self.quotas, self._rates = given, {(quota.principal, quota.key): quota.value for quota in given}
        self._metered = {of: each for of, each in self._metered.items() if self.rate(*of) == each.rate}
        return True

    def rate(self, principal: str, key: QuotaKey) -> float | None:
        """What a principal may use per second; None: as much as it likes."""
        own = self._rates.get((principal, key))
        return self._rates.get((EVERY_CLIENT, key)) if own is None else own

    def take(self, principal: str, key: QuotaKey, count: int, now_ms: int) -> int:
        """Note what a principal has used; returns for how many ms it is muted for that from now on."""
        metered = self._metered.get((principal, key))
        if metered is None:
            if (rate := self.rate(principal, key)) is None:
                return 0
            if len(self._metered) >= self._most:
                self._forget_one(now_ms)
            metered = self._metered[principal, key] = _Metered(rate, now_ms, self._burst_ms)
        metered.bucket.take(count, now_ms)
        if not (wait_ms := min(metered.bucket.debt_ms, LONGEST_WAIT_MS)):
            return 0
        metered.muted_until_ms = max(metered.muted_until_ms, now_ms + wait_ms)
        self.throttled[key] += 1
        self.throttled_ms[key] += wait_ms
        return wait_ms

    def muted_ms(self, principal: str, keys: tuple[QuotaKey, ...], now_ms: int) -> int:
        """For how many ms a principal is muted for any of these; what an answer tells, and what a request waits."""
        until_ms = now_ms
        for key in keys:
            if (metered := self._metered.get((principal, key))) is not None:
                until_ms = max(until_ms, metered.muted_until_ms)
        return until_ms - now_ms

    def _forget_one(self, now_ms: int) -> None:
        """Forget who has used nothing of late; of some that were looked at and have, the last."""
        for oldest in [*islice(self._metered, _LOOKED_AT)]:
            metered = self._metered.pop(oldest)
            if metered.bucket.is_full(now_ms):
                return
            self._metered[oldest] = metered
        self._metered.popitem()

    def __len__(self) -> int:
        return len(self._metered)
