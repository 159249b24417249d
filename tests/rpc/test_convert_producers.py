"""FetchProducerSnapshot on the wire: what is read back, and which questions are refused."""

from __future__ import annotations

import pytest
from fixed_topics import CLUSTER, ID, FixedTopics

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import ProducerSnapshotAnswer, ProducerSnapshotQuestion, ReplicaState
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Offset, ProducerBatch, TopicPartition
from strandline.rpc.convert import producers as convert

TP = TopicPartition(ID, 3)
QUESTION = ProducerSnapshotQuestion(TP, LeaderEpoch(0))
REPLICA = ReplicaState(NodeId(2), NodeEpoch(9))
TOPICS = FixedTopics()


def test_a_question_comes_through() -> None:
    """Epoch 0 is an epoch, and not an absent one."""
    message = convert.producer_snapshot_request(QUESTION, cluster_id=CLUSTER, replica=REPLICA)

    assert convert.read_producer_question(message, TOPICS) == QUESTION
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (2, 9)


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("cluster_id", ErrorCode.INVALID_REQUEST),
        ("replica_state", ErrorCode.INVALID_REQUEST),
        ("topic_id", ErrorCode.INVALID_REQUEST),
        ("current_leader_epoch", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_question_without_a_field_is_refused(field: str, code: ErrorCode) -> None:
    """The refusal names the field."""
    message = convert.producer_snapshot_request(QUESTION, cluster_id=CLUSTER, replica=REPLICA)
    message.ClearField(field)  # type: ignore[arg-type]  # a name from the list above
    with pytest.raises(Refused) as caught:
        convert.read_producer_question(message, TOPICS)

    assert caught.value.refusal.code is code
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
    answer = ProducerSnapshotAnswer(TP, Offset(16), rows)

    assert convert.read_producer_snapshot(convert.write_producer_snapshot(answer), TP) == answer


def test_a_refusal_comes_through() -> None:
    """Without a log start, which would be read as 0."""
    answer = ProducerSnapshotAnswer(TP, refusal=Refusal(ErrorCode.FENCED_LEADER_EPOCH, "older"))
    read = convert.read_producer_snapshot(convert.write_producer_snapshot(answer), TP)

    assert read.log_start_offset is None
    assert read.refusal is not None
    assert read.refusal.code is ErrorCode.FENCED_LEADER_EPOCH
