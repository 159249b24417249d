"""Audit events as processes answer them to a console: the message of the export, with few fields of its envelope."""

from __future__ import annotations

from strandline.core.state_events import Audit
from strandline.v1 import state_event_pb2 as pb

Recent = tuple[int, Audit]
"""When it was told, in microseconds since 1970, and what."""


def write_audit(wall_us: int, event: Audit) -> pb.StateEvent:
    """One event."""
    named = {name: value for name, value in event._asdict().items() if name not in ("first_ms", "last_ms")}
    return pb.StateEvent(event_type=pb.STATE_EVENT_TYPE_AUDIT, ts_wall_us=wall_us, **named)
