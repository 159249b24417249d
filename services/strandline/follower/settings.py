"""Decides how a follower talks to leaders: deadlines and back-off of its connections.

Invariant: every question has a deadline, and a broken stream is dialled again no faster than the back-off.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.rpc.channels import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Durations in ms."""

    question_deadline_ms: int = 5_000
    """Deadline of OffsetForLeaderEpoch and ListOffsets."""
    reconnect_backoff_ms: int = 20
    reconnect_backoff_max_ms: int = 1_000
    ping_every_ms: int = 2_000
    ping_timeout_ms: int = 2_000
    """A leader that does not answer a ping for so long is given up, though its kernel still acks TCP."""

    def backoff(self) -> Backoff:
        """The waits between one stream to a leader and the next."""
        return Backoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms)
