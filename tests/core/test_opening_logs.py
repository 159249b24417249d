"""A follower's requests when metadata gives it many logs at once."""

from __future__ import annotations

from core_builders import TOPIC_ID, metadata, node_epoch, node_image, partition_image

from strandline.core.log.effects import OpenLog, SendFetch
from strandline.core.log.events import LogOpened, MetadataArrived, Registered
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import NodeId, Offset, Rules, TopicPartition

PARTITIONS = 50


def test_logs_that_open_together_are_asked_for_together() -> None:
    """Fifty logs opened by one piece of metadata cost one Fetch to their leader, which names all of them."""
    core = NodeCore(node_id=NodeId(2), rules=Rules(), timings=NodeTimings())
    core.step(Registered(0, "cluster-of-cores", node_epoch(2), 1))
    images = [partition_image(TopicPartition(TOPIC_ID, index)) for index in range(PARTITIONS)]
    nodes = [node_image(1), node_image(2)]

    asked = core.step(MetadataArrived(0, metadata(node_epoch(2), *images, nodes=nodes)))
    opened = [effect.tp for effect in asked if isinstance(effect, OpenLog)]
    answers = [core.step(LogOpened(0, tp, Offset(0), Offset(0), Offset(0))) for tp in opened]

    fetches = [effect for answer in answers for effect in answer if isinstance(effect, SendFetch)]
    assert len(opened) == PARTITIONS
    assert [len(fetch.request.partitions) for fetch in fetches] == [PARTITIONS]
