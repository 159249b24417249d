"""What a consumer of a group commits, and when: by itself only what was given before the present step (U4).

Invariant: what is in hand, given by the last `poll` or step of iteration, is never committed by itself; after a crash
it is given again. An explicit commit without offsets takes it in, for the user says that it has been worked on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from strandline.client.background import Background
from strandline.client.consume.cursor import Cursor
from strandline.client.consume.fetching import Fetching
from strandline.client.errors import CommitFailed
from strandline.client.groups.committed_offsets import AsMember, CommittedOffsets, OffsetAndMetadata
from strandline.client.groups.committing import NO_REFUSALS, Commits, Done, OlderAssignments, Positions, Superseded
from strandline.client.log import log
from strandline.client.records import ConsumerRecord, TopicPartition
from strandline.core import types
from strandline.core.errors import Refusal
from strandline.core.types import Offset


class GivenUncommitted(NamedTuple):
    """What was given and is not committed, by this consumer."""

    positions: Positions
    """Behind what was given, of partitions that are still read."""
    lost: tuple[TopicPartition, ...]
    """Partitions that are read no more."""


class GroupCommits:
    """The commits of one consumer that has a group."""

    def __init__(
        self,
        offsets: CommittedOffsets,
        fetching: Fetching,
        background: Background,
        *,
        timeout_ms: int,
        on_committed: Callable[[Positions], None] = lambda _: None,
    ) -> None:
        """``timeout_ms``: how long a commit is asked for again before it has failed.

        ``on_committed`` is called with what each commit has committed.
        """
        self._on_committed = on_committed
        self._offsets = offsets
        self._fetching = fetching
        self._timeout_ms = timeout_ms
        self._commits = Commits(offsets.group_id, self._send, background, lambda: offsets.member())
        self._hand: dict[Cursor, Offset] = {}
        self._given: set[Cursor] = set()
        # Of each that something uncommitted was given of, the first offset of that; for transactions.
        self._uncommitted: dict[Cursor, Offset] = {}
        # Partitions that were taken away with something uncommitted; for transactions.
        self._lost: set[TopicPartition] = set()
        self._older = OlderAssignments(fetching)
        # What was asked for by itself last, so that a consumer at rest commits nothing.
        self._newest: dict[TopicPartition, Offset] = {}
        self._stepped = asyncio.Event()
        self.may_commit: Callable[[], bool] = lambda: True
        """Whether what is read here is this consumer's to commit by itself."""

    @property
    def group_id(self) -> str:
        """The group."""
        return self._offsets.group_id

    def step(self) -> None:
        """The user asks for more: what is in hand has been worked on."""
        if self._hand:
            self._given.update(self._hand)
            for cursor, first in self._hand.items():
                self._uncommitted.setdefault(cursor, first)
            self._hand.clear()
            self._stepped.set()

    async def until_worked_on(self, cursors: Collection[Cursor]) -> None:
        """Until nothing of these is in the user's hand; the user's next step ends the wait."""
        while any(cursor in self._hand for cursor in cursors):
            self._stepped.clear()
            await self._stepped.wait()

    def gave(self, cursor: Cursor, first: Offset) -> None:
        """Records from this offset up to the position are in the user's hand."""
        self._hand.setdefault(cursor, first)
        self._older.gave(cursor, first)

    def gave_next(self, cursor: Cursor, first: Offset) -> None:
        """The user asked for one more record and gets the one at this offset: `step` and `gave` in one."""
        hand = self._hand
        if len(hand) == 1 and cursor in hand and cursor in self._given:
            # Called for every record; this partition is not waited for, or its records would be withheld.
            hand[cursor] = first
        else:
            self.step()
            self.gave(cursor, first)

    def moved(self, cursor: Cursor) -> None:
        """The user is about to go elsewhere: what was given there counts no more."""
        self._older.moved(cursor)
        self._hand.pop(cursor, None)
        self._given.discard(cursor)
        self._uncommitted.pop(cursor, None)

    def taken_away(self, cursor: Cursor) -> None:
        """This consumer reads the partition no more: what it was given there is another's to commit, so a transaction
        that has worked on it must not be committed."""
        tp = cursor.name
        if self._is_uncommitted(cursor):
            self._lost.add(tp)
        # Another member may commit something else.
        newest = self._newest.pop(tp, None)
        self._older.taken_away(cursor, newest if newest == cursor.position else None)
        self.moved(cursor)

    def superseded(self) -> Superseded:
        """The positions that rest on what was given before a partition was lost; not this consumer's to commit."""
        return self._older.superseded()

    def _is_uncommitted(self, cursor: Cursor) -> bool:
        is_given = cursor in self._hand or cursor in self._uncommitted
        return is_given and cursor.position is not None and self._newest.get(cursor.name) != cursor.position

    def worked_on(self) -> Positions:
        """The position of each partition that is read behind what was given before the present step."""
        return {
            cursor.name: OffsetAndMetadata(offset)
            for cursor in self._known()
            if cursor in self._given and (offset := self._hand.get(cursor, cursor.position)) is not None
        }

    def _note_said(self, offsets: Positions) -> None:
        """The user commits these: what is in hand below them has been worked on, or nothing later would hold."""
        for cursor in self._known():
            one = offsets.get(cursor.name)
            first = self._hand.get(cursor)
            if one is not None and first is not None and one.offset > first:
                self._hand[cursor] = one.offset
                self._given.add(cursor)
        self._newest.update({tp: one.offset for tp, one in offsets.items()})

    def given(self, metadata: str = "") -> Positions:
        """The position of each partition behind all that was given."""
        return {
            cursor.name: OffsetAndMetadata(cursor.position, metadata)
            for cursor in self._known()
            if cursor.position is not None
        }

    def given_uncommitted(self) -> GivenUncommitted:
        """All that was given since the last commit, what is in hand included."""
        read, positions, lost = set(self._fetching.cursors.values()), Positions(), set(self._lost)
        for cursor in {**self._hand, **self._uncommitted}:
            position = cursor.position
            if position is None or not self._is_uncommitted(cursor):
                continue
            if cursor in read:
                positions[cursor.name] = OffsetAndMetadata(position)
            else:
                lost.add(cursor.name)
        return GivenUncommitted(positions, tuple(sorted(lost)))

    def committed_in_transaction(self, offsets: Positions) -> None:
        """A transaction has committed these, all that was given: it has been worked on."""
        self.step()
        self._uncommitted.clear()
        self._newest.update({tp: one.offset for tp, one in offsets.items() if tp not in self._lost})
        # Taken away when the coordinator of the group had its position already.
        self._lost -= offsets.keys()
        if offsets:
            self._on_committed(offsets)

    def take_back(self) -> dict[Cursor, Offset]:
        """Forget that what is uncommitted was given; of each that is still read, the first offset of that."""
        # What is in hand was given as well, and is taken back with the rest.
        self.step()
        self._lost.clear()
        read, taken = set(self._fetching.cursors.values()), self._uncommitted
        self._uncommitted = {}
        return {cursor: first for cursor, first in taken.items() if cursor in read}

    def _known(self) -> list[Cursor]:
        """Those that are still read, and of which something was given."""
        return [one for one in self._fetching.cursors.values() if one in self._given or one in self._hand]

    def commit_by_itself(self) -> None:
        """Commit what was worked on since the last time."""
        news = self._news()
        if news and self.may_commit():
            # Noted before the answer, so that the next interval does not send the same again; a failure takes it back.
            self._newest.update({tp: one.offset for tp, one in news.items()})
            self._commits.add(news, self._ended_by_itself)

    def _news(self) -> Positions:
        return {tp: one for tp, one in self.worked_on().items() if self._newest.get(tp) != one.offset}

    def _ended_by_itself(self, offsets: Positions, failed: CommitFailed | None) -> None:
        if failed is None:
            return
        log.warning("positions were not committed; the next interval tries again: %s", failed)
        self._forget(offsets, failed)

    def _forget(self, offsets: Positions, failed: CommitFailed) -> None:
        """These are to be committed again, unless later ones were meanwhile."""
        for tp in failed.refused:
            if self._newest.get(tp) == offsets[tp].offset:
                del self._newest[tp]

    async def commit(self, offsets: Positions) -> None:
        """Commit these and wait.

        Raises:
            CommitFailed: some were not committed.
        """
        refused = self._refuse(offsets)
        self._note_said({tp: one for tp, one in offsets.items() if tp not in refused})
        await self._commit(offsets, refused)

    def _refuse(self, offsets: Positions) -> dict[TopicPartition, Refusal]:
        """Why some of these are not asked for; who is no member is judged by the coordinator alone (G27)."""
        return {} if self._offsets.member() is None else self._older.refusals(offsets)

    async def _commit(self, offsets: Positions, refused: Mapping[TopicPartition, Refusal] = NO_REFUSALS) -> None:
        if not offsets:
            return
        ended: asyncio.Future[CommitFailed | None] = asyncio.get_running_loop().create_future()

        def done(_: Positions, failed: CommitFailed | None) -> None:
            if not ended.done():
                ended.set_result(failed)

        self._commits.add(offsets, done, refused)
        failed = await ended
        if failed is not None:
            self._forget(offsets, failed)
            raise failed

    def commit_nowait(self, offsets: Positions, done: Done | None) -> None:
        """Commit these; ``done`` is called with what became of it."""
        if not offsets:
            return
        refused = self._refuse(offsets)
        self._note_said({tp: one for tp, one in offsets.items() if tp not in refused})

        def ended(committed: Positions, failed: CommitFailed | None) -> None:
            if failed is not None:
                self._forget(committed, failed)
            if done is not None:
                _tell(done, committed, failed)

        self._commits.add(offsets, ended, refused)

    async def commit_last(self, cursors: Collection[Cursor] | None = None) -> None:
        """Reading ends, of these or of all: commit what was worked on; after a failure the records come again."""
        ending = None if cursors is None else {cursor.name for cursor in cursors}
        try:
            await self._commit({tp: one for tp, one in self._news().items() if ending is None or tp in ending})
        except CommitFailed as failed:
            log.warning("positions were not committed at the end; their records will be given again: %s", failed)

    async def find(self, cursors: Iterable[Cursor]) -> dict[types.TopicPartition, Offset | None]:
        """What is committed for these, as far as the coordinator answers now; None where nothing is.

        Raises:
            Refused: the coordinator refused, and will do so again.
        """
        named = {cursor.name: cursor.tp for cursor in cursors}
        found = await self._offsets.fetch_once(named) if named else {}
        return {named[tp]: None if one is None else one.offset for tp, one in found.items() if tp in named}

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed, by partition.

        Raises:
            Refused: the coordinator refused, or did not answer in time.
        """
        return await self._offsets.fetch(partitions, deadline_ms=self._timeout_ms)

    async def _send(self, offsets: Positions, member: AsMember | None) -> dict[TopicPartition, Refusal]:
        failed = await self._offsets.commit(offsets, member=member, deadline_ms=self._timeout_ms)
        if committed := {tp: one for tp, one in offsets.items() if tp not in failed}:
            self._on_committed(committed)
        return failed


def behind(records: Iterable[ConsumerRecord[Any, Any]], metadata: str) -> Positions:
    """The positions behind these records: of each partition one more than its highest offset."""
    positions: Positions = {}
    for record in records:
        tp = TopicPartition(record.topic, record.partition)
        if tp not in positions or record.offset >= positions[tp].offset:
            positions[tp] = OffsetAndMetadata(Offset(record.offset + 1), metadata)
    return positions


def _tell(done: Done, offsets: Positions, failed: CommitFailed | None) -> None:
    try:
        done(offsets, failed)
    except Exception:  # noqa: BLE001 - a user's function may raise anything
        log.exception("the function given to commit_nowait failed")
