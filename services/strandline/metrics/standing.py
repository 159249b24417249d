"""How old the oldest record above a HW is, from looks at it now and then.

Each look remembers where the log ended; a mark is forgotten when the HW has passed it, so the oldest mark that is
left gives the age, late by one interval between looks at most.

Invariant: what is remembered is bounded, and nothing of the data path knows that it is looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from strandline.core.replica_log import ReplicaLog
from strandline.core.types import Offset, TopicPartition

LOOK_EVERY_S = 0.25
_MARKS = 256
"""Log ends remembered for each partition: beyond them ages are rounded up to that of the last mark."""

_Marks = deque[tuple[Offset, int]]


class StandingRecords:
    """Ages of what waits to be committed, by led partition."""

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, _Marks] = {}

    def look(self, led: Iterable[ReplicaLog], now_ms: int) -> None:
        """Look at every led partition; one that is not led any more is forgotten."""
        before, self._marks = self._marks, {}
        for log in led:
            if log.hw >= log.leo:
                continue
            marks = before.get(log.tp) or deque()
            while marks and marks[0][0] <= log.hw:
                marks.popleft()
            if not marks or marks[-1][0] < log.leo:
                if len(marks) == _MARKS:
                    marks[-1] = (log.leo, marks[-1][1])
                else:
                    marks.append((log.leo, now_ms))
            self._marks[log.tp] = marks

    def oldest_s(self, led: Iterable[ReplicaLog], now_ms: int) -> float:
        """Age of the oldest record that is above the HW now; 0 without one."""
        return max((now_ms - since for log in led if (since := self._since(log)) is not None), default=0) / 1000

    def _since(self, log: ReplicaLog) -> int | None:
        marks = self._marks.get(log.tp, ())
        return next((at_ms for end, at_ms in marks if end > log.hw), None)
