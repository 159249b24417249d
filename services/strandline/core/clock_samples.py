"""Decides how often the controller reports how far a node's clock is from its own: once in `EVERY_MS` per node.

The node measures it by its heartbeats, within half a round trip; nothing is ever decided by it.
"""

from __future__ import annotations

from strandline.core.draft import Draft
from strandline.core.messages import Heartbeat
from strandline.core.state_events import ClockSample
from strandline.core.types import NodeId

EVERY_MS = 30_000


class ClockSamples:
    """When each node's clock was last reported. Volatile: a new reign reports all of them again."""

    def __init__(self) -> None:
        self._told_ms: dict[NodeId, int] = {}

    def heard(self, draft: Draft, beat: Heartbeat, now_ms: int) -> None:
        """A heartbeat may carry a measurement."""
        if beat.clock_offset_us is None or beat.clock_err_us is None:
            return
        told_ms = self._told_ms.get(beat.node_id)
        if told_ms is not None and now_ms - told_ms < EVERY_MS:
            return
        self._told_ms[beat.node_id] = now_ms
        draft.emit(None, ClockSample(beat.node_id, offset_us=beat.clock_offset_us, err_us=beat.clock_err_us))
