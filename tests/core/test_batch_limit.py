"""A topic's own limit on the size of a batch."""

from __future__ import annotations

from dataclasses import replace

from cluster_of_cores import Cluster
from core_builders import BATCH_BYTES, L, batch, metadata, node_epoch, node_image, partition_image

from strandline.core.errors import ErrorCode, Outcome
from strandline.core.log.events import MetadataArrived
from strandline.core.messages import MetadataImage


def alone() -> Cluster:
    """Node 1 is the only replica and leads; the topic sets no limit."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(isr=(1,)))
    return cluster


def with_limit(cluster: Cluster, limit: int | None) -> None:
    """Give the topic a ``max.message.bytes``, or take it away."""
    image: MetadataImage = metadata(node_epoch(1), partition_image(isr=(1,)), nodes=[node_image(1)])
    configs = () if limit is None else (("max.message.bytes", str(limit)),)
    topics = tuple(replace(topic, configs=configs) for topic in image.topics)
    cluster.step(L, MetadataArrived(cluster.now, replace(image, topics=topics)))


def test_a_batch_above_the_topics_limit_is_refused_and_the_next_one_is_not() -> None:
    """max.message.bytes rejects a larger batch with MESSAGE_TOO_LARGE, NOT_APPENDED, and nothing is appended."""
    cluster = alone()
    with_limit(cluster, 2 * BATCH_BYTES)

    large = cluster.outcome(cluster.produce(batch(3)))
    small = cluster.outcome(cluster.produce(batch(2)))

    assert large is not None and large.refusal is not None
    assert (large.refusal.code, large.outcome) == (ErrorCode.MESSAGE_TOO_LARGE, Outcome.NOT_APPENDED)
    assert "max.message.bytes=200" in large.refusal.message
    assert small is not None and small.base_offset == 0


def test_a_limit_that_is_taken_away_no_longer_refuses() -> None:
    """A change of the topic's settings takes effect with the metadata that carries it."""
    cluster = alone()
    with_limit(cluster, BATCH_BYTES)
    with_limit(cluster, None)

    result = cluster.outcome(cluster.produce(batch(3)))

    assert result is not None and result.refusal is None
