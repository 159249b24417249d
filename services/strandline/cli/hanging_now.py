"""Whether transactions hang, as `strandline cluster status` asks it: of the partitions that have one open alone (X20).

Invariant: a look at a cluster is shown also where this cannot be answered; then nothing is said to hang.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.client import Admin, DescribedLeader, HangingTransaction


async def hanging_now(admin: Admin, views: Iterable[DescribedLeader]) -> list[HangingTransaction]:
    """The transactions that nobody will end, of the partitions whose leader has one open."""
    from strandline.client import ClusterUnreachable, Refused

    by_topic: dict[str, list[int]] = {}
    for view in views:
        if view.oldest_open_producer_id is not None:
            by_topic.setdefault(view.topic, []).append(view.partition)
    found: list[HangingTransaction] = []
    for topic, partitions in by_topic.items():
        try:
            found += await admin.find_hanging_transactions(topic, partitions)
        except (Refused, ClusterUnreachable):
            # A coordinator that is away is no hanging transaction, and what else is wrong is said elsewhere.
            continue
    return found
