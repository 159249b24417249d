"""Produce on the wire, in both directions; unary and stream carry the same topics.

Invariant: absent ``acks`` is -1, never 0 (an omitted field must not become fire-and-forget), and records
stay the very bytes that came.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.events import ProduceArrived
from strandline.core.messages import ProducePartition, ProduceResult
from strandline.core.types import Acks, BatchHeader, Offset, TopicPartition
from strandline.records.batch import check_one_batch
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
from strandline.rpc.convert_errors import (
    outcome_to_wire,
    wants_leader,
    write_error,
    write_leader,
)
from strandline.rpc.convert_records import encode_records
from strandline.v1 import leader_service_pb2 as pb

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 600_000
"""Longest a produce may wait in the purgatory, whatever it asks for."""

ProduceMessage = pb.ProduceRequest | pb.ProduceStreamRequest

_ACKS = {int(acks): acks for acks in Acks}
_NO_HEADER = BatchHeader(Offset(0), None, 0, 0, 0)


class ProduceAsked(NamedTuple):
    """A produce message as the core takes it, and what is answered without the core."""

    acks: Acks
    timeout_ms: int
    parts: tuple[ProducePartition, ...]
    unresolved: tuple[Unresolved, ...]
    size_bytes: int = 0
    """The whole message, if it carries more than batches that are appended; it stays in memory while its call waits."""
    transactional_id: str | None = None

    def arrives(self, now_ms: int, request_id: int) -> ProduceArrived:
        """The core's event; ``now_ms`` is monotonic."""
        return ProduceArrived(
            now_ms, request_id, self.acks, self.timeout_ms, self.parts, self.size_bytes, self.transactional_id
        )


def holds_single_records(message: ProduceMessage) -> bool:
    """Whether any partition's records came as messages; encoding those takes too long for the event loop."""
    for topic in message.topic_data:
        for partition in topic.partition_data:
            if partition.simple_records:
                return True
    return False


def read_produce(message: ProduceMessage, topics: Topics, now_ms: int | None = None) -> ProduceAsked:
    """Take a produce message apart and check each batch, without parsing its records.

    ``now_ms``, wall-clock, is the time of single records without one. Without it a partition must hold a batch.

    Raises:
        Refused: INVALID_REQUIRED_ACKS or INVALID_REQUEST for the message as a whole, both NOT_APPENDED.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    acks = _read_acks(message.acks) if message.HasField("acks") else Acks.ALL
    timeout_ms = message.timeout_ms if message.HasField("timeout_ms") else DEFAULT_TIMEOUT_MS
    if timeout_ms < 0:
        raise invalid(f"timeout_ms {timeout_ms} must not be negative")

    def build(tp: TopicPartition, partition: pb.ProducePartition) -> ProducePartition:
        return _read_part(tp, partition, now_ms)

    asked: Asked[ProducePartition] = gather(
        [(topic.name, topic.topic_id, topic.partition_data) for topic in message.topic_data],
        topics,
        attrgetter("index"),
        build,
    )
    if not asked.parts and not asked.unresolved:
        raise invalid("topic_data names no partition; give at least one")
    return ProduceAsked(
        acks,
        min(timeout_ms, MAX_TIMEOUT_MS),
        asked.parts,
        asked.unresolved,
        _size_beyond_batches(message, asked, now_ms),
        message.transactional_id if message.HasField("transactional_id") else None,
    )


def _size_beyond_batches(message: ProduceMessage, asked: Asked[ProducePartition], now_ms: int | None) -> int:
    """The message's size if it holds more than the batches that are appended, else 0: measuring costs a copy."""
    if now_ms is None and not asked.unresolved:
        for part in asked.parts:
            if part.invalid is not None:
                break
        else:
            return 0
    return int(message.ByteSize())


def _read_acks(number: int) -> Acks:
    acks = _ACKS.get(number)
    if acks is None:
        message = f"acks {number} must be 0, 1 or -1 (all in-sync replicas)"
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, message, Outcome.NOT_APPENDED)
    return acks


def _read_part(tp: TopicPartition, partition: pb.ProducePartition, now_ms: int | None) -> ProducePartition:
    try:
        payload = partition.records
        if now_ms is not None and partition.simple_records:
            if payload:
                raise invalid("records and simple_records are both given; give one of them")
            payload = encode_records(partition.simple_records, now_ms)
        return ProducePartition(tp, check_one_batch(payload), memoryview(payload))
    except Refused as error:
        return ProducePartition(tp, _NO_HEADER, b"", error.refusal)


def produce_topics(
    results: Iterable[ProduceResult], unresolved: Iterable[Unresolved], topics: Topics, acks: Acks
) -> list[pb.ProduceTopicResponse]:
    """The answers of a produce, by topic; with acks=0 the base offset stays absent."""
    answers = []
    for topic_id, parts in by_topic(results, attrgetter("tp")):
        answer = pb.ProduceTopicResponse(name=topics.name_of(topic_id), topic_id=topic_id)
        for result in parts:
            _write_result(answer.partition_responses.add(), result, topics, acks)
        answers.append(answer)
    for (name, topic_id), not_found in unresolved_by_topic(unresolved):
        answer = pb.ProduceTopicResponse(name=name, topic_id=topic_id)
        for part in not_found:
            row = answer.partition_responses.add(index=part.partition)
            write_error(row, part.refusal)
            row.outcome = pb.PRODUCE_OUTCOME_NOT_APPENDED
        answers.append(answer)
    return answers


def _write_result(row: pb.ProducePartitionResponse, result: ProduceResult, topics: Topics, acks: Acks) -> None:
    row.index = result.tp.partition
    if result.refusal is not None:
        write_error(row, result.refusal)
        row.outcome = outcome_to_wire(result.refusal.outcome)
        if result.leader_hint is not None and wants_leader(result.refusal):
            write_leader(row.current_leader, result.leader_hint, topics)
    elif result.base_offset is not None and acks is not Acks.NONE:
        row.base_offset = result.base_offset
    if result.log_start_offset is not None:
        row.log_start_offset = result.log_start_offset


def refused_stream_answer(correlation_id: int, refusal: Refusal) -> pb.ProduceStreamResponse:
    """The answer to a stream message that was refused as a whole; its stream stays open."""
    answer = pb.ProduceStreamResponse(correlation_id=correlation_id)
    write_error(answer, refusal)
    return answer
