"""The settings of an export: where state events go, in which format, and how often state is sampled.

Invariant: an impossible destination (an unknown scheme, Parquet without pyarrow) is refused at the start, with the name
of its setting; one that does not answer is not refused, because an export must never keep a service from serving.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Protocol

import structlog

from strandline.export.destination import open_destination
from strandline.export.encoding import ExportFormat, prepare
from strandline.export.files import FileExport, FileLimits
from strandline.export.log_lines import Line
from strandline.export.spool import Spool
from strandline.runtime.settings import shared

ExportDir = Annotated[
    str,
    shared(
        "directory for exported state events; empty: none",
        "To analyse later what happened.",
    ),
]
ExportUri = Annotated[
    str,
    shared("the same as a URI: s3://bucket/prefix?endpoint_override=host:port ...", "The same, for an object store."),
]
Format = Annotated[
    ExportFormat,
    shared(
        "what exported files are: parquet (needs pyarrow) or jsonl",
        "`jsonl` where pyarrow is not installed; larger and slower to read.",
    ),
]
RollS = Annotated[
    int,
    shared(
        "seconds after which an exported file ends",
        "Smaller for fresher data in more and smaller files.",
        ge=1,
        le=3600,
    ),
]
FileBytes = Annotated[int, shared("bytes in memory at which an exported file ends", ge=1 << 16)]
WaitingBytes = Annotated[int, shared("bytes that may wait for a failing destination", ge=1 << 16)]
RingEvents = Annotated[int, shared("events that may wait in memory for the export's thread", ge=100)]
SampleMs = Annotated[
    int,
    shared(
        "least time between two samples; with an export only",
        "Larger for smaller exports with a coarser view of lag and HW.",
        ge=10,
        le=60_000,
    ),
]
SampleMaxMs = Annotated[int, shared("time after which an idle partition is sampled", ge=100, le=600_000)]


class ExportSettings(Protocol):
    """The settings of an export, which both kinds of service have."""

    @property
    def export_dir(self) -> str:
        """The destination's directory, or empty."""
        ...

    @property
    def export_uri(self) -> str:
        """The destination's URI, or empty."""
        ...

    @property
    def export_format(self) -> ExportFormat:
        """The format of the files."""
        ...

    @property
    def export_roll_s(self) -> int:
        """Seconds after which a file ends."""
        ...

    @property
    def export_file_bytes(self) -> int:
        """Bytes in memory at which a file ends."""
        ...

    @property
    def export_waiting_bytes(self) -> int:
        """Bytes that may wait for a failing destination."""
        ...


def exports(settings: ExportSettings) -> bool:
    """Whether this process exports state events."""
    return bool(settings.export_dir or settings.export_uri)


def check_export(settings: ExportSettings) -> None:
    """Refuse settings that contradict each other or need a package that is not installed.

    Raises:
        ValueError: the message names the setting.
    """
    if settings.export_dir and settings.export_uri:
        raise ValueError("export_dir and export_uri are both given; name one destination")
    if not exports(settings):
        return
    if settings.export_format is ExportFormat.PARQUET and find_spec("pyarrow") is None:
        raise ValueError(
            "export_format parquet needs pyarrow: pip install '.[export]' in the checkout, or set it to jsonl"
        )
    open_destination(settings.export_uri or settings.export_dir)


def open_exports(
    settings: ExportSettings, said: Callable[[str], None], data_dir: Path | None = None
) -> list[FileExport]:
    """The export that the settings ask for, or an empty list.

    Args:
        said: called with a message about a failing destination, or about files that a killed process left behind.
        data_dir: this process's directory, which also holds the events of unfinished files; None: a kill loses them.
    """
    if not exports(settings):
        return []
    prepare(settings.export_format)
    limits = FileLimits(
        roll_us=settings.export_roll_s * 1_000_000,
        max_bytes=settings.export_file_bytes,
        waiting_bytes=settings.export_waiting_bytes,
    )
    destination = open_destination(settings.export_uri or settings.export_dir)
    spool = None if data_dir is None else Spool(data_dir)
    return [FileExport(destination, settings.export_format, limits, said, spool)]


# ---- telling
# Writes a line that was made from an event to the log.
#
# Invariant: called in the writer's thread; the log's own lock keeps lines whole.

_log = structlog.get_logger("strandline.events")


def tell(line: Line) -> None:
    """Log the line, as a warning if an operator should look at it."""
    (_log.warning if line.is_warning else _log.info)(line.sentence, **line.fields)


# ---- hourly
# The full state is reported at the start of every hour, by the wall clock.
#
# Invariant: a clock that is set during the wait causes at most one report too many or too late.

_HOUR_S = 3_600
_JUST_AFTER_S = 0.05


async def at_each_hour(tell: Callable[[], None], now_s: Callable[[], float] = time.time) -> None:
    """Call ``tell`` at the start of every hour, until cancelled."""
    while True:
        await asyncio.sleep(_HOUR_S - now_s() % _HOUR_S + _JUST_AFTER_S)
        tell()
