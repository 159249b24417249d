"""Defines the scope of a statistic: the window, its steps, and the grouping of rows.

Invariant: windows are half-open, [start, end) in microseconds since 1970, and adjacent from the start of the scope; a
statistic over one window has a step as long as the scope.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark.sql import Column, DataFrame, functions as F

HOUR_US = 3_600_000_000

FOREVER_US = 2**62
"""The end of an interval that has not ended."""

MOST_WINDOWS = 100_000
"""The maximum: eleven years of hours, ten weeks of minutes. A single event of 1970 would make half a million."""

PARTITION_KEY = ("cluster_id", "topic_id", "partition")
"""The columns that identify a partition; a topic's name may be reused, its id is not."""


class Grouping(Enum):
    """The subject of a result's rows, with the columns that identify it."""

    PARTITION = ("cluster_id", "topic_id", "topic", "partition")
    TOPIC = ("cluster_id", "topic_id", "topic")
    CLUSTER = ("cluster_id",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The period of a question: from ``start_us`` to before ``end_us``, in windows of ``step_us``."""

    start_us: int
    end_us: int
    step_us: int | None = None
    grouping: Grouping = Grouping.PARTITION

    def __post_init__(self) -> None:
        if self.end_us <= self.start_us:
            raise ValueError(f"the window [{self.start_us}, {self.end_us}) is empty; --to must be after --from")
        if self.step_us is not None and self.step_us <= 0:
            raise ValueError(f"step_us is {self.step_us}; a step is at least 1 microsecond")

    @property
    def step(self) -> int:
        """The length of a window, us; the last one may be cut short by the end of the scope."""
        return self.step_us or self.end_us - self.start_us

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a result is grouped by, including those of the window."""
        return (*self.grouping.value, "window_start", "window_end")

    def clip(self, intervals: DataFrame, start: str = "t0", end: str = "t1") -> DataFrame:
        """Cut intervals at the borders of the windows: each piece in one row, with its window.

        Adds ``window_start`` and ``window_end``, replaces ``start`` and ``end`` by those of the piece; ``cut_start``
        and ``cut_end`` show on which side a piece was cut.
        """
        pieces = intervals.where(
            (F.col(start) < self.end_us) & (F.col(end) > self.start_us) & (F.col(end) > F.col(start))
        )
        window_start = F.lit(self.start_us).cast("bigint")
        if self.step_us:
            first = self._start_at(F.greatest(F.col(start), F.lit(self.start_us)))
            last = self._start_at(F.least(F.col(end), F.lit(self.end_us)) - 1)
            pieces = pieces.withColumn("window_start", F.explode(F.sequence(first, last, F.lit(self.step))))
            window_start = F.col("window_start")
        window_end = self._end_of(window_start)
        return pieces.withColumns(
            {
                "window_start": window_start,
                "window_end": window_end,
                "cut_start": F.col(start) < window_start,
                "cut_end": F.col(end) > window_end,
                start: F.greatest(F.col(start), window_start),
                end: F.least(F.col(end), window_end),
            }
        )

    def place(self, moments: DataFrame, at: str = "t") -> DataFrame:
        """Keep the moments within the scope, each with ``window_start`` and ``window_end`` of its window."""
        inside = moments.where((F.col(at) >= self.start_us) & (F.col(at) < self.end_us))
        start = self._start_at(F.col(at))
        return inside.withColumns({"window_start": start, "window_end": self._end_of(start)})

    def windows(self, keys: DataFrame) -> DataFrame:
        """Every group of ``keys`` with every window: a result has a row for each, whether anything happened or not."""
        groups = keys.select(*self.grouping.value).distinct()
        last = self.end_us - 1 - (self.end_us - 1 - self.start_us) % self.step
        starts = F.sequence(*(F.lit(value).cast("bigint") for value in (self.start_us, last, self.step)))
        rows = groups.withColumn("window_start", F.explode(starts))
        return rows.withColumn("window_end", self._end_of(F.col("window_start")))

    def _start_at(self, moment: Column) -> Column:
        """The start of the window that contains a moment within the scope."""
        since = moment - self.start_us
        return moment - since % self.step

    def _end_of(self, window_start: Column) -> Column:
        return F.least(window_start + self.step, F.lit(self.end_us)).cast("bigint")


# ---- timestamps
# Adds to a result's moments in microseconds, which are exact in any tool, the same moments as TIMESTAMPs.
#
# Invariant: both are the same moment; a tool that shows times in a zone of its own shows the same one.

TIMES = {"window_start": "window_start_time", "window_end": "window_end_time"}
"""Columns of microseconds since 1970, and the names of their TIMESTAMPs."""


def with_times(rows: DataFrame) -> DataFrame:
    """The rows, with a TIMESTAMP after each of their moments."""
    columns: list[str] = []
    for name in rows.columns:
        columns += [name, TIMES[name]] if name in TIMES else [name]
    made = {time: F.timestamp_micros(name) for name, time in TIMES.items() if name in rows.columns}
    return rows.withColumns(made).select(*columns)
