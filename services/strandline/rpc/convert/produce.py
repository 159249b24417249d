"""Produce on the wire, in both directions; the unary call and the stream carry the same topics.

Invariant: absent ``acks`` is -1, never 0 (an omitted field must not become fire-and-forget), and records stay exactly
the bytes that arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.log.events import ProduceArrived
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.transactions.messages import MarkerQuestion
from strandline.core.types import Acks, BatchHeader, Marker, Offset, TopicPartition
from strandline.records.batch import Batch, check_one_batch
from strandline.records.codec import encode_marker
from strandline.rpc.convert import errors
from strandline.rpc.convert.records import encode_records
from strandline.rpc.wire_fields import RecordsApart, WithRecords
from strandline.v1 import leader_service_pb2 as pb

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 600_000
"""The longest time that a produce may wait in the purgatory, whatever its timeout_ms."""

ProduceMessage = WithRecords[pb.ProduceRequest] | WithRecords[pb.ProduceStreamRequest]

REQUESTS = RecordsApart(pb.ProduceRequest, "topic_data", "partition_data")
STREAM_REQUESTS = RecordsApart(pb.ProduceStreamRequest, "topic_data", "partition_data")

_ACKS = {int(acks): acks for acks in Acks}
_NO_HEADER = BatchHeader(Offset(0), None, 0, 0, 0)


_Row = tuple[pb.ProducePartition, memoryview]


class ProduceAsked(NamedTuple):
    """A produce message: the parts for the core, and the partitions that are answered without the core."""

    acks: Acks
    timeout_ms: int
    parts: tuple[ProducePartition, ...]
    unresolved: tuple[errors.Unresolved, ...]
    size_bytes: int = 0
    """Size of a message that is more than appended batches, else 0; it stays in memory while its call waits."""
    transactional_id: str | None = None

    def arrives(self, now_ms: int, request_id: int) -> ProduceArrived:
        """The core's event; ``now_ms`` is monotonic."""
        return ProduceArrived(
            now_ms, request_id, self.acks, self.timeout_ms, self.parts, self.size_bytes, self.transactional_id
        )


def holds_single_records(message: ProduceMessage) -> bool:
    """Whether any partition's records came as messages; encoding those takes too long for the event loop."""
    return any(partition.simple_records for topic in message.message.topic_data for partition in topic.partition_data)


def read_produce(arrived: ProduceMessage, topics: errors.Topics, now_ms: int | None = None) -> ProduceAsked:
    """Parse a produce message and check each batch, without parsing its records.

    ``now_ms``, wall-clock, is the timestamp of single records that have none. Without it single records are refused.

    Raises:
        Refused: INVALID_REQUIRED_ACKS or INVALID_REQUEST for the message as a whole, both NOT_APPENDED.
    """
    message, records = arrived.message, iter(arrived.records)
    errors.check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    acks = _read_acks(message.acks) if message.HasField("acks") else Acks.ALL
    timeout_ms = message.timeout_ms if message.HasField("timeout_ms") else DEFAULT_TIMEOUT_MS
    if timeout_ms < 0:
        raise errors.invalid(f"timeout_ms {timeout_ms} must not be negative")

    def build(tp: TopicPartition, row: _Row) -> ProducePartition:
        return _read_part(tp, *row, now_ms)

    asked: errors.Asked[ProducePartition] = errors.gather(
        [(one.name, one.topic_id, list(zip(one.partition_data, records, strict=False))) for one in message.topic_data],
        topics,
        lambda row: row[0].index,
        build,
    )
    if not asked.parts and not asked.unresolved:
        raise errors.invalid("topic_data names no partition; give at least one")
    return ProduceAsked(
        acks,
        min(timeout_ms, MAX_TIMEOUT_MS),
        asked.parts,
        asked.unresolved,
        _size_beyond_batches(arrived, asked, now_ms),
        message.transactional_id if message.HasField("transactional_id") else None,
    )


def _size_beyond_batches(message: ProduceMessage, asked: errors.Asked[ProducePartition], now_ms: int | None) -> int:
    """The message's size if it holds more than the batches that are appended, else 0."""
    is_all_appended = now_ms is None and not asked.unresolved and all(part.invalid is None for part in asked.parts)
    return 0 if is_all_appended else message.size_bytes


def _read_acks(number: int) -> Acks:
    acks = _ACKS.get(number)
    if acks is None:
        message = f"acks {number} must be 0, 1 or -1 (all in-sync replicas)"
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, message, Outcome.NOT_APPENDED)
    return acks


def _read_part(
    tp: TopicPartition, partition: pb.ProducePartition, payload: memoryview, now_ms: int | None
) -> ProducePartition:
    try:
        if now_ms is not None and partition.simple_records:
            if payload:
                raise errors.invalid("records and simple_records are both given; give one of them")
            payload = memoryview(encode_records(partition.simple_records, now_ms))
        return ProducePartition(tp, check_one_batch(payload), payload)
    except Refused as error:
        return ProducePartition(tp, _NO_HEADER, b"", error.refusal)


def produce_topics(
    results: Iterable[ProduceResult], unresolved: Iterable[errors.Unresolved], topics: errors.Topics, acks: Acks
) -> list[pb.ProduceTopicResponse]:
    """The answers of a produce, by topic; with acks=0 the base offset stays absent."""
    answers = []
    for topic_id, parts in errors.by_topic(results, attrgetter("tp")):
        answer = pb.ProduceTopicResponse(name=topics.name_of(topic_id), topic_id=topic_id)
        for result in parts:
            _write_result(answer.partition_responses.add(), result, topics, acks)
        answers.append(answer)
    for (name, topic_id), not_found in errors.unresolved_by_topic(unresolved):
        answer = pb.ProduceTopicResponse(name=name, topic_id=topic_id)
        for part in not_found:
            row = answer.partition_responses.add(index=part.partition)
            errors.write_error(row, part.refusal)
            row.outcome = pb.PRODUCE_OUTCOME_NOT_APPENDED
        answers.append(answer)
    return answers


def _write_result(row: pb.ProducePartitionResponse, result: ProduceResult, topics: errors.Topics, acks: Acks) -> None:
    row.index = result.tp.partition
    if result.refusal is not None:
        errors.write_error(row, result.refusal)
        row.outcome = errors.outcome_to_wire(result.refusal.outcome)
        if result.leader_hint is not None and errors.wants_leader(result.refusal):
            errors.write_leader(row.current_leader, result.leader_hint, topics)
    elif result.base_offset is not None and acks is not Acks.NONE:
        row.base_offset = result.base_offset
    if result.log_start_offset is not None:
        row.log_start_offset = result.log_start_offset


def refused_stream_answer(correlation_id: int, refusal: Refusal) -> pb.ProduceStreamResponse:
    """The answer to a stream message that was refused as a whole; its stream stays open."""
    answer = pb.ProduceStreamResponse(correlation_id=correlation_id)
    errors.write_error(answer, refusal)
    return answer


# ---- convert_markers
# WriteTxnMarkers on the wire: markers become control batches, and their results are written marker by marker.
#
# Invariant: every partition of every marker is answered once, in the order of the request, whether or not the core was
# asked; a marker is one control batch for all its partitions.

_MOST_EPOCH, _MOST_COORDINATOR_EPOCH = (1 << 15) - 1, (1 << 31) - 1


class MarkersAsked(NamedTuple):
    """A request's markers: the parts for the core, and the partitions that are answered without the core."""

    parts: tuple[ProducePartition, ...]
    counts: tuple[int, ...]
    """The number of ``parts`` of each marker."""
    unresolved: tuple[tuple[errors.Unresolved, ...], ...]
    """The partitions of each marker that are answered without the core."""

    def arrives(self, now_ms: int, request_id: int, within_ms: int) -> ProduceArrived:
        """The core's event: a marker is appended by the rules of acks=all (X11)."""
        return ProduceArrived(now_ms, request_id, Acks.ALL, within_ms, self.parts)


def read_markers(request: pb.WriteTxnMarkersRequest, topics: errors.Topics, now_ms: int) -> MarkersAsked:
    """The markers of a request; ``now_ms``, wall-clock, is the timestamp of their records.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: there is no marker, a marker names no partition or one twice,
            or its producer id or an epoch is out of range.
    """
    errors.check_cluster(request.cluster_id if request.HasField("cluster_id") else None, topics, required=True)
    if not request.markers:
        raise errors.invalid("markers is empty; give at least one")
    parts: list[ProducePartition] = []
    counts: list[int] = []
    unresolved: list[tuple[errors.Unresolved, ...]] = []
    for marker in request.markers:
        asked = errors.gather(
            [(topic.topic, topic.topic_id, topic.partitions) for topic in marker.topics],
            topics,
            int,
            partial(_part, _encode(marker, now_ms)),
        )
        if not asked.parts and not asked.unresolved:
            raise errors.invalid(f"the marker of producer {marker.producer_id} names no partition; give at least one")
        parts += asked.parts
        counts.append(len(asked.parts))
        unresolved.append(asked.unresolved)
    return MarkersAsked(tuple(parts), tuple(counts), tuple(unresolved))


def _part(batch: Batch, tp: TopicPartition, _: int) -> ProducePartition:
    return ProducePartition(tp, batch.header, batch.view)


def _encode(marker: pb.WritableTxnMarker, now_ms: int) -> Batch:
    if marker.producer_id < 0:
        raise errors.invalid(f"producer_id {marker.producer_id} must not be negative")
    if not 0 <= marker.producer_epoch <= _MOST_EPOCH:
        raise errors.invalid(f"producer_epoch {marker.producer_epoch} must be 0 to {_MOST_EPOCH}")
    if not 0 <= marker.coordinator_epoch <= _MOST_COORDINATOR_EPOCH:
        raise errors.invalid(f"coordinator_epoch {marker.coordinator_epoch} must not be negative")
    said = Marker(marker.transaction_result, marker.coordinator_epoch)
    return encode_marker(
        said, producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, timestamp_ms=now_ms
    )


def markers_response(
    request: pb.WriteTxnMarkersRequest, asked: MarkersAsked, results: Sequence[ProduceResult], topics: errors.Topics
) -> pb.WriteTxnMarkersResponse:
    """The answer: the result of each marker in each partition."""
    response = pb.WriteTxnMarkersResponse()
    for marker, own, not_found in zip(request.markers, _shares(results, asked.counts), asked.unresolved, strict=True):
        row = response.markers.add(producer_id=marker.producer_id)
        for topic_id, parts in errors.by_topic(own, lambda result: result.tp):
            topic = row.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
            for result in parts:
                errors.write_error(topic.partitions.add(partition_index=result.tp.partition), result.refusal)
        for (name, topic_id), lost in errors.unresolved_by_topic(not_found):
            topic = row.topics.add(name=name, topic_id=topic_id)
            for one in lost:
                errors.write_error(topic.partitions.add(partition_index=one.partition), one.refusal)
    return response


def _shares(results: Sequence[ProduceResult], counts: Iterable[int]) -> Iterator[Sequence[ProduceResult]]:
    start = 0
    for count in counts:
        yield results[start : start + count]
        start += count


def markers_request(
    markers: Sequence[MarkerQuestion], topics: errors.Topics, cluster_id: str
) -> pb.WriteTxnMarkersRequest:
    """The markers that this node's coordinators have for one leader: one entry per marker and partition, in order."""
    request = pb.WriteTxnMarkersRequest(cluster_id=cluster_id)
    for _, coordinator_epoch, marker in markers:
        request.markers.add(
            producer_id=marker.identity.producer_id,
            producer_epoch=marker.identity.producer_epoch,
            transaction_result=marker.committed,
            coordinator_epoch=coordinator_epoch,
            topics=errors.named([marker.tp], topics),
        )
    return request


def read_marker_results(response: pb.WriteTxnMarkersResponse, count: int) -> tuple[Refusal | None, ...]:
    """The result of each of the ``count`` entries of `markers_request`; UNKNOWN_SERVER_ERROR if the answer does not
    match them."""
    found = [[part for topic in row.topics for part in topic.partitions] for row in response.markers]
    if len(found) != count or any(len(parts) != 1 for parts in found):
        lost = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader's answer does not fit the markers it was sent")
        return (lost,) * count
    return tuple(errors.read_error(parts[0]) for parts in found)
