"""Which state events tell of the reigns of one controller among several, and of their store.

Invariant: nothing is reported of a process that never decided; a report carries the token of the reign that it is
about, so that the words of a process that went on after it was replaced are known as such.
"""

from __future__ import annotations

from strandline.core.reign_effects import Why
from strandline.core.state_events import ControllerReign, Store


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
        """Somebody asked it to decide no more."""
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
