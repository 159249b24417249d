"""Which moments of a result stand in it twice: in microseconds, which are exact in any tool, and as a TIMESTAMP.

Invariant: both are the same moment; a tool that shows times in a zone of its own shows the same one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

TIMES = {"window_start": "window_start_time", "window_end": "window_end_time"}
"""Columns of microseconds since 1970, and the names of their TIMESTAMPs."""


def with_times(rows: DataFrame) -> DataFrame:
    """Rows with a TIMESTAMP behind each moment that they have."""
    columns: list[str] = []
    for name in rows.columns:
        columns += [name, TIMES[name]] if name in TIMES else [name]
    made = {time: F.timestamp_micros(name) for name, time in TIMES.items() if name in rows.columns}
    return rows.withColumns(made).select(*columns)
