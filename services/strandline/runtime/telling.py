"""Writes a line that was made from an event to the log.

Invariant: called in the writer's thread; the log's own lock keeps lines whole.
"""

from __future__ import annotations

import structlog

from strandline.export.log_lines import Line

_log = structlog.get_logger("strandline.events")


def tell(line: Line) -> None:
    """Write it, as a warning if somebody may want to look."""
    (_log.warning if line.is_warning else _log.info)(line.sentence, **line.fields)
