"""What is counted of an export and under which names, for the metrics endpoint and for log lines.

The names of `ExportCounters` are those of the metrics, without the prefix `PREFIX`. What ends in ``_total`` only grows
within a process.

Invariant: reading never waits for the writer; figures that belong together may be a moment apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

PREFIX = "strandline_export_"


@dataclass(slots=True)
class OutletStats:
    """What became of the events that one outlet took; read by other threads, written by the writer alone."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    lost_rows: int = 0
    failures: int = 0
    last_failure: str = ""
    is_failing: bool = False
    oldest_us: int | None = None
    """When the oldest event was taken that is in no file yet, by the monotonic clock; none if there is no such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCounters:
    """An export at one moment."""

    events_total: int
    """Events that found room."""
    dropped_total: int
    """Events that found none, because the writer was too far behind."""
    lost_total: int
    """Events that were given up because a destination did not take them in time."""
    rows_total: int
    """Events in files that came to their place."""
    files_total: int
    """Such files."""
    bytes_total: int
    """Their size."""
    failures_total: int
    """Attempts of a destination that failed."""
    waiting_events: int
    """Events that wait for the writer."""
    waiting_files: int
    """Files that wait for their destination."""
    waiting_bytes: int
    """Their size."""
    lag_seconds: float
    """Age of the oldest event that is in no file yet: up to `export_roll_s` by design, more when something is stuck."""
    writer_cpu_seconds_total: float
    """CPU time of the writer's thread."""

    def metrics(self) -> dict[str, int | float]:
        """Every figure under the name of its metric."""
        return {f"{PREFIX}{name}": value for name, value in asdict(self).items()}
