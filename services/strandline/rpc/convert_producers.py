"""FetchProducerSnapshot on the wire, in both directions.

Invariant: a batch is read back as it was remembered; a number that no log gives is refused by the replica's core, not
here.
"""

from __future__ import annotations

from strandline.core.messages import ProducerSnapshotAnswer, ProducerSnapshotQuestion, ReplicaState
from strandline.core.types import (
    LastMarker,
    LeaderEpoch,
    Offset,
    OpenTransaction,
    ProducerBatch,
    TopicPartition,
    TransactionState,
)
from strandline.rpc.addressing import Topics, check_cluster, invalid, write_replica
from strandline.rpc.convert_errors import read_error, write_error
from strandline.v1 import leader_service_pb2 as pb


def read_producer_question(message: pb.FetchProducerSnapshotRequest, topics: Topics) -> ProducerSnapshotQuestion:
    """What a replica asks.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST: replica_state, topic_id or current_leader_epoch is absent.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics, required=True)
    if not message.HasField("replica_state"):
        raise invalid("replica_state is absent; only a replica asks for producer state")
    if not message.topic_id:
        raise invalid("topic_id is empty; give the id of the topic")
    if not message.HasField("current_leader_epoch"):
        raise invalid("current_leader_epoch is absent; a replica must give it")
    tp = TopicPartition(message.topic_id, message.partition)
    return ProducerSnapshotQuestion(tp, LeaderEpoch(message.current_leader_epoch))


def write_producer_snapshot(answer: ProducerSnapshotAnswer) -> pb.FetchProducerSnapshotResponse:
    """A leader's answer."""
    response = pb.FetchProducerSnapshotResponse(log_start_offset=answer.log_start_offset)
    write_error(response, answer.refusal)
    for row in answer.producers:
        response.batches.add(**row._asdict())
    for transaction in answer.transactions.open:
        response.open_transactions.add(**transaction._asdict())
    for marker in answer.transactions.markers:
        response.markers.add(**marker._asdict())
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
    write_replica(request.replica_state, replica)
    return request


def read_producer_snapshot(response: pb.FetchProducerSnapshotResponse, tp: TopicPartition) -> ProducerSnapshotAnswer:
    """The leader's answer."""
    return ProducerSnapshotAnswer(
        tp,
        Offset(response.log_start_offset) if response.HasField("log_start_offset") else None,
        tuple(
            ProducerBatch(
                row.producer_id,
                row.producer_epoch,
                row.first_sequence,
                row.last_sequence,
                Offset(row.first_offset),
                Offset(row.last_offset),
                row.timestamp_ms,
            )
            for row in response.batches
        ),
        read_error(response),
        TransactionState(
            open=tuple(
                OpenTransaction(row.producer_id, Offset(row.first_offset)) for row in response.open_transactions
            ),
            markers=tuple(
                LastMarker(
                    row.producer_id,
                    row.producer_epoch,
                    row.coordinator_epoch,
                    Offset(row.offset),
                    row.timestamp_ms,
                )
                for row in response.markers
            ),
        ),
    )
