"""Decides how a follower's or a client's own Fetch is written, and how the leader's answer is read.

Invariant: what the leader sent is trusted for nothing: batches are cut and their CRCs checked on arrival, and
a damaged answer becomes ``corrupt`` with neither headers nor bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from strandline.core.errors import Refused
from strandline.core.messages import FetchedPartition, FetchPartition, FetchRequest
from strandline.core.types import BatchHeader, EpochEnd, LeaderEpoch, Offset, TopicPartition
from strandline.rpc.addressing import by_topic, write_replica
from strandline.rpc.convert_errors import read_error
from strandline.v1 import leader_service_pb2, partition_pb2

SplitBatches = Callable[[memoryview], Sequence[BatchHeader]]
"""Cuts fetched bytes into batches and checks each CRC; raises `Refused` (`records.batch`)."""


def fetch_stream_message(
    request: FetchRequest, *, cluster_id: str, correlation_id: int
) -> leader_service_pb2.FetchStreamRequest:
    """A replica's fetch as a message of its stream."""
    message = leader_service_pb2.FetchStreamRequest(
        correlation_id=correlation_id,
        cluster_id=cluster_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        topics=_topics(request.partitions),
    )
    if request.replica is not None:
        write_replica(message.replica_state, request.replica)
    return message


def forget_message(
    partitions: Iterable[TopicPartition], *, cluster_id: str, correlation_id: int
) -> leader_service_pb2.FetchStreamRequest:
    """A stream message that only ends parked fetches."""
    message = leader_service_pb2.FetchStreamRequest(correlation_id=correlation_id, cluster_id=cluster_id)
    for topic_id, parts in by_topic(partitions, lambda tp: tp):
        message.forgotten_topics_data.add(topic_id=topic_id, partitions=[tp.partition for tp in parts])
    return message


def _topics(partitions: Iterable[FetchPartition]) -> list[partition_pb2.FetchTopic]:
    topics = []
    for topic_id, parts in by_topic(partitions, lambda part: part.tp):
        topic = partition_pb2.FetchTopic(topic_id=topic_id)
        for part in parts:
            topic.partitions.add(
                partition=part.tp.partition,
                fetch_offset=part.fetch_offset,
                partition_max_bytes=part.max_bytes,
                current_leader_epoch=part.current_leader_epoch,
                last_fetched_epoch=part.last_fetched_epoch,
                log_start_offset=part.log_start_offset,
            )
        topics.append(topic)
    return topics


def read_fetched(
    responses: Iterable[partition_pb2.FetchTopicResponse], split: SplitBatches
) -> tuple[FetchedPartition, ...]:
    """The leader's answers, with their batches cut and checked."""
    return tuple(
        _read_partition(TopicPartition(topic.topic_id, row.partition_index), row, split)
        for topic in responses
        for row in topic.partitions
    )


def _read_partition(
    tp: TopicPartition, row: partition_pb2.FetchPartitionResponse, split: SplitBatches
) -> FetchedPartition:
    # Reading the field copies it out of the message, so it is read once.
    payload = memoryview(row.records)
    batches: Sequence[BatchHeader] = ()
    corrupt = None
    if payload:
        try:
            batches = split(payload)
        except Refused as error:
            corrupt, payload = str(error.refusal), memoryview(b"")
    diverging = None
    if row.HasField("diverging_epoch"):
        diverging = _read_diverging(row.diverging_epoch)
        if diverging is None:
            corrupt = "diverging_epoch lacks epoch or end_offset; a leader must give both"
    return FetchedPartition(
        tp,
        read_error(row),
        Offset(row.high_watermark) if row.HasField("high_watermark") else None,
        Offset(row.log_start_offset) if row.HasField("log_start_offset") else None,
        diverging,
        tuple(batches),
        payload,
        corrupt,
    )


def _read_diverging(end: partition_pb2.EpochEndOffset) -> EpochEnd | None:
    if not end.HasField("epoch") or not end.HasField("end_offset"):
        return None
    return EpochEnd(LeaderEpoch(end.epoch), Offset(end.end_offset))
