"""Whether a micro-batch waits for more records: until there are enough, or the longest delay is over.

As Kafka's source does with ``minOffsetsPerTrigger`` and ``maxTriggerDelay``; the first micro-batch of a query waits for
nothing.

Invariant: records wait at most for the delay; a run that reads what is there now (availableNow) never waits.
"""

from __future__ import annotations

from strandline_analytics.topic.options import TopicOptions


class Pacing:
    """Of one query: when its last micro-batch began, by the caller's clock."""

    def __init__(self, options: TopicOptions) -> None:
        self._least = options.min_offsets_per_trigger
        self._delay_ms = options.max_trigger_delay_ms
        self._last_ms: float | None = None

    def waits(self, n_records: int, now_ms: float) -> bool:
        """Whether so many records wait on; otherwise a micro-batch begins now."""
        is_little = self._least is not None and n_records < self._least
        if is_little and self._last_ms is not None and now_ms - self._last_ms < self._delay_ms:
            return True
        self._last_ms = now_ms
        return False
