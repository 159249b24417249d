"""How long a transaction has held back an LSO, from looks at led partitions now and then.

Each look remembers where an LSO stands below its HW; it is late by one interval between looks at most. A new leader
begins at 0.

Invariant: what is remembered is bounded by the led partitions, and nothing of the data path knows that it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.replica_log import ReplicaLog
from strandline.core.types import Offset, TopicPartition


class HeldBack:
    """Since when each led partition's LSO stands."""

    def __init__(self) -> None:
        self._stands: dict[TopicPartition, tuple[Offset, int]] = {}

    def look(self, led: Iterable[ReplicaLog], now_ms: int) -> None:
        """Look at every led partition; one that is not led any more is forgotten."""
        before, self._stands = self._stands, {}
        for log in led:
            lso = log.lso
            if lso < log.hw:
                known = before.get(log.tp)
                self._stands[log.tp] = known if known is not None and known[0] == lso else (lso, now_ms)

    def longest_s(self, led: Iterable[ReplicaLog], now_ms: int) -> float:
        """How long the LSO has stood where it has stood longest; 0 where none is held back now."""
        return max((now_ms - since for log in led if (since := self._since(log)) is not None), default=0) / 1000

    def _since(self, log: ReplicaLog) -> int | None:
        known = self._stands.get(log.tp)
        return known[1] if known is not None and known[0] == log.lso < log.hw else None
