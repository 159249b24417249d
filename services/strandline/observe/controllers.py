"""What controllers report: samples of clocks, reigns, snapshots of each hour.

Which state events tell of the reigns of one controller among several, and of their store.

Invariant: nothing is reported of a process that never decided; a report carries the token of the reign that it is
about, so that the words of a process that went on after it was replaced are known as such.
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
# How often the controller reports how far a node's clock is from its own: once in `EVERY_MS` per node.
#
# The node measures it by its heartbeats, within half a round trip; no decision depends on it.

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


class ReignReports:
    """Of one process; it tells of one reign after the other."""

    def __init__(self, controller_id: str) -> None:
        self._controller_id = controller_id
        self._token = 0
        self._reign_id = ""
        self._is_open = False
        self._cause = "key_free"
        self._is_leaving = False

    def key_taken(self, was_taken: bool) -> None:
        """This process took the key from a dead controller, or did not get it after all."""
        self._cause = "key_taken" if was_taken else "key_free"

    def hand_over_asked(self) -> None:
        """An administrator, or its own stop, asked it to decide no more."""
        self._is_leaving = True

    def core_started(self, token: int, reign_id: str) -> None:
        """A reign begins; it decides once its first transaction is stored."""
        self._token, self._reign_id, self._is_open, self._is_leaving = token, reign_id, False, False

    def opened(self, closed_ms: int, offset: int | None) -> ControllerReign | Store:
        """It decides from now on: for the first time, or again after ``closed_ms``."""
        if self._is_open:
            return Store("back", "answers", self._controller_id, self._token, closed_ms, offset)
        self._is_open = True
        cause, self._cause = self._cause, "key_free"
        return ControllerReign("begin", cause, self._controller_id, self._token, self._reign_id, offset)

    def closed(self, why: Why, offset: int | None) -> Store | None:
        """It decides nothing while the store is so."""
        if not self._is_open or why is Why.STANDBY:
            return None
        phase, cause = ("full", "no_space") if why is Why.STORE_FULL else ("away", "unanswered")
        return Store(phase, cause, self._controller_id, self._token, None, offset)

    def dropped(self, *, is_stopped: bool, offset: int | None) -> ControllerReign | None:
        """The reign is over; ``is_stopped``: because the store cannot be believed."""
        if not self._is_open:
            return None
        self._is_open = False
        cause = "store_went_back" if is_stopped else "hand_over" if self._is_leaving else "deposed"
        return ControllerReign("end", cause, self._controller_id, self._token, self._reign_id, offset)

    def went_back(self, offset: int | None) -> Store | None:
        """The store has less than this process has seen, or is damaged."""
        if not self._reign_id:
            return None
        return Store("went_back", "older_than_seen", self._controller_id, self._token, None, offset)


# ---- snapshots
# The full state of every partition as the controller keeps it, in rows.
#
# The shell, which knows the time of day, asks for it at its start and at the start of each hour.


def cluster_snapshots(state: ClusterState) -> Iterator[Emit]:
    """What the controller keeps of each partition."""
    for image in state.partitions():
        yield partition_snapshot(image, meta_offset=state.header.metadata_offset)
