"""OffsetForLeaderEpoch and ListOffsets on the wire, in both directions.

Invariant: "undefined" is None here, and the absence of both epoch and end on the wire; it is never offset 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from strandline.core import messages
from strandline.core.types import EpochEnd, LeaderEpoch, Offset, TopicPartition
from strandline.rpc.convert import errors
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1.partition_pb2 import ISOLATION_LEVEL_READ_COMMITTED


def read_asker(
    message: pb.OffsetForLeaderEpochRequest | pb.ListOffsetsRequest, topics: errors.Topics
) -> messages.ReplicaState | None:
    """The replica that asks; None for a client.

    Raises:
        Refused: INVALID_REQUEST or INCONSISTENT_CLUSTER_ID.
    """
    replica = errors.read_replica(message.replica_state) if message.HasField("replica_state") else None
    errors.check_cluster(
        message.cluster_id if message.HasField("cluster_id") else None, topics, required=replica is not None
    )
    if replica is not None:
        for topic in message.topics:
            if not topic.topic_id:
                raise errors.invalid("a topic is named without topic_id; a replica must give it")
    return replica


def read_epoch_questions(
    message: pb.OffsetForLeaderEpochRequest, topics: errors.Topics
) -> errors.Asked[messages.EpochEndQuestion]:
    """The questions of an OffsetForLeaderEpoch request.

    Raises:
        Refused: INVALID_REQUEST, a partition is named twice, or a replica names no current epoch.
    """

    def build(tp: TopicPartition, partition: pb.OffsetForLeaderPartition) -> messages.EpochEndQuestion:
        if not partition.HasField("current_leader_epoch") and message.HasField("replica_state"):
            raise errors.invalid(f"partition {tp.partition} lacks current_leader_epoch; a replica must give it")
        return messages.EpochEndQuestion(
            tp,
            LeaderEpoch(partition.leader_epoch) if partition.HasField("leader_epoch") else None,
            LeaderEpoch(partition.current_leader_epoch) if partition.HasField("current_leader_epoch") else None,
        )

    asked = [(topic.topic, topic.topic_id, topic.partitions) for topic in message.topics]
    return errors.gather(asked, topics, attrgetter("partition"), build)


def read_offset_questions(
    message: pb.ListOffsetsRequest, topics: errors.Topics
) -> errors.Asked[messages.OffsetQuestion]:
    """The questions of a ListOffsets request; an absent timestamp asks for the latest offset.

    Raises:
        Refused: INVALID_REQUEST, a replica names no current epoch.
    """

    def build(tp: TopicPartition, partition: pb.ListOffsetsPartition) -> messages.OffsetQuestion:
        if not partition.HasField("current_leader_epoch") and message.HasField("replica_state"):
            raise errors.invalid(f"partition {tp.partition} lacks current_leader_epoch; a replica must give it")
        return messages.OffsetQuestion(
            tp,
            partition.timestamp if partition.HasField("timestamp") else messages.LATEST,
            LeaderEpoch(partition.current_leader_epoch) if partition.HasField("current_leader_epoch") else None,
            message.isolation_level == ISOLATION_LEVEL_READ_COMMITTED,
        )

    asked = [(topic.name, topic.topic_id, topic.partitions) for topic in message.topics]
    # A follower asks for the latest and the earliest offset of a partition in one request (M30).
    return errors.gather(asked, topics, attrgetter("partition_index"), build, once_each=False)


def epoch_ends_response(
    answers: Iterable[messages.EpochEndAnswer], unresolved: Iterable[errors.Unresolved], topics: errors.Topics
) -> pb.OffsetForLeaderEpochResponse:
    """The answers of OffsetForLeaderEpoch, by topic."""
    response = pb.OffsetForLeaderEpochResponse()
    for topic_id, parts in errors.by_topic(answers, lambda answer: answer.tp):
        topic = response.topics.add(topic=topics.name_of(topic_id), topic_id=topic_id)
        for answer in parts:
            row = topic.partitions.add(partition=answer.tp.partition)
            errors.write_error(row, answer.refusal)
            if answer.end is not None:
                row.leader_epoch, row.end_offset = answer.end
    for (name, topic_id), not_found in errors.unresolved_by_topic(unresolved):
        topic = response.topics.add(topic=name, topic_id=topic_id)
        for lost in not_found:
            errors.write_error(topic.partitions.add(partition=lost.partition), lost.refusal)
    return response


def offsets_response(
    answers: Iterable[messages.OffsetAnswer], unresolved: Iterable[errors.Unresolved], topics: errors.Topics
) -> pb.ListOffsetsResponse:
    """The answers of ListOffsets, by topic; every lookup has been made."""
    response = pb.ListOffsetsResponse()
    for topic_id, parts in errors.by_topic(answers, lambda answer: answer.tp):
        topic = response.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for answer in parts:
            row = topic.partitions.add(
                partition_index=answer.tp.partition,
                offset=answer.offset,
                timestamp=answer.timestamp,
                leader_epoch=answer.leader_epoch,
            )
            errors.write_error(row, answer.refusal)
    for (name, topic_id), not_found in errors.unresolved_by_topic(unresolved):
        topic = response.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            errors.write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response


def epoch_ends_request(
    questions: Iterable[messages.EpochEndQuestion], *, cluster_id: str, replica: messages.ReplicaState | None
) -> pb.OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpoch by topic ids."""
    request = pb.OffsetForLeaderEpochRequest(cluster_id=cluster_id)
    if replica is not None:
        errors.write_replica(request.replica_state, replica)
    for topic_id, parts in errors.by_topic(questions, lambda question: question.tp):
        topic = request.topics.add(topic_id=topic_id)
        for question in parts:
            topic.partitions.add(
                partition=question.tp.partition,
                leader_epoch=question.leader_epoch,
                current_leader_epoch=question.current_leader_epoch,
            )
    return request


def read_epoch_ends(response: pb.OffsetForLeaderEpochResponse) -> tuple[messages.EpochEndAnswer, ...]:
    """The leader's answers."""
    return tuple(
        messages.EpochEndAnswer(TopicPartition(topic.topic_id, row.partition), _read_end(row), errors.read_error(row))
        for topic in response.topics
        for row in topic.partitions
    )


def _read_end(row: pb.OffsetForLeaderPartitionResult) -> EpochEnd | None:
    if not row.HasField("end_offset") or not row.HasField("leader_epoch"):
        return None
    return EpochEnd(LeaderEpoch(row.leader_epoch), Offset(row.end_offset))


def list_offsets_request(
    questions: Iterable[messages.OffsetQuestion],
    *,
    cluster_id: str | None,
    replica: messages.ReplicaState | None,
    read_committed: bool = False,
) -> pb.ListOffsetsRequest:
    """ListOffsets by topic ids. ``read_committed`` applies to the request as a whole."""
    request = pb.ListOffsetsRequest(cluster_id=cluster_id)
    if read_committed:
        request.isolation_level = ISOLATION_LEVEL_READ_COMMITTED
    if replica is not None:
        errors.write_replica(request.replica_state, replica)
    for topic_id, parts in errors.by_topic(questions, lambda question: question.tp):
        topic = request.topics.add(topic_id=topic_id)
        for question in parts:
            topic.partitions.add(
                partition_index=question.tp.partition,
                timestamp=question.timestamp,
                current_leader_epoch=question.current_leader_epoch,
            )
    return request


def read_offsets(response: pb.ListOffsetsResponse) -> tuple[messages.OffsetAnswer, ...]:
    """The leader's answers."""
    return tuple(
        messages.OffsetAnswer(
            TopicPartition(topic.topic_id, row.partition_index),
            Offset(row.offset) if row.HasField("offset") else None,
            row.timestamp if row.HasField("timestamp") else None,
            LeaderEpoch(row.leader_epoch) if row.HasField("leader_epoch") else None,
            errors.read_error(row),
        )
        for topic in response.topics
        for row in topic.partitions
    )


# ---- convert_deletion
# DeleteRecords on the wire, in both directions.
#
# Invariant: the high watermark is -1 on the wire and None here; no other negative offset is read as it.

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 600_000
HIGH_WATERMARK = -1
"""Kafka's offset that means the high watermark."""


def read_deletions(
    message: pb.DeleteRecordsRequest, topics: errors.Topics
) -> tuple[int, errors.Asked[messages.DeletePartition]]:
    """How long to wait, in ms, and what to delete.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: timeout_ms is negative, no partition is named, or one twice.
    """
    errors.check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    timeout_ms = message.timeout_ms if message.HasField("timeout_ms") else DEFAULT_TIMEOUT_MS
    if timeout_ms < 0:
        raise errors.invalid(f"timeout_ms {timeout_ms} must be 0 or more; leave it out for {DEFAULT_TIMEOUT_MS}")
    asked = errors.gather(
        [(topic.name, topic.topic_id, topic.partitions) for topic in message.topics],
        topics,
        attrgetter("partition_index"),
        _read_part,
    )
    if not asked.parts and not asked.unresolved:
        raise errors.invalid("topics names no partition; give at least one")
    return min(timeout_ms, MAX_TIMEOUT_MS), asked


def _read_part(tp: TopicPartition, partition: pb.DeleteRecordsPartition) -> messages.DeletePartition:
    return messages.DeletePartition(tp, None if partition.offset == HIGH_WATERMARK else Offset(partition.offset))


def deletions_response(
    answers: Iterable[messages.DeletedPartition], unresolved: Iterable[errors.Unresolved], topics: errors.Topics
) -> pb.DeleteRecordsResponse:
    """The answers of DeleteRecords, by topic."""
    response = pb.DeleteRecordsResponse()
    for topic_id, parts in errors.by_topic(answers, lambda answer: answer.tp):
        topic = response.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for answer in parts:
            row = topic.partitions.add(partition_index=answer.tp.partition, low_watermark=answer.low_watermark)
            errors.write_error(row, answer.refusal)
    for (name, topic_id), not_found in errors.unresolved_by_topic(unresolved):
        topic = response.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            errors.write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response


def delete_records_request(
    offsets: Mapping[TopicPartition, int], *, cluster_id: str | None, timeout_ms: int
) -> pb.DeleteRecordsRequest:
    """DeleteRecords by topic ids; ``offsets`` are first offsets to keep, or HIGH_WATERMARK."""
    request = pb.DeleteRecordsRequest(cluster_id=cluster_id, timeout_ms=timeout_ms)
    for topic_id, parts in errors.by_topic(offsets, lambda tp: tp):
        topic = request.topics.add(topic_id=topic_id)
        for tp in parts:
            topic.partitions.add(partition_index=tp.partition, offset=offsets[tp])
    return request


def read_deleted(response: pb.DeleteRecordsResponse) -> list[messages.DeletedPartition]:
    """The leader's answers."""
    return [
        messages.DeletedPartition(
            TopicPartition(topic.topic_id, row.partition_index),
            Offset(row.low_watermark) if row.HasField("low_watermark") else None,
            errors.read_error(row),
        )
        for topic in response.topics
        for row in topic.partitions
    ]
