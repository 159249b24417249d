"""OffsetForLeaderEpoch and ListOffsets on the wire, in both directions."""

from __future__ import annotations

import pytest
from fixed_topics import CLUSTER, ID, NAME, FixedTopics

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import (
    EARLIEST,
    LATEST,
    EpochEndAnswer,
    EpochEndQuestion,
    OffsetAnswer,
    OffsetQuestion,
    ReplicaState,
)
from strandline.core.types import EpochEnd, LeaderEpoch, NodeEpoch, NodeId, Offset, TopicPartition
from strandline.rpc.convert import offsets as convert
from strandline.v1 import leader_service_pb2 as pb

TP = TopicPartition(ID, 0)
REPLICA = ReplicaState(NodeId(2), NodeEpoch(7))
TOPICS = FixedTopics()


def test_epoch_questions_come_through_with_who_asks() -> None:
    """An undefined epoch stays undefined."""
    questions = (
        EpochEndQuestion(TP, LeaderEpoch(3), LeaderEpoch(5)),
        EpochEndQuestion(TopicPartition(ID, 1), None, LeaderEpoch(5)),
    )
    message = convert.epoch_ends_request(questions, cluster_id=CLUSTER, replica=REPLICA)

    assert convert.read_asker(message, TOPICS) == REPLICA
    assert convert.read_epoch_questions(message, TOPICS).parts == questions


def test_epoch_answers_come_through() -> None:
    """An undefined end is absent, never offset 0."""
    answers = (
        EpochEndAnswer(TP, EpochEnd(LeaderEpoch(3), Offset(10))),
        EpochEndAnswer(TopicPartition(ID, 1)),
        EpochEndAnswer(TopicPartition(ID, 2), refusal=Refusal(ErrorCode.FENCED_LEADER_EPOCH, "older")),
    )

    assert convert.read_epoch_ends(convert.epoch_ends_response(answers, (), TOPICS)) == answers


def test_a_follower_may_ask_for_both_ends_of_one_partition() -> None:
    """Latest and earliest of the same partition in one request, answered in order (M30)."""
    questions = (OffsetQuestion(TP, LATEST, LeaderEpoch(5)), OffsetQuestion(TP, EARLIEST, LeaderEpoch(5)))
    message = convert.list_offsets_request(questions, cluster_id=CLUSTER, replica=REPLICA)

    assert convert.read_offset_questions(message, TOPICS).parts == questions


def test_offset_answers_come_through() -> None:
    """Offset, timestamp and epoch come through, or their absence."""
    answers = (
        OffsetAnswer(TP, Offset(4), 1_700_000_000_000, LeaderEpoch(1)),
        OffsetAnswer(TopicPartition(ID, 1)),
        OffsetAnswer(TopicPartition(ID, 2), refusal=Refusal(ErrorCode.OFFSET_NOT_AVAILABLE, "new leader")),
    )

    assert convert.read_offsets(convert.offsets_response(answers, (), TOPICS)) == answers


def test_an_absent_timestamp_asks_for_the_latest() -> None:
    """ListOffsets without a timestamp means Kafka's -1."""
    message = pb.ListOffsetsRequest()
    message.topics.add(name=NAME).partitions.add(partition_index=0)

    assert convert.read_offset_questions(message, TOPICS).parts[0].timestamp == LATEST


def test_a_replica_must_name_the_epoch_it_knows() -> None:
    """Without current_leader_epoch a replica's request is INVALID_REQUEST."""
    message = pb.OffsetForLeaderEpochRequest(cluster_id=CLUSTER)
    message.replica_state.replica_id, message.replica_state.replica_epoch = REPLICA
    message.topics.add(topic_id=ID).partitions.add(partition=0, leader_epoch=1)

    with pytest.raises(Refused) as caught:
        convert.read_epoch_questions(message, TOPICS)

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST
