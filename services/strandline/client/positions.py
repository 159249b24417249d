"""Where a consumer begins in each partition, and where it stops with ``stop_at_end``.

Invariant: ends are asked for before beginnings, so what is written after the consumer began is not waited for;
a partition that nobody leads delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.client.cursor import Cursor
from strandline.client.errors import NothingCommitted
from strandline.client.fetching import Fetching
from strandline.client.group_commits import GroupCommits
from strandline.client.offsets import LATEST, OffsetFinder
from strandline.client.retry_log import RetryLog
from strandline.core.errors import Refused
from strandline.rpc.channels import Backoff


class PositionFinder:
    """Finds what is looked for, as long as the consumer lives."""

    def __init__(
        self,
        finder: OffsetFinder,
        fetching: Fetching,
        *,
        stop_at_end: bool,
        lost: asyncio.Event,
        on_found: Callable[[], None],
        group: GroupCommits | None = None,
    ) -> None:
        """``lost`` is set whenever something has to be found; ``group`` knows what is committed."""
        self._group = group
        self._finder = finder
        self._fetching = fetching
        self._stop_at_end = stop_at_end
        self._lost = lost
        self._on_found = on_found

    async def run(self) -> None:
        """Find positions and ends whenever some are lost; again and again while a leader is missing."""
        backoff = Backoff()
        retry = RetryLog("finding positions")
        # What was cut off in the middle is looked for again.
        self._lost.set()
        while True:
            await self._lost.wait()
            self._lost.clear()
            is_complete = await self._find_or_fail()
            self._fetching.pump()
            self._on_found()
            if is_complete:
                backoff.reset()
                retry.worked()
                continue
            retry.failed(self._fetching.now_ms(), "some leaders have not answered")
            self._lost.set()
            await asyncio.sleep(backoff.next_s())

    async def _find_or_fail(self) -> bool:
        """One round; whether nothing is left to be found."""
        try:
            await self._find_ends()
            if self._group is not None:
                await self._find_committed(self._group)
            await self._find_beginnings()
        except Refused as refused:
            for cursor in self._fetching.cursors.values():
                if cursor.is_lost:
                    cursor.failure = refused
            return True
        return not any(cursor.is_lost or self._is_endless(cursor) for cursor in self._fetching.cursors.values())

    def _is_endless(self, cursor: Cursor) -> bool:
        return self._stop_at_end and cursor.stop_at is None

    async def _find_ends(self) -> None:
        endless = [cursor for cursor in self._fetching.cursors.values() if self._is_endless(cursor)]
        ends = await self._finder.find_some({cursor.tp: LATEST for cursor in endless})
        for cursor in endless:
            if cursor.tp in ends:
                cursor.stop_at = ends[cursor.tp].offset

    async def _find_committed(self, group: GroupCommits) -> None:
        """Only an answer without an offset sends a cursor elsewhere; an error is asked about again (G28)."""
        asked = [one for one in self._fetching.cursors.values() if one.is_lost and one.is_committed_first]
        found = await group.find(asked)
        for cursor in asked:
            # A seek that came meanwhile has taken the mark away.
            if cursor.tp not in found or not cursor.is_committed_first:
                continue
            offset = found[cursor.tp]
            if offset is None and cursor.is_committed_only:
                cursor.failure = NothingCommitted(group.group_id, cursor.topic, cursor.tp.partition)
            elif offset is None:
                cursor.nothing_committed()
            else:
                cursor.is_committed_first = False
                cursor.found(offset)

    async def _find_beginnings(self) -> None:
        lost = {
            cursor.tp: (cursor, cursor.generation, cursor.seek_time)
            for cursor in self._fetching.cursors.values()
            if cursor.is_lost and not cursor.is_committed_first
        }
        wanted = {tp: time for tp, (_, _, time) in lost.items() if time is not None}
        found = await self._finder.find_some(wanted)
        # No record is as late as was asked: then at the end.
        beyond = {tp: LATEST for tp, answer in found.items() if answer.offset is None}
        found |= await self._finder.find_some(beyond)
        for tp, (cursor, generation, _) in lost.items():
            offset = found[tp].offset if tp in found else None
            # A seek that came meanwhile has another question.
            if offset is not None and cursor.generation == generation:
                cursor.found(offset)
