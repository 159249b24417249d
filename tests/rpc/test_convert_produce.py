"""Produce, producer snapshots and DeleteRecords on the wire."""

from __future__ import annotations

import pytest
from fixed_topics import CLUSTER, ID, NAME, FixedTopics

from strandline.core import messages
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import Acks, LeaderEpoch, NodeEpoch, NodeId, Offset, ProducerBatch, TopicPartition
from strandline.records.batch import parse_header
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.convert import offsets as deletion, producers as convert
from strandline.rpc.convert.produce import REQUESTS, ProduceAsked, holds_single_records, produce_topics, read_produce
from strandline.v1 import leader_service_pb2 as pb

TP = TopicPartition(ID, 3)
NOW_MS = 77_000
BATCH = encode_batch([NewRecord(None, b"a", 5), NewRecord(None, b"b", 7)])


def _read(message: pb.ProduceRequest) -> ProduceAsked:
    arrived = REQUESTS.of(message)
    return read_produce(arrived, FixedTopics(), NOW_MS if holds_single_records(arrived) else None)


def _message(records: bytes = BATCH, *, name: str = NAME, **fields: object) -> pb.ProduceRequest:
    part = pb.ProducePartition(index=3, records=records)
    return pb.ProduceRequest(topic_data=[pb.ProduceTopic(name=name, partition_data=[part])], **fields)  # type: ignore[arg-type]


def test_absent_acks_mean_all_and_absent_timeout_30_s() -> None:
    """An omitted acks never becomes acks=0."""
    asked = _read(_message())

    assert (asked.acks, asked.timeout_ms) == (Acks.ALL, 30_000)
    assert [(part.tp, part.header, bytes(part.payload)) for part in asked.parts] == [(TP, parse_header(BATCH), BATCH)]  # type: ignore[call-overload]


def test_a_time_out_has_a_limit() -> None:
    """No producer waits longer than 10 minutes for an acknowledgement."""
    assert _read(_message(timeout_ms=2_000_000_000)).timeout_ms == 600_000


@pytest.mark.parametrize(("number", "acks"), [(0, Acks.NONE), (1, Acks.LEADER), (-1, Acks.ALL)])
def test_acks_are_read_as_given(number: int, acks: Acks) -> None:
    """0, 1 and -1 are the only valid values of acks."""
    assert _read(_message(acks=number)).acks is acks


def test_other_acks_are_refused_definitely() -> None:
    """acks=2 is INVALID_REQUIRED_ACKS, and nothing was appended."""
    with pytest.raises(Refused) as caught:
        _read(_message(acks=2))

    assert caught.value.refusal == Refusal(
        ErrorCode.INVALID_REQUIRED_ACKS, "acks 2 must be 0, 1 or -1 (all in-sync replicas)", Outcome.NOT_APPENDED
    )


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.ProduceRequest(), "topic_data names no partition; give at least one"),
        (_message(timeout_ms=-1), "timeout_ms -1 must not be negative"),
        (pb.ProduceRequest(topic_data=[{"name": NAME, "partition_data": [{}, {}]}]), "is named twice; name it once"),
        (_message(cluster_id="another"), "connect to the cluster the caller belongs to"),
    ],
    ids=["nothing named", "negative timeout", "partition named twice", "another cluster"],
)
def test_a_wrong_shape_is_an_invalid_request(message: pb.ProduceRequest, words: str) -> None:
    """Shape is checked before the core sees anything, and a cluster_id, when given, must be this cluster's."""
    with pytest.raises(Refused) as caught:
        _read(message)

    elsewhere = message.cluster_id == "another"
    assert caught.value.refusal.code is (ErrorCode.INCONSISTENT_CLUSTER_ID if elsewhere else ErrorCode.INVALID_REQUEST)
    assert words in caught.value.refusal.message


def test_a_bad_batch_marks_only_its_partition() -> None:
    """The error is passed to the core with its partition."""
    part = _read(_message(BATCH[:-1] + b"!")).parts[0]

    assert part.invalid is not None and "crc" in part.invalid.message
    assert (part.invalid.code, part.invalid.outcome) == (ErrorCode.CORRUPT_MESSAGE, Outcome.NOT_APPENDED)


def test_simple_records_become_one_batch() -> None:
    """Records given as messages are encoded; giving both kinds is rejected for the partition."""
    message = _message(b"")
    message.topic_data[0].partition_data[0].simple_records.add(value=b"v")
    both = _message()
    both.topic_data[0].partition_data[0].simple_records.add(value=b"v")

    header = _read(message).parts[0].header
    assert (header.record_count, header.max_timestamp_ms) == (1, NOW_MS)
    refusal = _read(both).parts[0].invalid
    assert refusal is not None and refusal.code is ErrorCode.INVALID_REQUEST


def test_an_unknown_topic_is_answered_under_the_name_it_was_asked_by() -> None:
    """A partition of an unknown topic never reaches the core, and its rejection is definite."""
    asked = _read(_message(name="nosuch"))
    answers = produce_topics((), asked.unresolved, FixedTopics(), Acks.ALL)

    assert asked.parts == ()
    row = answers[0].partition_responses[0]
    assert (answers[0].name, row.index, row.error_code) == ("nosuch", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert row.outcome == pb.PRODUCE_OUTCOME_NOT_APPENDED


def test_an_answer_says_what_the_core_gave() -> None:
    """Offset, log start, error with outcome, and the leader to use instead are in the answer."""
    results = (
        messages.ProduceResult(TP, Offset(40), Offset(2)),
        messages.ProduceResult(
            TopicPartition(ID, 4),
            refusal=Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "node 2 leads it", Outcome.MAY_APPEAR),
            leader_hint=messages.LeaderHint(NodeId(2), LeaderEpoch(9)),
        ),
    )
    answers = produce_topics(results, (), FixedTopics(), Acks.ALL)

    taken, refused = answers[0].partition_responses
    assert (taken.index, taken.base_offset, taken.log_start_offset, taken.error_code) == (TP.partition, 40, 2, 0)
    assert (refused.index, refused.outcome) == (4, pb.PRODUCE_OUTCOME_MAY_APPEAR)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.error_message == "NOT_LEADER_OR_FOLLOWER: node 2 leads it"
    assert not refused.HasField("base_offset")
    leader = refused.current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 9)
    assert (leader.endpoint.host, leader.endpoint.port) == ("10.0.0.2", 9092)


def test_acks_0_are_answered_without_an_offset() -> None:
    """The offset of an append without acks is not returned."""
    answers = produce_topics([messages.ProduceResult(TP, Offset(40))], (), FixedTopics(), Acks.NONE)

    assert not answers[0].partition_responses[0].HasField("base_offset")


QUESTION = messages.ProducerSnapshotQuestion(TP, LeaderEpoch(0))
REPLICA = messages.ReplicaState(NodeId(2), NodeEpoch(9))
TOPICS = FixedTopics()


def test_a_question_comes_through() -> None:
    """Epoch 0 is an epoch, and not an absent one."""
    message = convert.producer_snapshot_request(QUESTION, cluster_id=CLUSTER, replica=REPLICA)

    assert convert.read_producer_question(message, TOPICS) == QUESTION
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (2, 9)


@pytest.mark.parametrize("field", ["cluster_id", "replica_state", "topic_id", "current_leader_epoch"])
def test_a_question_without_a_field_is_refused(field: str) -> None:
    """The refusal names the field."""
    message = convert.producer_snapshot_request(QUESTION, cluster_id=CLUSTER, replica=REPLICA)
    message.ClearField(field)  # type: ignore[arg-type]  # a name from the list above
    with pytest.raises(Refused) as caught:
        convert.read_producer_question(message, TOPICS)

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST
    assert field in caught.value.refusal.message


def test_another_cluster_is_refused() -> None:
    """A replica that was pointed at the wrong cluster must not begin with its producers."""
    message = convert.producer_snapshot_request(QUESTION, cluster_id="another", replica=REPLICA)
    with pytest.raises(Refused) as caught:
        convert.read_producer_question(message, TOPICS)

    assert caught.value.refusal.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_an_answer_comes_through() -> None:
    """Every number of a remembered batch, in the order in which they are remembered."""
    rows = (
        ProducerBatch(7, 2, 2**31 - 1, 0, Offset(5), Offset(6), 1_700_000_000_000),
        ProducerBatch(2**40, 0, 1, 9, Offset(7), Offset(15), -1),
    )
    answer = messages.ProducerSnapshotAnswer(TP, Offset(16), rows)

    assert convert.read_producer_snapshot(convert.write_producer_snapshot(answer), TP) == answer


def test_a_refusal_comes_through() -> None:
    """Without a log start, which would be read as 0."""
    answer = messages.ProducerSnapshotAnswer(TP, refusal=Refusal(ErrorCode.FENCED_LEADER_EPOCH, "older"))
    read = convert.read_producer_snapshot(convert.write_producer_snapshot(answer), TP)

    assert read.log_start_offset is None
    assert read.refusal is not None and read.refusal.code is ErrorCode.FENCED_LEADER_EPOCH


TP0, TP1 = TopicPartition(ID, 0), TopicPartition(ID, 1)


def asking(*offsets: int, name: str = NAME, **fields: object) -> pb.DeleteRecordsRequest:
    """A request for the first partitions of a topic."""
    parts = [pb.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in enumerate(offsets)]
    return pb.DeleteRecordsRequest(topics=[pb.DeleteRecordsTopic(name=name, partitions=parts)], **fields)


def test_a_request_comes_through() -> None:
    """The client's request reads back equal at the leader: -1 is the high watermark, other numbers are unchanged."""
    message = deletion.delete_records_request({TP0: 7, TP1: -1}, cluster_id=CLUSTER, timeout_ms=250)
    timeout_ms, asked = deletion.read_deletions(message, TOPICS)

    assert timeout_ms == 250
    assert asked.parts == (messages.DeletePartition(TP0, Offset(7)), messages.DeletePartition(TP1, None))


def test_the_timeout_has_a_default_and_a_bound() -> None:
    """Absent means 30 s, and no request waits longer than 10 minutes."""
    assert deletion.read_deletions(asking(1), TOPICS)[0] == 30_000
    assert deletion.read_deletions(asking(1, timeout_ms=2_000_000_000), TOPICS)[0] == 600_000


def test_an_offset_that_is_left_out_deletes_nothing() -> None:
    """A forgotten field must not delete everything: it is offset 0."""
    message = asking()
    message.topics[0].partitions.add(partition_index=0)

    assert deletion.read_deletions(message, TOPICS)[1].parts == (messages.DeletePartition(TP0, Offset(0)),)


TWICE = [pb.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (1, 2)]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (asking(1, timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (asking(), ErrorCode.INVALID_REQUEST),
        (pb.DeleteRecordsRequest(), ErrorCode.INVALID_REQUEST),
        (pb.DeleteRecordsRequest(topics=[{"name": NAME, "partitions": TWICE}]), ErrorCode.INVALID_REQUEST),
        (asking(1, cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_a_wrong_request_is_refused_as_a_whole(message: pb.DeleteRecordsRequest, code: ErrorCode) -> None:
    """A negative timeout, no partition at all, one that is named twice, and another cluster's id reach no leader."""
    with pytest.raises(Refused) as caught:
        deletion.read_deletions(message, TOPICS)

    assert caught.value.refusal.code is code


def test_answers_come_through() -> None:
    """A low watermark that is not known is absent; a known one stays beside an error."""
    answers = [
        messages.DeletedPartition(TP0, Offset(0)),
        messages.DeletedPartition(TP1, Offset(3), Refusal(ErrorCode.REQUEST_TIMED_OUT, "not yet")),
        messages.DeletedPartition(TopicPartition(ID, 2), None, Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, "too high")),
    ]

    assert deletion.read_deleted(deletion.deletions_response(answers, (), TOPICS)) == answers


def test_an_unknown_topic_is_answered_under_its_name() -> None:
    """A partition of an unknown topic never reaches the core, and is answered under the topic's name."""
    _, asked = deletion.read_deletions(asking(1, name="nobody"), TOPICS)
    (topic,) = deletion.deletions_response((), asked.unresolved, TOPICS).topics

    assert asked.parts == ()
    assert (topic.name, topic.partitions[0].error_code) == ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
