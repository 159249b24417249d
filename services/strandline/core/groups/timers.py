"""What a coordinator remembers of members outside its log: deadlines and sequences (G19, G21).

Invariant: none of it survives the shard, and none has to: a new coordinator gives every member its full time (G8) and
has a new epoch, in which sequences begin again.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from strandline.core.groups.records import CurrentValue
from strandline.core.types import value

Member = tuple[str, str]
"""Group id and member id."""


@value
class HeartbeatTaken:
    """Note of an accepted heartbeat; ``session_timeout_ms`` is None if the session ends."""

    group_id: str
    member_id: str
    session_timeout_ms: int | None
    sequence: int | None
    replaces: str | None = None
    """The member that this one replaces."""


@dataclass(frozen=True, slots=True)
class CommitTaken:
    """Note of a member's accepted commit."""

    group_id: str
    member_id: str
    sequence: int | None


@dataclass(frozen=True, slots=True)
class RevocationAsked:
    """Note of an answer that asks a member to give up what ``row`` says."""

    group_id: str
    member_id: str
    row: CurrentValue
    rebalance_timeout_ms: int


class Timers:
    """Sessions, rebalance time-outs and sequences of the members of one shard."""

    def __init__(self, forgotten_after_ms: int) -> None:
        self.session_ends: dict[Member, int] = {}
        self.rebalance_ends: dict[Member, tuple[CurrentValue, int]] = {}
        """Until when a member must have given up what that row says."""
        self.last_heartbeat_ms: dict[Member, int] = {}
        self.last_commit_ms: dict[Member, int] = {}
        self._heartbeat_sequences: dict[Member, int] = {}
        self._commit_sequences: dict[Member, int] = {}
        self._gone_since_ms: dict[Member, int] = {}
        self._forgotten_after_ms = forgotten_after_ms
        self._heap: list[tuple[int, Member]] = []

    def is_late_heartbeat(self, member: Member, sequence: int | None) -> bool:
        """Whether this heartbeat, or a later one, was accepted before."""
        return sequence is not None and sequence <= self._heartbeat_sequences.get(member, -1)

    def is_late_commit(self, member: Member, sequence: int | None) -> bool:
        """As `is_late_heartbeat`, for commits."""
        return sequence is not None and sequence <= self._commit_sequences.get(member, -1)

    def heartbeat(self, note: HeartbeatTaken, now_ms: int) -> None:
        """A heartbeat was taken: the session begins again. Not only when it is answered: the client's lease counts
        from when it was sent, so the session ends later than the lease either way."""
        member = (note.group_id, note.member_id)
        if note.sequence is not None:
            self._heartbeat_sequences[member] = note.sequence
        if note.replaces is not None:
            self.gone((note.group_id, note.replaces), now_ms)
        if note.session_timeout_ms is None:
            self.gone(member, now_ms)
            return
        self._gone_since_ms.pop(member, None)
        self.last_heartbeat_ms[member] = now_ms
        self.begin_session(member, now_ms + note.session_timeout_ms)

    def begin_session(self, member: Member, end_ms: int) -> None:
        """The member's session ends at ``end_ms`` unless it sends a heartbeat."""
        is_watched = member in self.session_ends
        self.session_ends[member] = end_ms
        # One entry for each member: `due` moves it to the new end, and one for each heartbeat would make the heap grow.
        if not is_watched:
            heappush(self._heap, (end_ms, member))

    def commit(self, note: CommitTaken, now_ms: int) -> None:
        """A member's commit was taken."""
        member = (note.group_id, note.member_id)
        self.last_commit_ms[member] = now_ms
        if note.sequence is not None:
            self._commit_sequences[member] = note.sequence

    def asked(self, note: RevocationAsked, now_ms: int) -> None:
        """An answer was sent that asks for partitions; the member's time starts with the first such answer."""
        member = (note.group_id, note.member_id)
        known = self.rebalance_ends.get(member)
        if known is None or known[0] != note.row:
            self.begin_rebalance(member, note.row, now_ms + note.rebalance_timeout_ms)

    def begin_rebalance(self, member: Member, row: CurrentValue, end_ms: int) -> None:
        """The member must have given up what ``row`` says by ``end_ms``."""
        self.rebalance_ends[member] = (row, end_ms)
        heappush(self._heap, (end_ms, member))

    def gone(self, member: Member, now_ms: int) -> None:
        """Drop the member's deadlines. Its sequences stay for a while: a late copy of its join would make it a member
        again."""
        self.session_ends.pop(member, None)
        self.rebalance_ends.pop(member, None)
        self.last_heartbeat_ms.pop(member, None)
        self.last_commit_ms.pop(member, None)
        if member in self._heartbeat_sequences or member in self._commit_sequences:
            self._gone_since_ms.pop(member, None)
            self._gone_since_ms[member] = now_ms

    def due(self, now_ms: int) -> list[Member]:
        """The members with a deadline that may have passed, in order, each once; they stay watched."""
        found: dict[Member, None] = {}
        again: dict[Member, int] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            member = heappop(self._heap)[1]
            session_end = self.session_ends.get(member)
            rebalance = self.rebalance_ends.get(member)
            ends = [end for end in (session_end, rebalance[1] if rebalance else None) if end is not None]
            if any(end <= now_ms for end in ends):
                found[member] = None
            if ends:
                again[member] = max(now_ms + 1, min(ends))
        # Each once, so that entries that are due together become one: every revocation adds one.
        for member, at_ms in again.items():
            heappush(self._heap, (at_ms, member))
        self._forget(now_ms)
        return list(found)

    def _forget(self, now_ms: int) -> None:
        # Insertion order is that of the times.
        while self._gone_since_ms:
            member, since_ms = next(iter(self._gone_since_ms.items()))
            if now_ms - since_ms < self._forgotten_after_ms:
                return
            del self._gone_since_ms[member]
            self._heartbeat_sequences.pop(member, None)
            self._commit_sequences.pop(member, None)
