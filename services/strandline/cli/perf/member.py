"""`strandline perf consume --group`: reads as a member of a group, and decides when it has read everything.

Invariant: a member has no end of its own, because others may read the rest and writers may go on; it is at its end when
nothing came for a while and everything it owns is read up to the high watermark.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from strandline.cli.connect import open_admin, tls_options
from strandline.cli.options import addresses
from strandline.client import Consumer, FetchedRecords, RebalanceListener, TopicPartition

_IDLE_MS = 3_000
"""Longer than a fetch waits at a leader, so that a high watermark that was passed meanwhile is known."""
_LOOK_EVERY_S = 1.0


class Ownership(RebalanceListener):
    """Counts what the coordinator gave and took."""

    def __init__(self) -> None:
        self.changes = 0
        self.has_begun = asyncio.Event()

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """The first assignment is the beginning; every later one is a change."""
        if self.has_begun.is_set():
            self.changes += 1
        self.has_begun.set()

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Taken in good order."""
        self.changes += 1

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Taken because the member was away."""
        self.changes += 1


class MemberFigures(NamedTuple):
    """What a run says of its membership."""

    group: str
    partitions: int
    """Owned at the end."""
    assignment_changes: int
    """How often the coordinator gave or took partitions after the first assignment."""
    joined_ms: float
    """From `subscribe` to the first assignment."""


class MemberReading:
    """A member that reads one topic; has what `measure_consuming` asks of a consumer."""

    def __init__(self, consumer: Consumer, group: str) -> None:
        self._consumer = consumer
        self._group = group
        self._ownership = Ownership()
        self._joined_ms = 0.0
        self.is_finished = False

    async def join(self, topic: str) -> None:
        """Subscribe, and wait until there are partitions to read."""
        began_s = time.monotonic()
        await self._consumer.subscribe(topic, listener=self._ownership)
        while not self._ownership.has_begun.is_set():
            # There is nothing to give yet; who asks stays a member, and hears why it is none any more.
            await self._consumer.fetch_batches(0)
            await self._a_while()
        self._joined_ms = (time.monotonic() - began_s) * 1_000

    async def fetch_batches(self) -> list[FetchedRecords]:
        """What comes next; nothing at the end."""
        while not (fetched := await self._consumer.fetch_batches(_IDLE_MS)):
            if self._is_at_end():
                self.is_finished = True
                break
        return fetched

    async def commit(self) -> None:
        """Commit all that was read; by itself the consumer leaves out what came last, which may not be worked on."""
        await self._consumer.commit()

    def figures(self) -> MemberFigures:
        """As of now."""
        owned, changes = len(self._consumer.assignment()), self._ownership.changes
        return MemberFigures(self._group, owned, changes, round(self._joined_ms, 3))

    async def _a_while(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._ownership.has_begun.wait()

    def _is_at_end(self) -> bool:
        owned = self._consumer.assignment()
        return bool(owned) and all(self._is_read(one) for one in owned)

    def _is_read(self, partition: TopicPartition) -> bool:
        end, position = self._consumer.high_watermark(*partition), self._consumer.position(*partition)
        return end is not None and position is not None and position >= end


@asynccontextmanager
async def open_member(bootstrap: str, settings: dict[str, Any], topic: str, group: str) -> AsyncIterator[MemberReading]:
    """A member of ``group`` that owns partitions of a topic, which must exist."""
    async with open_admin(bootstrap) as admin:
        # A group may subscribe to a topic that does not exist yet, and would wait for it.
        await admin.describe_topics([topic])
    async with Consumer(addresses(bootstrap), group=group, **tls_options(), **settings) as consumer:
        reading = MemberReading(consumer, group)
        await reading.join(topic)
        yield reading
