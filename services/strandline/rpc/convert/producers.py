"""FetchProducerSnapshot on the wire, in both directions.

Invariant: a producer's batches are read exactly as they were written; impossible numbers are refused by the replica's
core, not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.core.errors import Refusal
from strandline.core.messages import ProducerSnapshotAnswer, ProducerSnapshotQuestion, ReplicaState
from strandline.core.types import (
    ActiveProducer,
    LastMarker,
    LeaderEpoch,
    Offset,
    OpenTransaction,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)
from strandline.rpc.convert import errors
from strandline.rpc.convert.by_name import ByName
from strandline.v1 import leader_service_pb2 as pb

_BATCH = ByName(ProducerBatch, pb.ProducerBatchEntry)
_OPEN = ByName(OpenTransaction, pb.OpenTransactionEntry)
_MARKER = ByName(LastMarker, pb.LastMarkerEntry)
_ACTIVE = ByName(
    ActiveProducer, pb.ActiveProducer, last_timestamp_ms="last_timestamp", open_since="current_txn_start_offset"
)


def read_producer_question(message: pb.FetchProducerSnapshotRequest, topics: errors.Topics) -> ProducerSnapshotQuestion:
    """A replica's question.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: replica_state, topic_id or current_leader_epoch is absent.
    """
    errors.check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics, required=True)
    if not message.HasField("replica_state"):
        raise errors.invalid("replica_state is absent; only a replica asks for producer state")
    if not message.topic_id:
        raise errors.invalid("topic_id is empty; give the id of the topic")
    if not message.HasField("current_leader_epoch"):
        raise errors.invalid("current_leader_epoch is absent; a replica must give it")
    tp = TopicPartition(message.topic_id, message.partition)
    return ProducerSnapshotQuestion(tp, LeaderEpoch(message.current_leader_epoch))


def write_producer_snapshot(answer: ProducerSnapshotAnswer) -> pb.FetchProducerSnapshotResponse:
    """A leader's answer."""
    response = pb.FetchProducerSnapshotResponse(log_start_offset=answer.log_start_offset)
    errors.write_error(response, answer.refusal)
    response.batches.extend(_BATCH.write_all(answer.producers))
    response.open_transactions.extend(_OPEN.write_all(answer.transactions.open))
    response.markers.extend(_MARKER.write_all(answer.transactions.markers))
    return response


def producer_snapshot_request(
    question: ProducerSnapshotQuestion, *, cluster_id: str, replica: ReplicaState
) -> pb.FetchProducerSnapshotRequest:
    """A replica's question."""
    request = pb.FetchProducerSnapshotRequest(
        cluster_id=cluster_id,
        topic_id=question.tp.topic_id,
        partition=question.tp.partition,
        current_leader_epoch=question.current_leader_epoch,
    )
    errors.write_replica(request.replica_state, replica)
    return request


def read_producer_snapshot(response: pb.FetchProducerSnapshotResponse, tp: TopicPartition) -> ProducerSnapshotAnswer:
    """The leader's answer."""
    return ProducerSnapshotAnswer(
        tp,
        Offset(response.log_start_offset) if response.HasField("log_start_offset") else None,
        _BATCH.read_all(response.batches),
        errors.read_error(response),
        TransactionState(open=_OPEN.read_all(response.open_transactions), markers=_MARKER.read_all(response.markers)),
    )


# ---- convert_active_producers
# DescribeProducers on the wire.
#
# Invariant: what a producer does not have (a sequence, a coordinator, an open transaction) is absent, never 0.

MOST_PRODUCERS = 100_000
"""Most producers of one partition in one answer, about 4 MB."""


def read_described(request: pb.DescribeProducersRequest, topics: errors.Topics) -> errors.Asked[TopicPartition]:
    """The partitions whose producers are requested.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: no partition is named, or one twice.
    """
    errors.check_cluster(request.cluster_id if request.HasField("cluster_id") else None, topics)
    asked = errors.gather(
        [(topic.topic, topic.topic_id, topic.partitions) for topic in request.topics], topics, int, lambda tp, _: tp
    )
    if not asked.parts and not asked.unresolved:
        raise errors.invalid("topics names no partition; give at least one")
    return asked


def producers_response(
    found: Mapping[TopicPartition, Sequence[ActiveProducer] | Refusal],
    unresolved: Iterable[errors.Unresolved],
    topics: errors.Topics,
) -> pb.DescribeProducersResponse:
    """The answer, by topic."""
    response = pb.DescribeProducersResponse()
    for topic_id, tps in errors.by_topic(found, lambda tp: tp):
        topic = response.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for tp in tps:
            row, producers = topic.partitions.add(partition_index=tp.partition), found[tp]
            if isinstance(producers, Refusal):
                errors.write_error(row, producers)
            else:
                row.active_producers.extend(_ACTIVE.write_all(producers[:MOST_PRODUCERS]))
    for (name, topic_id), not_found in errors.unresolved_by_topic(unresolved):
        topic = response.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            errors.write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response
