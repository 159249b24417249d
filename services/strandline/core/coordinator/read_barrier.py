"""Decides when this node knows that it still led at some moment: read barriers of one leader epoch (G10).

A barrier is a number that Fetch answers of the partition carry and that a follower repeats in its next Fetch. Who
repeats it had not begun to lead when the barrier began, so what this leader had committed until then was the newest.
That a Fetch merely arrived since proves nothing: it may have been sent before its sender was elected (TR40).
"""

from __future__ import annotations

from strandline.core.leader import LeaderReplica

INTERVAL_MS = 100
"""The least time between the beginnings of two barriers; the requests that come meanwhile share the next one."""


class ReadBarrier:
    """The barriers of one led partition. `LeaderReplica.barrier` is the newest that has begun."""

    def __init__(self, leader: LeaderReplica) -> None:
        self._leader = leader
        self._begun = 0
        self._is_new = False
        self._begun_at_ms: int | None = None
        self._wanted = 0
        self.passed = 0
        """All barriers up to this one have passed."""

    def wait_number(self, now_ms: int) -> int:
        """The barrier that a request that comes now waits for: the next to begin."""
        self._wanted = self._begun + 1
        self.maybe_begin(now_ms)
        return self._wanted

    def maybe_begin(self, now_ms: int) -> bool:
        """Begin the barrier that is waited for, if the last one is old enough. Returns whether one began."""
        if self._wanted <= self._begun:
            return False
        if self._begun_at_ms is not None and now_ms - self._begun_at_ms < INTERVAL_MS:
            return False
        self._begun, self._begun_at_ms = self._wanted, now_ms
        self._leader.barrier = self._begun
        self._is_new = True
        return True

    @property
    def has_begun(self) -> bool:
        """Whether `take_begun` would say so."""
        return self._is_new

    def take_begun(self) -> bool:
        """Whether a barrier began since this was asked last: parked fetches of replicas carry it back at once."""
        is_new, self._is_new = self._is_new, False
        return is_new

    def look(self) -> bool:
        """Whether a barrier has passed since this was asked last: every other replica that could be elected repeated
        it. None but a member of the ISR, as it may be by now, or of the ELR can be."""
        leader = self._leader
        others = (leader.isr.maximal | set(leader.image.elr)) - {leader.node_id}
        passed = self._begun
        for node_id in others:
            follower = leader.progress.get(node_id)
            passed = min(passed, follower.barrier_seen if follower is not None else 0)
        if passed <= self.passed:
            return False
        self.passed = passed
        return True
