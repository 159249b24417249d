"""DescribeProducers on the wire.

Invariant: what a producer does not have is absent, never 0: no sequence, no coordinator, no open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.core.errors import Refusal
from strandline.core.types import ActiveProducer, TopicPartition
from strandline.rpc.addressing import (
    Asked,
    Topics,
    Unresolved,
    by_topic,
    check_cluster,
    gather,
    invalid,
    unresolved_by_topic,
)
from strandline.rpc.convert_errors import write_error
from strandline.v1 import leader_service_pb2 as pb

MOST_PRODUCERS = 100_000
"""Of one partition in one answer, about 4 MB."""


def read_described(request: pb.DescribeProducersRequest, topics: Topics) -> Asked[TopicPartition]:
    """Whose producers are asked for.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: no partition is named, or one twice.
    """
    check_cluster(request.cluster_id if request.HasField("cluster_id") else None, topics)
    asked = gather(
        [(topic.topic, topic.topic_id, topic.partitions) for topic in request.topics],
        topics,
        int,
        lambda tp, _: tp,
    )
    if not asked.parts and not asked.unresolved:
        raise invalid("topics names no partition; give at least one")
    return asked


def producers_response(
    found: Mapping[TopicPartition, Sequence[ActiveProducer] | Refusal], unresolved: Iterable[Unresolved], topics: Topics
) -> pb.DescribeProducersResponse:
    """The answer, by topic."""
    response = pb.DescribeProducersResponse()
    for topic_id, tps in by_topic(found, lambda tp: tp):
        topic = response.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for tp in tps:
            row, producers = topic.partitions.add(partition_index=tp.partition), found[tp]
            if isinstance(producers, Refusal):
                write_error(row, producers)
            else:
                row.active_producers.extend(map(_write, producers[:MOST_PRODUCERS]))
    for (name, topic_id), not_found in unresolved_by_topic(unresolved):
        topic = response.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response


def _write(producer: ActiveProducer) -> pb.ActiveProducer:
    return pb.ActiveProducer(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.open_since,
    )
