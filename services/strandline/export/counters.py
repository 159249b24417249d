"""The counters of an export and their names, for the metrics endpoint and for log lines.

The names in `ExportCounters` are those of the metrics, without the prefix `PREFIX`. Names that end in ``_total`` are
counters: they only grow within a process.

Invariant: reading never waits for the writer, so figures that belong together may differ by a moment.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

PREFIX = "strandline_export_"


@dataclass(slots=True)
class OutletStats:
    """Counts of the events that one outlet took. Only the writer changes them; other threads read them."""

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
    """When the oldest event that is in no file yet was taken (monotonic clock); None if there is no such event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCounters:
    """An export at one moment."""

    events_total: int
    """Events that were accepted because there was room."""
    dropped_total: int
    """Events that were dropped because the writer was too far behind."""
    lost_total: int
    """Events that were given up because a destination did not accept them in time."""
    rows_total: int
    """Events in the files that were placed at their destination."""
    files_total: int
    """Files that were placed at their destination."""
    bytes_total: int
    """Size of the files that were placed, in bytes."""
    failures_total: int
    """Failed attempts to place a file at its destination."""
    waiting_events: int
    """Events that wait for the writer."""
    waiting_files: int
    """Files that wait for their destination."""
    waiting_bytes: int
    """Size of the files that wait, in bytes."""
    lag_seconds: float
    """Age of the oldest event that is in no file yet: up to `export_roll_s` by design, more when something is stuck."""
    writer_cpu_seconds_total: float
    """CPU time that the writer's thread used."""

    def metrics(self) -> dict[str, int | float]:
        """Every figure under the name of its metric."""
        return {f"{PREFIX}{name}": value for name, value in asdict(self).items()}
