"""What a member of a group says in its heartbeats, and what it takes from the answers (KIP-848, G17 to G22).

Invariants: it reports a partition as held until the user has finished with it; it works on its partitions only while
its lease runs: 0.9 of its session from the moment it sent the last heartbeat that was answered. By then the
coordinator cannot have given them to another member, as long as both clocks run within 10 % of each other.

No clock and no connection in here: times are ms of the caller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from strandline.core.errors import ErrorCode
from strandline.core.types import TopicPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_RESTART_EPOCH = -2
"""A static member leaves so: its partitions wait for it until its session ends."""

_LEASE_SHARE = 0.9
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Subscription(NamedTuple):
    """What a member wants to read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """RE2, matched against whole names by the coordinator (G23)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTerms:
    """What a member says of itself when it joins; durations in ms."""

    member_id: str
    instance_id: str | None
    rack: str | None
    assignor: str
    session_timeout_ms: int
    rebalance_timeout_ms: int


class Heartbeat(NamedTuple):
    """One heartbeat; None leaves what the member said before."""

    member_epoch: int
    sequence: int
    joins: Subscription | None
    """With a join, and with a subscription that changed."""
    held: frozenset[TopicPartition] | None


class Confirmed(NamedTuple):
    """An answer to a heartbeat."""

    member_epoch: int
    interval_ms: int
    session_timeout_ms: int
    assignment: frozenset[TopicPartition] | None
    """None: as before."""


class Moves(NamedTuple):
    """What an answer changes."""

    revoked: frozenset[TopicPartition]
    """To be given up, once the user has finished with them."""
    assigned: frozenset[TopicPartition]
    """To be read from now on."""


class HeartbeatVerdict(Enum):
    """What a rejected heartbeat means."""

    REJOIN = auto()
    """The partitions belong to another member by now; join again with the same id (G19)."""
    WAIT = auto()
    """Ask again later: another process still has this instance id."""
    FATAL = auto()
    """Asking again cannot help; the user has to change something."""


class Member:
    """One member of one group."""

    def __init__(self, terms: MemberTerms, subscription: Subscription) -> None:
        self.terms = terms
        self.subscription = subscription
        self.epoch = JOIN_EPOCH
        self.interval_ms = 0
        self.session_timeout_ms = terms.session_timeout_ms
        self._sequence = 0
        # Everything that was assigned and not yet given up.
        self._held: frozenset[TopicPartition] = frozenset()
        self._revoking: frozenset[TopicPartition] = frozenset()
        self._gave_up = False
        # What the coordinator was last heard to know of `_held`, and of the subscription.
        self._reported: frozenset[TopicPartition] | None = None
        self._subscribed: Subscription | None = None
        self._lease_end_ms = 0.0

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has confirmed a join that it has not ended since."""
        return self.epoch > JOIN_EPOCH

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What is assigned and not being given up."""
        return self._held - self._revoking

    @property
    def held(self) -> frozenset[TopicPartition]:
        """What is owned, and what is being given up."""
        return self._held

    @property
    def has_news(self) -> bool:
        """Whether the coordinator should hear of something before the next interval is over."""
        return self.is_member and (self._gave_up or self._subscribed != self.subscription)

    def has_lease(self, now_ms: float) -> bool:
        """Whether the partitions may be worked on (G22)."""
        return now_ms < self._lease_end_ms

    def subscribe(self, subscription: Subscription) -> None:
        """Want something else; the next heartbeat says so."""
        self.subscription = subscription

    def heartbeat(self) -> Heartbeat:
        """The next heartbeat; every call takes the next sequence number, so each sending needs one of its own."""
        self._sequence += 1
        if not self.is_member:
            return Heartbeat(JOIN_EPOCH, self._sequence, self.subscription, frozenset())
        said = None if self._subscribed == self.subscription else self.subscription
        # What is being given up is said again with every heartbeat until it is not held any more: an answer that was
        # lost may have been the one that knew of it.
        held = None if self._reported == self._held and not self._revoking else self._held
        return Heartbeat(self.epoch, self._sequence, said, held)

    def leave(self, *, for_a_restart: bool) -> Heartbeat:
        """The last heartbeat."""
        self._sequence += 1
        is_static = for_a_restart and self.terms.instance_id is not None
        return Heartbeat(LEAVE_FOR_A_RESTART_EPOCH if is_static else LEAVE_EPOCH, self._sequence, None, None)

    def confirmed(self, sent: Heartbeat, sent_ms: float, answer: Confirmed) -> Moves:
        """A heartbeat that was sent at ``sent_ms`` was answered."""
        self.epoch = answer.member_epoch
        self.interval_ms, self.session_timeout_ms = answer.interval_ms, answer.session_timeout_ms
        # From the sending: the coordinator counts from the receipt, which is later, so the lease ends first (G22).
        self._lease_end_ms = max(self._lease_end_ms, sent_ms + _LEASE_SHARE * answer.session_timeout_ms)
        if sent.joins is not None:
            self._subscribed = sent.joins
        if sent.held is not None:
            self._reported = sent.held
            self._gave_up = self._gave_up and not sent.held <= self._held
        if answer.assignment is None:
            return Moves(frozenset(), frozenset())
        revoked = self.owned - answer.assignment
        # What is being given up and is assigned again is given up first, and comes back with a later answer.
        assigned = answer.assignment - self._held
        self._held |= assigned
        self._revoking |= revoked
        return Moves(revoked, assigned)

    def unanswered(self) -> None:
        """A heartbeat may or may not have been taken: the next one says everything again (G19)."""
        self._reported = self._subscribed = None

    def given_up(self, partitions: Collection[TopicPartition]) -> None:
        """The user has finished with these."""
        self._held -= frozenset(partitions)
        self._revoking -= frozenset(partitions)
        self._gave_up = True

    def rejected(self, code: ErrorCode) -> HeartbeatVerdict:
        """A heartbeat was rejected for good, and not because the coordinator moves or loads."""
        if code in _FENCED:
            self.lose()
            return HeartbeatVerdict.REJOIN
        return HeartbeatVerdict.WAIT if code is ErrorCode.UNRELEASED_INSTANCE_ID else HeartbeatVerdict.FATAL

    def lose(self) -> frozenset[TopicPartition]:
        """Nothing is held any more; returns what was. The next heartbeat joins."""
        lost, self._held, self._revoking = self._held, frozenset(), frozenset()
        self.epoch, self._reported, self._subscribed, self._lease_end_ms = JOIN_EPOCH, None, None, 0.0
        self._gave_up = False
        return lost
