"""When a controller decided nothing for long: no record came for more than three periods of its idle record (A14).

An election of controllers writes a record of its own, which decides nothing and ends no silence.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from strandline.kafka.history.records import MetadataRecord

_IDLE_MS = 500
"""How often an idle controller writes a NoOp by default; measured, where that is less often."""
_ELECTION = "LeaderChange"
_PERIODS_OF_SILENCE = 3
_MEASURED, _ENOUGH = 101, 10


class Silences:
    """Takes records in the order of the log."""

    def __init__(self) -> None:
        self._intervals: deque[int] = deque(maxlen=_MEASURED)
        self._last: MetadataRecord | None = None

    def passed(self, record: MetadataRecord) -> int | None:
        """For how many ms there was silence before a record; None if there was none."""
        if record.kind == _ELECTION:
            return None
        last, self._last = self._last, record
        if last is None:
            return None
        passed_ms = record.timestamp_ms - last.timestamp_ms
        # Nearly every record comes within the default.
        if passed_ms > _PERIODS_OF_SILENCE * _IDLE_MS and self._is_silence(passed_ms):
            return passed_ms
        if record.kind == last.kind == "NoOp":
            self._intervals.append(passed_ms)
        return None

    def _is_silence(self, passed_ms: int) -> bool:
        # The median is looked for only where it decides, which is seldom.
        return len(self._intervals) >= _ENOUGH and passed_ms > _PERIODS_OF_SILENCE * median(self._intervals)
