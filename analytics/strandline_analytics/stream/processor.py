"""How the machine runs inside Structured Streaming: state per partition of the log, woken by event-time timers.

Invariant: nothing is decided here; what the machine keeps goes into the state store, and what it says goes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from strandline_analytics.stream.carry import Carry
from strandline_analytics.stream.columns import completed
from strandline_analytics.stream.machine import Timing, settle


class LivePartition(StatefulProcessor):
    """The live statistics of every partition; the key is (cluster_id, topic_id, partition)."""

    def __init__(self, timing: Timing, *, provisional: bool) -> None:
        """``provisional``: whether rows of open windows are written as well."""
        self._timing = timing
        self._provisional = provisional

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name what is kept: what replaces closed windows, and the events of open ones."""
        self._handle = handle
        self._carry = handle.getValueState("carry", "carry STRING")
        self._stories = handle.getListState("stories", "story STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        """Take new events."""
        return self._settle(key, [row["story"] for row in rows if row["story"] is not None], timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """The watermark has passed a moment that was waited for."""
        return self._settle(key, [], timerValues)

    def close(self) -> None:
        """Nothing is open."""

    def _settle(self, key: Any, news: list[str], timers: TimerValues) -> Iterator[Row]:
        if key[2] is None:
            # What is of no partition has moved the watermark, and that is all.
            return
        kept = self._carry.get() if self._carry.exists() else None
        carry = Carry() if kept is None else Carry.from_json(kept[0])
        # Before the first watermark Spark says -1 or 0.
        watermark_us = max(0, timers.getCurrentWatermarkInMs()) * 1_000
        if kept is not None and not self._provisional and self._is_early(carry, watermark_us):
            self._append(news)
            return
        before = [story for (story,) in self._stories.get()] if self._stories.exists() else []
        done = settle(carry, before + news, watermark_us=watermark_us, timing=self._timing)
        if kept is None or done.carry.is_done or done.carry.start_us != carry.start_us or carry.pending:
            self._carry.update((done.carry.to_json(),))
            self._stories.clear()
            self._append(done.rest)
        else:
            self._append(news)
        self._wake(done.wake_us)
        own = dict(zip(("cluster_id", "topic_id", "partition"), key, strict=True))
        for row in done.rows:
            if row["final"] or self._provisional:
                yield Row(**completed(row | own))

    def _is_early(self, carry: Carry, watermark_us: int) -> bool:
        """Whether no window can be closed yet, whatever came."""
        is_open = carry.start_us is not None and watermark_us < carry.start_us + self._timing.step_us
        return is_open and not carry.pending and not carry.is_done

    def _append(self, stories: list[str]) -> None:
        if stories:
            self._stories.appendList([(story,) for story in stories])

    def _wake(self, wake_us: int | None) -> None:
        wanted = None if wake_us is None else -(-wake_us // 1_000)
        known = list(self._handle.listTimers())
        for timer in known:
            if timer != wanted:
                self._handle.deleteTimer(timer)
        if wanted is not None and wanted not in known:
            self._handle.registerTimer(wanted)
