"""Fetch on the wire, for the server and for a follower.

Invariants: a request without ``replica_state`` is a consumer's and can never acknowledge anything; one with it
must name its epoch, its cluster and the leader epoch it knows (PROTOCOL.md#the-wire). A leader's answer is not trusted:
batches are split and their CRCs checked on arrival, and a damaged answer becomes ``corrupt`` with neither headers nor
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import grpc

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import BatchHeader, EpochEnd, LeaderEpoch, Offset, TopicPartition
from strandline.records.batch import CONTROL_BIT, Buffer, check_replicated
from strandline.records.codec import with_marker
from strandline.rpc.convert import errors
from strandline.rpc.convert.records import Decoded, FetchedBatches, Pace, decode_records
from strandline.rpc.wire_fields import RecordsApart, WithRecords, grouped, tag, varint
from strandline.v1 import follower_service_pb2, leader_service_pb2, partition_pb2

DEFAULT_REPLICA_WAIT_MS = 500
MAX_WAIT_MS = 60_000
DEFAULT_MAX_BYTES = 1 << 20
"""Default and cap of ``max_bytes`` and ``partition_max_bytes``."""

FetchMessage = (
    leader_service_pb2.FetchRequest
    | leader_service_pb2.FetchStreamRequest
    | follower_service_pb2.FollowerServiceFetchRequest
)


class FetchAsked(NamedTuple):
    """A fetch message: the core's request, and the partitions that are answered without the core."""

    request: messages.FetchRequest
    unresolved: tuple[errors.Unresolved, ...]
    starts: dict[TopicPartition, Offset] | None
    """The first offset of each partition's decoded records; None unless the caller asked for decoding."""

    @property
    def named(self) -> int:
        """The number of partitions that the caller named; its call holds them all in memory while it waits."""
        return len(self.request.partitions) + len(self.unresolved)

    def decoded(self, served: Iterable[messages.ServedPartition], pace: Pace) -> dict[TopicPartition, Decoded]:
        """The records that were read, as messages, for a caller that asked for decoding. It may run in any thread."""
        assert self.starts is not None, "the caller wants batches"
        fetched = [FetchedBatches(part.result.tp, bytes_of(part), part.result.aborted) for part in served]
        return decode_records(fetched, self.starts, pace)


def bytes_of(part: messages.ServedPartition) -> bytes:
    """The bytes that were read for one partition."""
    return part.payload  # type: ignore[return-value]  # the logs of a server are files, so what was read is bytes


def read_fetch(message: FetchMessage, topics: errors.Topics) -> FetchAsked:
    """Parse a fetch message.

    Raises:
        Refused: the message as a whole: INVALID_REQUEST, INCONSISTENT_CLUSTER_ID, or FETCH_SESSION_ID_NOT_FOUND for a
            session on unary Fetch.
    """
    replica = _replica_of(message)
    errors.check_cluster(
        message.cluster_id if message.HasField("cluster_id") else None, topics, required=replica is not None
    )
    if isinstance(message, leader_service_pb2.FetchRequest) and message.session_id != 0:
        raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session_id {message.session_id} must be 0")
    asked: errors.Asked[messages.FetchPartition] = errors.gather(
        [(topic.topic, topic.topic_id, topic.partitions) for topic in message.topics],
        topics,
        attrgetter("partition"),
        _read_partition,
    )
    if replica is not None:
        _check_replica_topics(message)
    request = messages.FetchRequest(
        asked.parts,
        replica,
        _wait_ms(message, replica),
        max(message.min_bytes, 0) if message.HasField("min_bytes") else 1,
        _capped(message.max_bytes) if message.HasField("max_bytes") else DEFAULT_MAX_BYTES,
        replica is None and message.isolation_level == partition_pb2.ISOLATION_LEVEL_READ_COMMITTED,
    )
    starts = {part.tp: part.fetch_offset for part in asked.parts} if message.decode else None
    return FetchAsked(request, asked.unresolved, starts)


def _replica_of(message: FetchMessage) -> messages.ReplicaState | None:
    if isinstance(message, follower_service_pb2.FollowerServiceFetchRequest) or not message.HasField("replica_state"):
        return None
    return errors.read_replica(message.replica_state)


def _check_replica_topics(message: FetchMessage) -> None:
    for topic in message.topics:
        if not topic.topic_id:
            raise errors.invalid(f"topic '{topic.topic}' is named without topic_id; a replica must give it")


def _read_partition(tp: TopicPartition, partition: partition_pb2.FetchPartition) -> messages.FetchPartition:
    return messages.FetchPartition(
        tp,
        Offset(partition.fetch_offset),
        LeaderEpoch(partition.current_leader_epoch) if partition.HasField("current_leader_epoch") else None,
        LeaderEpoch(partition.last_fetched_epoch) if partition.HasField("last_fetched_epoch") else None,
        Offset(partition.log_start_offset) if partition.HasField("log_start_offset") else None,
        _capped(partition.partition_max_bytes) if partition.HasField("partition_max_bytes") else DEFAULT_MAX_BYTES,
        partition.barrier_seen if partition.HasField("barrier_seen") else None,
    )


def _wait_ms(message: FetchMessage, replica: messages.ReplicaState | None) -> int:
    if message.HasField("max_wait_ms"):
        return min(max(message.max_wait_ms, 0), MAX_WAIT_MS)
    return 0 if replica is None else DEFAULT_REPLICA_WAIT_MS


def _capped(max_bytes: int) -> int:
    return DEFAULT_MAX_BYTES if max_bytes >= DEFAULT_MAX_BYTES else max(max_bytes, 1)


def fetch_topics(
    served: Iterable[messages.ServedPartition],
    unresolved: Iterable[errors.Unresolved],
    topics: errors.Topics,
    decoded: Mapping[TopicPartition, Decoded] | None = None,
) -> list[partition_pb2.FetchTopicResponse]:
    """The answers of a fetch, by topic. With ``decoded`` they hold its records instead of batches."""
    answers = []
    for topic_id, parts in errors.by_topic(served, attrgetter("result.tp")):
        answer = partition_pb2.FetchTopicResponse(topic=topics.name_of(topic_id), topic_id=topic_id)
        for part in parts:
            row = answer.partitions.add()
            _write_row(row, part.result, topics)
            if decoded is None:
                row.records = bytes_of(part)
            elif part.payload:
                records, refusal, next_offset = decoded[part.result.tp]
                row.simple_records.extend(records)
                errors.write_error(row, refusal)
                if next_offset is not None:
                    row.next_offset = next_offset
        answers.append(answer)
    for (name, topic_id), not_found in errors.unresolved_by_topic(unresolved):
        answer = partition_pb2.FetchTopicResponse(topic=name, topic_id=topic_id)
        for lost in not_found:
            errors.write_error(answer.partitions.add(partition_index=lost.partition), lost.refusal)
        answers.append(answer)
    return answers


def row_without_records(result: messages.FetchResult, topics: errors.Topics) -> partition_pb2.FetchPartitionResponse:
    """One partition's answer without its records."""
    row = partition_pb2.FetchPartitionResponse()
    _write_row(row, result, topics)
    return row


def _write_row(row: partition_pb2.FetchPartitionResponse, result: messages.FetchResult, topics: errors.Topics) -> None:
    row.partition_index = result.tp.partition
    if result.refusal is not None:
        errors.write_error(row, result.refusal)
        if result.leader_hint is not None and errors.wants_leader(result.refusal):
            errors.write_leader(row.current_leader, result.leader_hint, topics)
    if result.high_watermark is not None:
        row.high_watermark = result.high_watermark
        stable = result.last_stable_offset
        row.last_stable_offset = result.high_watermark if stable is None else stable
    if result.log_start_offset is not None:
        row.log_start_offset = result.log_start_offset
    if result.diverging is not None:
        row.diverging_epoch.epoch, row.diverging_epoch.end_offset = result.diverging
    if result.barrier is not None:
        row.barrier = result.barrier
    for transaction in result.aborted:
        row.aborted_transactions.add(producer_id=transaction.producer_id, first_offset=transaction.first_offset)


def fetch_stream_message(
    request: messages.FetchRequest, *, cluster_id: str, correlation_id: int
) -> leader_service_pb2.FetchStreamRequest:
    """A replica's fetch as a message of its stream."""
    message = leader_service_pb2.FetchStreamRequest(
        correlation_id=correlation_id,
        cluster_id=cluster_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
    )
    _write_topics(message, request.partitions)
    if request.replica is not None:
        errors.write_replica(message.replica_state, request.replica)
    return message


def forget_message(
    partitions: Iterable[TopicPartition], *, cluster_id: str, correlation_id: int
) -> leader_service_pb2.FetchStreamRequest:
    """A stream message that does nothing but end parked fetches."""
    message = leader_service_pb2.FetchStreamRequest(correlation_id=correlation_id, cluster_id=cluster_id)
    for topic_id, parts in errors.by_topic(partitions, lambda tp: tp):
        message.forgotten_topics_data.add(topic_id=topic_id, partitions=[tp.partition for tp in parts])
    return message


def _write_topics(
    message: leader_service_pb2.FetchStreamRequest, partitions: Iterable[messages.FetchPartition]
) -> None:
    for topic_id, parts in errors.by_topic(partitions, attrgetter("tp")):
        topic = message.topics.add(topic_id=topic_id)
        for part in parts:
            topic.partitions.add(
                partition=part.tp.partition,
                fetch_offset=part.fetch_offset,
                partition_max_bytes=part.max_bytes,
                current_leader_epoch=part.current_leader_epoch,
                last_fetched_epoch=part.last_fetched_epoch,
                log_start_offset=part.log_start_offset,
                barrier_seen=part.barrier_seen,
            )


STREAM_ANSWERS = RecordsApart(leader_service_pb2.FetchStreamResponse, "responses", "partitions")
_FETCH_STREAM = f"/{leader_service_pb2.DESCRIPTOR.services_by_name['LeaderService'].full_name}/FetchStream"

StreamAnswer = WithRecords[leader_service_pb2.FetchStreamResponse]


def open_fetch_stream(
    channel: grpc.aio.Channel,
) -> grpc.aio.StreamStreamCall[leader_service_pb2.FetchStreamRequest, StreamAnswer]:
    """A FetchStream whose answers leave their records where they arrived."""
    method: grpc.aio.StreamStreamMultiCallable[leader_service_pb2.FetchStreamRequest, StreamAnswer]
    encode = leader_service_pb2.FetchStreamRequest.SerializeToString
    method = channel.stream_stream(_FETCH_STREAM, encode, STREAM_ANSWERS.read)
    return method()


def read_fetched(answer: StreamAnswer) -> tuple[messages.FetchedPartition, ...]:
    """The leader's answers, with their batches split and checked; the core checks at which offset they begin."""
    records = iter(answer.records)
    return tuple(
        _read_answer(TopicPartition(topic.topic_id, row.partition_index), row, payload)
        for topic in answer.message.responses
        for row, payload in zip(topic.partitions, records, strict=False)
    )


def _read_answer(
    tp: TopicPartition, row: partition_pb2.FetchPartitionResponse, payload: memoryview
) -> messages.FetchedPartition:
    batches: Sequence[BatchHeader] = ()
    corrupt = None
    if payload:
        try:
            batches = [
                with_marker(header, view) if header.attributes & CONTROL_BIT else header
                for header, view in check_replicated(payload)
            ]
        except Refused as error:
            corrupt, payload = str(error.refusal), memoryview(b"")
    diverging = None
    if row.HasField("diverging_epoch"):
        diverging = _read_diverging(row.diverging_epoch)
        if diverging is None:
            corrupt = "diverging_epoch lacks epoch or end_offset; a leader must give both"
    return messages.FetchedPartition(
        tp,
        errors.read_error(row),
        Offset(row.high_watermark) if row.HasField("high_watermark") else None,
        Offset(row.log_start_offset) if row.HasField("log_start_offset") else None,
        diverging,
        tuple(batches),
        payload,
        corrupt,
        row.barrier if row.HasField("barrier") else None,
    )


def _read_diverging(end: partition_pb2.EpochEndOffset) -> EpochEnd | None:
    if not end.HasField("epoch") or not end.HasField("end_offset"):
        return None
    return EpochEnd(LeaderEpoch(end.epoch), Offset(end.end_offset))


# ---- fetch_answers
# Encodes the answers of a FetchStream around their records, which are not copied.
#
# As protobuf objects the records would be copied three times: into their row, with it into the answer, and out of it.
# An encoded message is its fields one after the other, in any order. So a topic that was encoded without its rows is
# completed by appending them, and a row by appending its records.
#
# Invariant: the bytes decode to the same message that `fetch_topics` makes of the same values.

_RESPONSES = tag(leader_service_pb2.FetchStreamResponse, "responses")
_PARTITIONS = tag(partition_pb2.FetchTopicResponse, "partitions")
_RECORDS = tag(partition_pb2.FetchPartitionResponse, "records")


def encode_fetch_answer(
    correlation_id: int,
    served: Iterable[messages.ServedPartition],
    unresolved: Sequence[errors.Unresolved],
    topics: errors.Topics,
    throttle_time_ms: int = 0,
) -> list[Buffer]:
    """An encoded `FetchStreamResponse` that answers these partitions, in pieces."""
    head = leader_service_pb2.FetchStreamResponse(correlation_id=correlation_id, throttle_time_ms=throttle_time_ms)
    if unresolved:
        head.responses.extend(fetch_topics((), unresolved, topics))
    pieces: list[bytes] = [head.SerializeToString()]
    for topic_id, parts in errors.by_topic(served, attrgetter("result.tp")):
        topic = _topic(topic_id, parts, topics)
        pieces += (_RESPONSES, varint(sum(map(len, topic))), *topic)
    return grouped(pieces)


@lru_cache(1_024)
def _topic_without_rows(name: str, topic_id: str) -> bytes:
    return bytes(partition_pb2.FetchTopicResponse(topic=name, topic_id=topic_id).SerializeToString())


def _topic(topic_id: str, parts: Iterable[messages.ServedPartition], topics: errors.Topics) -> list[bytes]:
    pieces = [_topic_without_rows(topics.name_of(topic_id), topic_id)]
    for part in parts:
        row = row_without_records(part.result, topics).SerializeToString()
        payload = bytes_of(part)
        if payload:
            length = varint(len(payload))
            size_bytes = len(row) + len(_RECORDS) + len(length) + len(payload)
            pieces += (_PARTITIONS, varint(size_bytes), row, _RECORDS, length, payload)
        else:
            pieces += (_PARTITIONS, varint(len(row)), row)
    return pieces
