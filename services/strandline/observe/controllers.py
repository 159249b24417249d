"""The reports of controllers: samples of clocks, events about reigns and their store, hourly snapshots.

Invariant: a process that never decided reports nothing about reigns. Each report has the token of its reign, so that
reports of a process that continued after it was replaced can be recognized.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.core.control.state import ClusterState
from strandline.core.control.step_parts import partition_snapshot
from strandline.core.log.effects import Emit
from strandline.core.messages import Heartbeat
from strandline.core.reigns.effects import Why
from strandline.core.state_events import ClockSample, ControllerReign, Store
from strandline.core.types import NodeId

# ---- clock_samples
# The controller reports the offset between each node's clock and its own, once in `EVERY_MS` per node.
#
# The node measures the offset with its heartbeats, to within half a round trip; no decision depends on it.

EVERY_MS = 30_000


class ClockSamples:
    """Remembers when each node's clock was last reported. Not stored: a new reign reports all of them again."""

    def __init__(self) -> None:
        self._reported_ms: dict[NodeId, int] = {}

    def __call__(self, beat: Heartbeat, now_ms: int) -> ClockSample | None:
        """The report of the measurement in a heartbeat; None without one, or if one was reported recently."""
        if beat.clock_offset_us is None or beat.clock_err_us is None:
            return None
        last_ms = self._reported_ms.get(beat.node_id)
        if last_ms is not None and now_ms - last_ms < EVERY_MS:
            return None
        self._reported_ms[beat.node_id] = now_ms
        return ClockSample(beat.node_id, offset_us=beat.clock_offset_us, err_us=beat.clock_err_us)


class ReignReports:
    """Makes the reports about the reigns of one process, one reign after the other."""

    def __init__(self, controller_id: str) -> None:
        self._controller_id = controller_id
        self._token = 0
        self._reign_id = ""
        self._is_open = False
        self._cause = "key_free"
        self._is_leaving = False

    def key_taken(self, was_taken: bool) -> None:
        """Note whether this process has taken the key from a dead controller."""
        self._cause = "key_taken" if was_taken else "key_free"

    def hand_over_asked(self) -> None:
        """Note that an administrator, or the stop of the process, asked for a hand-over."""
        self._is_leaving = True

    def core_started(self, token: int, reign_id: str) -> None:
        """Note the beginning of a reign, which decides once its first transaction is stored."""
        self._token, self._reign_id, self._is_open, self._is_leaving = token, reign_id, False, False

    def opened(self, closed_ms: int, offset: int | None) -> ControllerReign | Store:
        """The report that the reign decides from now on: for the first time, or again after ``closed_ms``."""
        if self._is_open:
            return Store("back", "answers", self._controller_id, self._token, closed_ms, offset)
        self._is_open = True
        cause, self._cause = self._cause, "key_free"
        return ControllerReign("begin", cause, self._controller_id, self._token, self._reign_id, offset)

    def closed(self, why: Why, offset: int | None) -> Store | None:
        """The report that the reign decides nothing because of its store; None if there is nothing to report."""
        if not self._is_open or why is Why.STANDBY:
            return None
        phase, cause = ("full", "no_space") if why is Why.STORE_FULL else ("away", "unanswered")
        return Store(phase, cause, self._controller_id, self._token, None, offset)

    def dropped(self, *, is_stopped: bool, offset: int | None) -> ControllerReign | None:
        """The report that the reign is over; ``is_stopped``: because the store cannot be trusted."""
        if not self._is_open:
            return None
        self._is_open = False
        cause = "store_went_back" if is_stopped else "hand_over" if self._is_leaving else "deposed"
        return ControllerReign("end", cause, self._controller_id, self._token, self._reign_id, offset)

    def went_back(self, offset: int | None) -> Store | None:
        """The report that the store has less than this process has seen, or is damaged."""
        if not self._reign_id:
            return None
        return Store("went_back", "older_than_seen", self._controller_id, self._token, None, offset)


# ---- snapshots
# The controller's full state of every partition, in rows.
#
# The process, which knows the time of day, requests it at its start and at the start of each hour.


def cluster_snapshots(state: ClusterState) -> Iterator[Emit]:
    """One snapshot of each partition."""
    for image in state.partitions():
        yield partition_snapshot(image, meta_offset=state.header.metadata_offset)
