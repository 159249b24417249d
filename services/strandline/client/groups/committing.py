"""One commit of a group at a time: what comes while one is under way goes with the next (G31).

Invariants: at most one commit of a consumer is under way, so a repeated one never overtakes a later one; each
caller that asked for a commit gets the outcome of a request that had its positions, or later ones, in it. A commit
names the epoch that its member had when it was asked for: a member that lost a partition meanwhile and has it again
must not commit what it had read before, over what another committed in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from strandline.client.background import Background
from strandline.client.consume.cursor import Cursor
from strandline.client.consume.fetching import Fetching
from strandline.client.errors import CommitFailed
from strandline.client.groups.committed_offsets import AsMember, OffsetAndMetadata
from strandline.client.records import TopicPartition
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.types import Offset

Positions = dict[TopicPartition, OffsetAndMetadata]
Send = Callable[[Positions, AsMember | None], Awaitable[dict[TopicPartition, Refusal]]]
"""Commits as this member; returns the partitions that were refused."""
Done = Callable[[Positions, CommitFailed | None], None]
_CUT_OFF = Refusal(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed meanwhile", Outcome.MAY_APPEAR)
_NOT_SENT = Refusal(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed before", Outcome.NOT_APPENDED)

NO_REFUSALS: Mapping[TopicPartition, Refusal] = MappingProxyType({})


class _Asked(NamedTuple):
    offsets: Positions
    done: Done | None
    member: AsMember | None
    refused: Mapping[TopicPartition, Refusal]


class Commits:
    """The commits of one consumer."""

    def __init__(
        self, group_id: str, send: Send, background: Background, member: Callable[[], AsMember | None]
    ) -> None:
        self._group_id = group_id
        self._send = send
        self._member = member
        self._background = background
        self._asked: list[_Asked] = []
        self._is_sending = False

    def add(
        self, offsets: Positions, done: Done | None, refused: Mapping[TopicPartition, Refusal] = NO_REFUSALS
    ) -> None:
        """Commit these except for ``refused``; ``done`` is called once, when it is known what became of it."""
        self._asked.append(_Asked(offsets, done, self._member(), refused))
        if not self._is_sending:
            self._is_sending = True
            # Not begun again after a cancellation: by then everything that was asked for has its answer.
            self._background.start(self._send_all, "commit offsets", once=True)

    async def _send_all(self) -> None:
        try:
            while self._asked:
                # Only commits of one epoch are merged, because a request names one and is judged by it (G20).
                member, first = next(groupby(self._asked, lambda one: one.member))
                asked = list(first)
                self._asked = self._asked[len(asked) :]
                merged: Positions = {}
                for one in asked:
                    merged |= {tp: position for tp, position in one.offsets.items() if tp not in one.refused}
                # What is reported if this task is cancelled in the middle of the request.
                failed = dict.fromkeys(merged, _CUT_OFF)
                try:
                    failed = await self._send(merged, member) if merged else {}
                finally:
                    self._tell(asked, failed)
        finally:
            self._is_sending = False
            rest, self._asked = self._asked, []
            for one in rest:
                self._tell([one], dict.fromkeys(one.offsets, _NOT_SENT))

    def _tell(self, asked: list[_Asked], failed: Mapping[TopicPartition, Refusal]) -> None:
        for one in asked:
            if one.done is not None:
                one.done(one.offsets, self._failure(one.offsets, {**failed, **one.refused}))

    def _failure(self, offsets: Positions, failed: Mapping[TopicPartition, Refusal]) -> CommitFailed | None:
        refused = {tp: failed[tp] for tp in offsets if tp in failed}
        return CommitFailed(self._group_id, refused) if refused else None


# ---- older_assignments
# Which positions rest on records that were given before their partition was lost (G20, X18).
#
# They are not this consumer's to commit, even when the partition has come back: another member may have worked on the
# same records, and beyond. The member's epoch does not show it, for a newer one covers the partition from when it came
# back (KIP-1251). A position is this consumer's again once the record below it has been given again.

Superseded = tuple[tuple[TopicPartition, range], ...]
"""Positions (offsets to read next) right behind records that were given before their partition was lost, not since."""

_NONE = range(0)


class _Ended(NamedTuple):
    positions: Sequence[range]
    committed: Offset | None
    """What this consumer had committed when it lost the partition, if that was all that it was given."""


class OlderAssignments:
    """What one consumer was given under assignments that have ended."""

    def __init__(self, fetching: Fetching) -> None:
        self._fetching = fetching
        # Of each partition that is read, the lowest offset that was given since it was assigned, or since it moved.
        self._first: dict[Cursor, Offset] = {}
        # Positions behind what was given since it was assigned and before it moved, and those between.
        self._before_moves: dict[Cursor, range] = {}
        self._ended: dict[TopicPartition, _Ended] = {}

    def gave(self, cursor: Cursor, first: Offset) -> None:
        """Records from this offset up to the position are given."""
        self._first[cursor] = min(first, self._first.get(cursor, first))

    def moved(self, cursor: Cursor) -> None:
        """The position is about to go elsewhere; what was given stays given."""
        given, tp = self._given(cursor), cursor.name
        self._first.pop(cursor, None)
        if given:
            self._before_moves[cursor] = _hull([given, self._before_moves.get(cursor, _NONE)])
        if tp in self._ended:
            ended = self._ended[tp]
            self._ended[tp] = ended._replace(positions=_without(ended.positions, given))

    def taken_away(self, cursor: Cursor, committed: Offset | None) -> None:
        """The partition is lost; ``committed`` is where, if all that was given is committed."""
        given, tp = _hull([self._given(cursor), self._before_moves.pop(cursor, _NONE)]), cursor.name
        self._first.pop(cursor, None)
        if given:
            older = self._ended[tp].positions if tp in self._ended else ()
            # One range each, however often a partition moves; what lies between was another member's.
            self._ended[tp] = _Ended([_hull([*older, given])], committed)

    def superseded(self) -> Superseded:
        """The positions that are not this consumer's now."""
        read = self._fetching.cursors
        for cursor in [one for one in self._first if read.get(one.tp) is not one]:
            # A blocking consumer says what was taken from it when it calls next, after the loss perhaps.
            self.taken_away(cursor, None)
        present = {cursor.name: cursor for cursor in read.values()}
        return tuple(
            (tp, each)
            for tp, ended in self._ended.items()
            for each in _without(ended.positions, self._own(present.get(tp), ended.committed))
        )

    def refusals(self, offsets: Positions) -> dict[TopicPartition, Refusal]:
        """Why some of these are not committed outside of a transaction, by partition."""
        # A commit of the current position changes nothing, even if another member has worked on the record below it.
        standing = {cursor.name: cursor.position for cursor in self._fetching.cursors.values()}
        return refusals({tp: one for tp, one in offsets.items() if one.offset != standing.get(tp)}, self.superseded())

    def _given(self, cursor: Cursor) -> range:
        """The positions behind what was given since the last move."""
        first, position = self._first.get(cursor), cursor.position
        return _NONE if first is None or position is None else range(first + 1, position + 1)

    def _own(self, cursor: Cursor | None, committed: Offset | None) -> range:
        if cursor is None or cursor.position is None:
            return _NONE
        first = self._first.get(cursor, cursor.position)
        # No consumer has worked beyond what this one had committed: its position stays.
        return range(first if first == committed else first + 1, cursor.position + 1)


def refusals(offsets: Positions, superseded: Superseded) -> dict[TopicPartition, Refusal]:
    """Why some of these positions are not committed, by partition."""
    return {
        tp: _refusal(tp, offsets[tp].offset)
        for tp, positions in superseded
        if tp in offsets and offsets[tp].offset in positions
    }


def _refusal(tp: TopicPartition, position: Offset) -> Refusal:
    message = (
        f"the records below offset {position} of {tp.topic}-{tp.partition} were given before the partition was lost, "
        "and another member may have worked on them; poll again and commit what is given then"
    )
    return Refusal(ErrorCode.STALE_MEMBER_EPOCH, message, Outcome.NOT_APPENDED)


def _hull(parts: Iterable[range]) -> range:
    some = [one for one in parts if one]
    return range(min(one.start for one in some), max(one.stop for one in some)) if some else _NONE


def _without(parts: Iterable[range], cut: range) -> list[range]:
    if not cut:
        return list(parts)
    sides = (
        side
        for one in parts
        for side in (range(one.start, min(one.stop, cut.start)), range(max(one.start, cut.stop), one.stop))
    )
    return [side for side in sides if side]
