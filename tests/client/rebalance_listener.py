"""A listener of rebalances that notes what it hears."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.client.fake_cluster import FakeCluster, until

from strandline.client import RebalanceListener, TopicPartition
from strandline.core.errors import ErrorCode


class Heard(RebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self.do: Callable[[str], Any] = lambda _: None

    async def _hear(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append((what, [one.partition for one in partitions]))
        done = self.do(what)
        if done is not None:
            await done

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._hear("assigned", partitions)

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._hear("revoked", partitions)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._hear("lost", partitions)


async def lost_and_assigned_again(cluster: FakeCluster, heard: Heard) -> None:
    """The member's session ends at the coordinator, and it joins again at once."""
    cluster.groups.refusals.append(ErrorCode.FENCED_MEMBER_EPOCH)
    await until(lambda: [what for what, _ in heard.heard] == ["assigned", "lost", "assigned"])
