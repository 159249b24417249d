"""Produce on the wire: defaults, whole-request errors, and answers with exactly the core's content."""

from __future__ import annotations

import pytest
from fixed_topics import ID, NAME, FixedTopics

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import LeaderHint, ProduceResult
from strandline.core.types import Acks, LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.records.batch import parse_header
from strandline.records.codec import NewRecord, encode_batch
from strandline.rpc.convert.produce import ProduceAsked, holds_single_records, produce_topics, read_produce
from strandline.v1 import leader_service_pb2 as pb

TP = TopicPartition(ID, 3)
NOW_MS = 77_000
BATCH = encode_batch([NewRecord(None, b"a", 5), NewRecord(None, b"b", 7)])


def _read(message: pb.ProduceRequest) -> ProduceAsked:
    return read_produce(message, FixedTopics(), NOW_MS if holds_single_records(message) else None)


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

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUIRED_ACKS
    assert caught.value.refusal.outcome is Outcome.NOT_APPENDED


@pytest.mark.parametrize(
    "message",
    [
        pb.ProduceRequest(),
        _message(timeout_ms=-1),
        pb.ProduceRequest(
            topic_data=[pb.ProduceTopic(name=NAME, partition_data=[pb.ProducePartition(), pb.ProducePartition()])]
        ),
    ],
    ids=["nothing named", "negative timeout", "partition named twice"],
)
def test_a_wrong_shape_is_an_invalid_request(message: pb.ProduceRequest) -> None:
    """Shape is checked before the core sees anything."""
    with pytest.raises(Refused) as caught:
        _read(message)

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST


def test_a_request_for_another_cluster_is_refused() -> None:
    """A cluster_id, when given, must be this cluster's."""
    with pytest.raises(Refused) as caught:
        _read(_message(cluster_id="another"))

    assert caught.value.refusal.code is ErrorCode.INCONSISTENT_CLUSTER_ID


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
        ProduceResult(TP, Offset(40), Offset(2)),
        ProduceResult(
            TopicPartition(ID, 4),
            refusal=Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "node 2 leads it", Outcome.MAY_APPEAR),
            leader_hint=LeaderHint(NodeId(2), LeaderEpoch(9)),
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
    answers = produce_topics([ProduceResult(TP, Offset(40))], (), FixedTopics(), Acks.NONE)

    assert not answers[0].partition_responses[0].HasField("base_offset")
