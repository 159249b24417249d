"""DeleteRecords on the wire, in both directions.

Invariant: the high watermark is -1 on the wire and None here; no other offset below 0 passes for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from strandline.core.messages import DeletedPartition, DeletePartition
from strandline.core.types import Offset, TopicPartition
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
from strandline.rpc.convert_errors import read_error, write_error
from strandline.v1 import leader_service_pb2 as pb

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 600_000
HIGH_WATERMARK = -1
"""Kafka's offset that means the high watermark."""


def read_deletions(message: pb.DeleteRecordsRequest, topics: Topics) -> tuple[int, Asked[DeletePartition]]:
    """How long to wait in ms, and what to delete.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: timeout_ms is negative, no partition is named, or one twice.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    timeout_ms = message.timeout_ms if message.HasField("timeout_ms") else DEFAULT_TIMEOUT_MS
    if timeout_ms < 0:
        raise invalid(f"timeout_ms {timeout_ms} must be 0 or more; leave it out for {DEFAULT_TIMEOUT_MS}")
    asked = gather(
        [(topic.name, topic.topic_id, topic.partitions) for topic in message.topics],
        topics,
        attrgetter("partition_index"),
        _read_part,
    )
    if not asked.parts and not asked.unresolved:
        raise invalid("topics names no partition; give at least one")
    return min(timeout_ms, MAX_TIMEOUT_MS), asked


def _read_part(tp: TopicPartition, partition: pb.DeleteRecordsPartition) -> DeletePartition:
    return DeletePartition(tp, None if partition.offset == HIGH_WATERMARK else Offset(partition.offset))


def deletions_response(
    answers: Iterable[DeletedPartition], unresolved: Iterable[Unresolved], topics: Topics
) -> pb.DeleteRecordsResponse:
    """The answers of DeleteRecords, by topic."""
    response = pb.DeleteRecordsResponse()
    for topic_id, parts in by_topic(answers, lambda answer: answer.tp):
        topic = response.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for answer in parts:
            row = topic.partitions.add(partition_index=answer.tp.partition, low_watermark=answer.low_watermark)
            write_error(row, answer.refusal)
    for (name, topic_id), not_found in unresolved_by_topic(unresolved):
        topic = response.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response


def delete_records_request(
    offsets: Mapping[TopicPartition, int], *, cluster_id: str | None, timeout_ms: int
) -> pb.DeleteRecordsRequest:
    """DeleteRecords by topic ids; ``offsets`` are first offsets to keep, or HIGH_WATERMARK."""
    request = pb.DeleteRecordsRequest(cluster_id=cluster_id, timeout_ms=timeout_ms)
    for topic_id, parts in by_topic(offsets, lambda tp: tp):
        topic = request.topics.add(topic_id=topic_id)
        for tp in parts:
            topic.partitions.add(partition_index=tp.partition, offset=offsets[tp])
    return request


def read_deleted(response: pb.DeleteRecordsResponse) -> list[DeletedPartition]:
    """The leader's answers."""
    return [
        DeletedPartition(
            TopicPartition(topic.topic_id, row.partition_index),
            Offset(row.low_watermark) if row.HasField("low_watermark") else None,
            read_error(row),
        )
        for topic in response.topics
        for row in topic.partitions
    ]
