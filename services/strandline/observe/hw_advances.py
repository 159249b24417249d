"""Which advances of a HW are reported one by one, and which are joined.

Up to `EXACT_PER_S` advances of a partition in a second are reported as they happen. Beyond that they are joined in
buckets of `BUCKET_MS`, each with the time of its first and last advance, so no boundary of a stall is blurred by more.

Invariant: reported advances are chained: the old HW of each is the new HW of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.core.state_events import Moment
from strandline.core.types import NodeId, Offset

EXACT_PER_S = 10
BUCKET_MS = 100


class Advance(NamedTuple):
    """What one HW_ADVANCE reports, without the epochs."""

    old_hw: Offset
    new_hw: Offset
    cause: str
    first_ms: Moment
    last_ms: Moment
    n_coalesced: int
    blocking_replicas: tuple[NodeId, ...]


class HwAdvances:
    """What is reported of the HW of one led partition."""

    __slots__ = ("_blockers", "_bucket", "_exact", "_second_ms")

    def __init__(self) -> None:
        # Advances reported one by one since `_second_ms`.
        self._exact = 0
        self._second_ms = 0
        self._bucket: Advance | None = None
        self._blockers: set[NodeId] = set()

    @property
    def is_open(self) -> bool:
        """Whether advances wait to be reported."""
        return self._bucket is not None

    def rose(self, old: Offset, new: Offset, cause: str, blockers: Iterable[NodeId], now_ms: int) -> list[Advance]:
        """The HW rose. Returns what is to be reported now."""
        due = self.due(now_ms)
        reported = [] if due is None else [due]
        if now_ms - self._second_ms >= 1_000:
            self._second_ms, self._exact = now_ms, 0
        if self._bucket is None:
            bucket = _advance(old, new, cause, now_ms)
            if self._exact < EXACT_PER_S:
                self._exact += 1
                return [*reported, bucket._replace(blocking_replicas=tuple(blockers))]
            self._bucket, self._blockers = bucket, set(blockers)
            return reported
        count = self._bucket.n_coalesced + 1
        self._bucket = self._bucket._replace(new_hw=new, last_ms=Moment(now_ms), n_coalesced=count)
        self._blockers.update(blockers)
        return reported

    def due(self, now_ms: int) -> Advance | None:
        """The bucket, if its time is over."""
        if self._bucket is None or now_ms - self._bucket.first_ms < BUCKET_MS:
            return None
        return self.rest()

    def rest(self) -> Advance | None:
        """The bucket, whatever its age: something else is reported next, or the reign ends."""
        bucket, self._bucket = self._bucket, None
        return None if bucket is None else bucket._replace(blocking_replicas=tuple(sorted(self._blockers)))


def _advance(old: Offset, new: Offset, cause: str, now_ms: int) -> Advance:
    return Advance(old, new, cause, Moment(now_ms), Moment(now_ms), n_coalesced=1, blocking_replicas=())
