"""Decides when a controller's lease is requested and renewed, and when a reign may no longer rely on it.

Invariant: the time of a lease counts from the moment at which its grant or renewal was *sent*, so that it never ends
at the store before it is `late` here, however long the answer took or this process was stopped (C14).
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.reigns.events import ActiveProbe, Holder

# etcd makes a shorter lease as long as this.
LEAST_LEASE_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReignTimings:
    """Durations in ms and limits of one controller among several."""

    lease_ms: int = 3_000
    unsure_before_ms: int = 500
    """So long before the end of its lease a reign stops serving."""
    read_store_every_ms: int = 1_000
    """A standby's lag, and an active's token, are at most this old (C17)."""
    look_every_ms: int = 50
    looks: int = 5
    """How often a standby looks at an active controller whose stream broke (C19)."""
    take_key_every_ms: int = 10_000
    """At most one key is taken from a controller that refused connections in this time."""
    successor_wait_ms: int = 200
    """How long others leave the key to the successor that was named (C22)."""
    backoff_ms: int = 100
    """First wait after a question to the store failed; doubles up to `backoff_max_ms`."""
    backoff_max_ms: int = 1_000
    hand_over_ms: int = 1_000
    """How long a hand-over waits for what is being appended."""

    def __post_init__(self) -> None:
        if self.lease_ms < LEAST_LEASE_MS:
            raise ValueError(
                f"reign_lease_s must be at least {LEAST_LEASE_MS // 1000}: etcd grants no shorter lease; "
                f"it is {self.lease_ms / 1000:g}"
            )


class Lease:
    """The lease of one process."""

    def __init__(self, timings: ReignTimings) -> None:
        self._timings = timings
        self.lease_id: int | None = None
        self.late_at_ms = 0
        """From then on the lease may have ended."""
        self._next_ms = 0
        self._backoff_ms = timings.backoff_ms

    def is_live(self, now_ms: int) -> bool:
        """Whether the store surely holds the lease, for a little longer."""
        return self.lease_id is not None and now_ms < self.late_at_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to ask for a lease, or to renew it."""
        return now_ms >= self._next_ms

    def granted(self, lease_id: int, sent_ms: int) -> None:
        """The store granted a lease."""
        self.lease_id = lease_id
        self.renewed(sent_ms)

    def renewed(self, sent_ms: int) -> None:
        """The store renewed the lease."""
        # The store counts from after the sending, so the lease never ends there before it is late here (C14).
        self.late_at_ms = max(self.late_at_ms, sent_ms + self._timings.lease_ms - self._timings.unsure_before_ms)
        # After a third of it, so that a renewal that is lost can be repeated before the lease is late.
        self._next_ms = sent_ms + self._timings.lease_ms // 3
        self._backoff_ms = self._timings.backoff_ms

    def failed(self, now_ms: int) -> None:
        """The request was not answered, or no lease is available now."""
        self._next_ms = now_ms + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, self._timings.backoff_max_ms)

    def gone(self, now_ms: int) -> None:
        """The store no longer has the lease, or it was revoked."""
        self.lease_id = None
        self.late_at_ms = 0
        self._next_ms = now_ms


# ---- key_taking
# Decides when a standby takes the election key of an active controller whose process is gone (C19, C20).
#
# Invariant: a refused connection counts only after this standby's own stream to that very reign broke, since a proxy
# without a backend refuses for a live controller, too; and at most one key in ten seconds is taken on such grounds. A
# wrong taking costs a take-over, never an epoch: the store refuses the writes of the old token (C7).


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

    def looked(self, look: ActiveProbe, now_ms: int) -> None:
        """A look ended."""
        self._looks += 1
        self._next_look_ms = now_ms + self._timings.look_every_ms
        # A silent address shows nothing, for the network may be cut: only the end of its lease ends that reign (C19).
        if look is ActiveProbe.REFUSED:
            self._refused_token = self._broken_token
        elif look is ActiveProbe.REACHED:
            self._broken_token = None

    def may_take(self, holder: Holder, now_ms: int) -> bool:
        """Whether to take the key of ``holder``."""
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
