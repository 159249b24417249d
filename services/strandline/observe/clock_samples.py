"""How often the controller reports how far a node's clock is from its own: once in `EVERY_MS` per node.

The node measures it by its heartbeats, within half a round trip; no decision depends on it.
"""

from __future__ import annotations

from strandline.core.messages import Heartbeat
from strandline.core.state_events import ClockSample
from strandline.core.types import NodeId

EVERY_MS = 30_000


class ClockSamples:
    """When each node's clock was last reported. Volatile: a new reign reports all of them again."""

    def __init__(self) -> None:
        self._reported_ms: dict[NodeId, int] = {}

    def __call__(self, beat: Heartbeat, now_ms: int) -> ClockSample | None:
        """What is reported of the measurement in a heartbeat; None if it carries none, or one was reported lately."""
        if beat.clock_offset_us is None or beat.clock_err_us is None:
            return None
        last_ms = self._reported_ms.get(beat.node_id)
        if last_ms is not None and now_ms - last_ms < EVERY_MS:
            return None
        self._reported_ms[beat.node_id] = now_ms
        return ClockSample(beat.node_id, offset_us=beat.clock_offset_us, err_us=beat.clock_err_us)
