"""Decides when a standby takes the election key of an active controller whose process is gone (C19, C20).

Invariant: a refused connection counts only after this standby's own stream to that very reign broke, since a proxy
without a backend refuses for a live controller, too; and at most one key in ten seconds is taken on such grounds. A
wrong taking costs a take-over, never an epoch: the store refuses the writes of the old token (C7).
"""

from __future__ import annotations

from strandline.core.lease import ReignTimings
from strandline.core.reign_events import Holder, Look


class KeyTaking:
    """What one standby has seen of the active controller."""

    def __init__(self, controller_id: str, incarnation_id: str, timings: ReignTimings) -> None:
        self._controller_id = controller_id
        self._incarnation_id = incarnation_id
        self._timings = timings
        self._broken_token: int | None = None
        self._looks = 0
        self._next_look_ms = 0
        self._refused_token: int | None = None
        self._taken_ms: int | None = None
        self._taken_token: int | None = None

    def lost(self, token: int, now_ms: int) -> None:
        """The stream to the active controller of ``token`` broke: look at it at once."""
        self._broken_token, self._looks, self._next_look_ms = token, 0, now_ms
        self._refused_token = None

    def look_due(self, holder: Holder | None, now_ms: int) -> bool:
        """Whether to look at the holder now."""
        return (
            holder is not None
            and holder.token == self._broken_token
            and self._refused_token is None
            and self._looks < self._timings.looks
            and now_ms >= self._next_look_ms
        )

    def looked(self, look: Look, now_ms: int) -> None:
        """A look ended."""
        self._looks += 1
        self._next_look_ms = now_ms + self._timings.look_every_ms
        if look is Look.REFUSED:
            self._refused_token = self._broken_token
        elif look is Look.REACHED:
            self._broken_token = None

    def may_take(self, holder: Holder, now_ms: int) -> bool:
        """Whether the key of ``holder`` is to be taken."""
        if self.is_former_self(holder):
            return True
        if holder.token != self._refused_token:
            return False
        return self._taken_ms is None or now_ms - self._taken_ms >= self._timings.take_key_every_ms

    def is_former_self(self, holder: Holder) -> bool:
        """Whether the holder is an earlier process of this controller: its directory's lock proves that one gone."""
        return holder.controller_id == self._controller_id and holder.incarnation_id != self._incarnation_id

    def took(self, holder: Holder, now_ms: int) -> None:
        """The key of ``holder`` is being taken; it is tried once per sight of a refusal."""
        if not self.is_former_self(holder):
            self._taken_ms, self._taken_token = now_ms, holder.token
            self._broken_token = self._refused_token = None

    def took_nothing(self, token: int) -> None:
        """That key was not taken: another standby was first, or the store is full. The next may be taken at once."""
        if token == self._taken_token:
            self._taken_ms = None
