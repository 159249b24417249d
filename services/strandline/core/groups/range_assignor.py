"""The assignor ``range``: of each topic, contiguous partitions in the order of the members (G24).

Topics with equal subscribers and equal partition counts are co-partitioned: partition p of each goes to one member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.core.coordinator.machine import TopicEntry
from strandline.core.groups.subscribers import Subscriber, Target
from strandline.core.types import TopicPartition


def assign_range(
    subscribers: Sequence[Subscriber], topics: Mapping[str, TopicEntry], previous: Mapping[str, object]
) -> Target:
    """The target; ``previous`` plays no part, for contiguity comes first. Cost: members times topics."""
    target: Target = {each.member_id: set() for each in subscribers}
    for topic_id in sorted(topics):
        members = [each.member_id for each in subscribers if topic_id in each.topic_ids]
        if members:
            _spread(topics[topic_id], members, target)
    return target


def _spread(topic: TopicEntry, members: Sequence[str], target: Target) -> None:
    each, extra = divmod(topic.partition_count, len(members))
    begin = 0
    for index, member_id in enumerate(members):
        end = begin + each + (index < extra)
        target[member_id].update(TopicPartition(topic.topic_id, p) for p in range(begin, end))
        begin = end
