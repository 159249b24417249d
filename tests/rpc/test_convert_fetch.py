"""Fetch, offsets and single records on the wire; a leader's bytes are never trusted."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_topics import CLUSTER, ID, NAME, FixedTopics

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import (
    EARLIEST,
    LATEST,
    EpochEndAnswer,
    EpochEndQuestion,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResult,
    OffsetAnswer,
    OffsetQuestion,
    ReplicaState,
    ServedPartition,
)
from strandline.core.types import EpochEnd, LeaderEpoch, NodeEpoch, NodeId, Offset, TopicPartition
from strandline.records.batch import parse_header, stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.convert import offsets as convert
from strandline.rpc.convert.errors import Unresolved, read_error, read_forgotten
from strandline.rpc.convert.fetch import (
    STREAM_ANSWERS,
    fetch_stream_message,
    fetch_topics,
    forget_message,
    read_fetch,
    read_fetched,
)
from strandline.rpc.convert.records import Decoded, FetchedBatches, decode_records, encode_records
from strandline.v1 import follower_service_pb2, leader_service_pb2 as pb, partition_pb2, record_pb2

TP = TopicPartition(ID, 0)
REPLICA = ReplicaState(NodeId(2), NodeEpoch(7))


def _message(*, replica: bool = False, without: str = "", **fields: Any) -> pb.FetchRequest:
    row = partition_pb2.FetchPartition(partition=0, fetch_offset=5, current_leader_epoch=3, last_fetched_epoch=2)
    message = pb.FetchRequest(
        topics=[partition_pb2.FetchTopic(topic=NAME, topic_id=ID, partitions=[row])], cluster_id=CLUSTER, **fields
    )
    if replica:
        message.replica_state.replica_id, message.replica_state.replica_epoch = REPLICA
    for target in (message, message.topics[0], message.topics[0].partitions[0], message.replica_state):
        if without in target.DESCRIPTOR.fields_by_name and (replica or target is not message.replica_state):
            target.ClearField(without)  # type: ignore[arg-type]
    return message


def test_a_consumers_defaults_are_a_consumers() -> None:
    """Without replica_state a fetch has no wait, 1 byte and 1 MiB."""
    request = read_fetch(_message(), FixedTopics()).request

    assert request == FetchRequest(
        (FetchPartition(TP, Offset(5), LeaderEpoch(3), LeaderEpoch(2), None, 1 << 20),), None, 0, 1, 1 << 20
    )


def test_a_replicas_wait_is_500_ms_by_default() -> None:
    """A replica without these fields waits like Kafka's."""
    request = read_fetch(_message(replica=True), FixedTopics()).request

    assert (request.replica, request.max_wait_ms) == (REPLICA, 500)


def _fetched(topics: list[partition_pb2.FetchTopicResponse]) -> tuple[FetchedPartition, ...]:
    return read_fetched(STREAM_ANSWERS.of(pb.FetchStreamResponse(responses=topics)))


@pytest.mark.parametrize("without", ["replica_id", "replica_epoch", "topic_id", "cluster_id"])
def test_a_replica_that_leaves_out_an_identity_is_an_invalid_request(without: str) -> None:
    """A proto3 zero is never taken for an id or an epoch of a replica."""
    with pytest.raises(Refused) as caught:
        read_fetch(_message(replica=True, without=without), FixedTopics())

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST
    assert without in caught.value.refusal.message


def test_sessions_are_refused_on_unary_fetch() -> None:
    """session_id other than 0 is FETCH_SESSION_ID_NOT_FOUND."""
    with pytest.raises(Refused) as caught:
        read_fetch(_message(session_id=8), FixedTopics())

    assert caught.value.refusal.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert "session_id 8 must be 0" in caught.value.refusal.message


def test_sizes_are_capped_and_a_large_wait_is_too() -> None:
    """No request makes an answer larger than 1 MiB or a wait longer than a minute."""
    request = read_fetch(_message(max_bytes=1 << 30, max_wait_ms=1 << 30), FixedTopics()).request

    assert (request.max_bytes, request.max_wait_ms) == (1 << 20, 60_000)


def test_a_followers_service_fetch_is_always_a_consumers() -> None:
    """The message of FollowerService has no field for a replica."""
    message = follower_service_pb2.FollowerServiceFetchRequest(topics=_message().topics)

    assert read_fetch(message, FixedTopics()).request.replica is None


def test_what_a_follower_asks_is_what_a_leader_reads() -> None:
    """A follower's fetch is equal after conversion to the stream message and back."""
    part = FetchPartition(TP, Offset(9), LeaderEpoch(4), LeaderEpoch(4), Offset(1), 1000, 17)
    request = FetchRequest((part,), REPLICA, 500, 1, 1 << 20)
    message = fetch_stream_message(request, cluster_id=CLUSTER, correlation_id=77)

    assert message.correlation_id == 77
    assert read_fetch(message, FixedTopics()).request == request


def test_forgotten_partitions_come_through() -> None:
    """A message that only forgets names the forgotten partitions."""
    message = forget_message((TP, TopicPartition(ID, 4)), cluster_id=CLUSTER, correlation_id=1)

    assert read_forgotten(message.forgotten_topics_data, FixedTopics()) == (TP, TopicPartition(ID, 4))


def _batch() -> bytes:
    batch = bytearray(encode_batch([NewRecord(None, b"v", 1)]))
    stamp(batch, 5, 3)
    return bytes(batch)


def test_a_topic_that_is_not_known_is_answered_by_what_it_was_asked_by() -> None:
    """Each of its partitions has the error, under the very name and id of the request (M63)."""
    refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "ask again")
    (answer,) = fetch_topics((), [Unresolved("gone", "id", index, refusal) for index in (3, 5)], FixedTopics())

    assert (answer.topic, answer.topic_id) == ("gone", "id")
    assert [(row.partition_index, read_error(row)) for row in answer.partitions] == [(3, refusal), (5, refusal)]


def test_what_a_leader_answers_is_what_a_follower_reads() -> None:
    """HW, log start, barrier, divergence, error and bytes are equal after conversion and back."""
    refusal = Refusal(ErrorCode.FENCED_LEADER_EPOCH, "older")
    served = [
        ServedPartition(FetchResult(TP, Offset(4), Offset(1), barrier=17), _batch()),
        ServedPartition(FetchResult(TopicPartition(ID, 1), diverging=EpochEnd(LeaderEpoch(2), Offset(3))), b""),
        ServedPartition(FetchResult(TopicPartition(ID, 2), refusal=refusal), b""),
    ]
    fetched = _fetched(fetch_topics(served, (), FixedTopics()))

    assert fetched[0] == FetchedPartition(
        TP, None, Offset(4), Offset(1), None, (parse_header(_batch()),), memoryview(_batch()), None, 17
    )
    assert fetched[1].diverging == EpochEnd(LeaderEpoch(2), Offset(3)) and fetched[1].high_watermark is None
    assert fetched[2].error == refusal


def test_damaged_bytes_are_reported_and_dropped() -> None:
    """A batch with a wrong CRC leaves neither headers nor bytes."""
    answers = fetch_topics([ServedPartition(FetchResult(TP, Offset(4)), _batch()[:-1] + b"!")], (), FixedTopics())
    fetched = _fetched(answers)[0]

    assert fetched.corrupt is not None and fetched.corrupt.startswith("CORRUPT_MESSAGE: crc")
    assert (fetched.batches, bytes(fetched.payload)) == ((), b"")  # type: ignore[call-overload]


def test_records_that_cannot_be_decoded_are_an_error_of_their_partition() -> None:
    """With decode, a batch that only its producer understands rejects one partition, not the call."""
    refusal = Refusal(ErrorCode.CORRUPT_MESSAGE, "no records")
    served = [ServedPartition(FetchResult(TP, Offset(4)), b"garbage")]
    answers = fetch_topics(served, (), FixedTopics(), {TP: Decoded((), refusal)})

    assert answers[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("without", ["epoch", "end_offset"])
def test_half_a_divergence_is_a_damaged_answer(without: str) -> None:
    """A divergence needs both epoch and end, or a follower under page-cache would truncate to nothing."""
    end = partition_pb2.EpochEndOffset(epoch=2, end_offset=3)
    end.ClearField(without)  # type: ignore[arg-type]
    row = partition_pb2.FetchPartitionResponse(partition_index=0, diverging_epoch=end)
    answer = partition_pb2.FetchTopicResponse(topic_id=ID, partitions=[row])
    (fetched,) = _fetched([answer])

    assert fetched.diverging is None
    assert fetched.corrupt is not None and "diverging_epoch" in fetched.corrupt


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


def test_records_go_in_as_messages_and_come_out_as_messages() -> None:
    """Records are returned as messages from the requested offset on, with the epoch of their batch."""
    messages = [record_pb2.SimpleRecord(value=value, timestamp_ms=7) for value in (b"a", b"b", b"c")]
    stored = bytearray(encode_records(messages, 0))
    stamp(stored, 20, 4)
    tp = TopicPartition("id", 0)
    found = decode_records([FetchedBatches(tp, bytes(stored))], {tp: Offset(21)})[tp]

    assert found.refusal is None
    assert [(row.value, row.offset, row.leader_epoch, row.timestamp_ms) for row in found.records] == [
        (b"b", 21, 4, 7),
        (b"c", 22, 4, 7),
    ]


def test_a_record_without_a_time_gets_the_time_it_came_at() -> None:
    """A record without a timestamp gets the current time."""
    batch = encode_records([record_pb2.SimpleRecord(value=b"a")], 12_345)

    assert parse_header(batch).max_timestamp_ms == 12_345
