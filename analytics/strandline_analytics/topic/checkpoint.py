"""How a stream's position is written into its checkpoint: ``{"tides": {"topic_id": …, "offsets": {"0": 23}}}``.

Invariant: a position names the id of each topic, so that a topic that was deleted and created again under the same name
is noticed instead of continued in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.client import TopicPartition
from strandline_analytics.topic.cluster import FoundPartitions
from strandline_analytics.topic.errors import TopicFailed
from strandline_analytics.topic.where import Offsets

Position = dict[str, Any]
"""As Spark keeps it; what can be JSON."""


def written(found: FoundPartitions, offsets: Offsets) -> Position:
    """The next offset of each partition."""
    by_topic: Position = {}
    for (topic, partition), offset in sorted(offsets.items()):
        own = by_topic.setdefault(topic, {"topic_id": found.topic_ids[topic], "offsets": {}})
        own["offsets"][str(partition)] = offset
    return by_topic


def read(position: Mapping[str, Any], found: FoundPartitions, *, fail_on_data_loss: bool) -> dict[TopicPartition, int]:
    """The offsets of a position.

    Raises:
        TopicFailed: a topic of it was deleted, whether or not one of its name exists.
    """
    offsets: dict[TopicPartition, int] = {}
    for topic, own in position.items():
        if not isinstance(own, dict):
            raise TopicFailed("subscribe", "the checkpoint is of another source", "begin with a new checkpointLocation")
        topic_id = found.topic_ids.get(topic)
        if topic_id is None and not fail_on_data_loss:
            continue
        if topic_id is None:
            raise TopicFailed(
                "failOnDataLoss",
                f"topic {topic!r} of the checkpoint is not read any more: it was deleted, or is not selected",
                "set it to false to go on without it, or begin with a new checkpointLocation",
            )
        if own["topic_id"] != topic_id:
            raise TopicFailed(
                "subscribe",
                f"the checkpoint is of the topic {topic!r} with id {own['topic_id']}, the topic of this name is "
                f"{topic_id}",
                "it was deleted and created again: begin with a new checkpointLocation",
            )
        offsets |= {TopicPartition(topic, int(partition)): int(at) for partition, at in own["offsets"].items()}
    return offsets
