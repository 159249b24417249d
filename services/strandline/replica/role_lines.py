"""What a node logs when it begins to follow: a line for each partition whose leader epoch has risen.

That it leads is logged from the event of its epoch (`export.log_lines`), which comes when the epoch has begun.

Invariant: nothing is logged about an image that is older than what the node knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import structlog

from strandline.core.messages import MetadataImage, PartitionImage
from strandline.core.types import NodeId, TopicPartition

_log = structlog.get_logger("strandline.roles")


def tell_following(node_id: NodeId, lines: Iterable[Mapping[str, object]]) -> None:
    """Write a line for each; may be called in any thread."""
    for line in lines:
        _log.info("follows" if line["leader"] is not None else "waits for a leader", node_id=node_id, **line)


def following(
    node_id: NodeId, known: Callable[[TopicPartition], PartitionImage | None], image: MetadataImage
) -> Iterator[dict[str, object]]:
    """The fields of one line for each partition that ``node_id`` begins to follow, or waits to follow.

    ``known``: a partition as the metadata before this image had it.
    """
    for topic in image.topics:
        for now in topic.partitions:
            before = known(now.tp)
            if before is not None and now.leader_epoch <= before.leader_epoch:
                continue
            if now.leader != node_id and node_id in (*now.replicas, *now.observers):
                yield {
                    "topic": topic.name,
                    "partition": now.tp.partition,
                    "leader": now.leader,
                    "leader_epoch": now.leader_epoch,
                    "partition_epoch": now.partition_epoch,
                    "isr": list(now.isr),
                    "in_isr": node_id in now.isr,
                }
