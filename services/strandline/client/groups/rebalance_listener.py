"""What a consumer that subscribes hears of its partitions: given, taken in good order, or lost.

Invariant: each partition that is assigned is later either revoked or lost. A loss that comes while `on_revoked` runs
cancels it.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.client.records import TopicPartition


class RebalanceListener:
    """Derive from it, override what is of interest, and give it to `Consumer.subscribe`.

    The methods are called in the consumer's event loop, one at a time, while heartbeats go on. An exception of one
    ends the membership and is raised by the next `Consumer.poll`.
    """

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on. Called before their first record is given; it may seek."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These are given up when this returns; until then they are owned, and commits of them are taken.

        Called when nothing of them is in the user's hand: all that was given of them has been worked on. It has to
        return within ``rebalance_timeout_ms`` of the coordinator's question, or the partitions are lost.
        """

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These are somebody else's already, because heartbeats or an answer came too late: commit nothing."""
