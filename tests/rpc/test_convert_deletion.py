"""DeleteRecords on the wire, in both directions."""

from __future__ import annotations

import pytest
from fixed_topics import CLUSTER, ID, NAME, FixedTopics

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import DeletedPartition, DeletePartition
from strandline.core.types import Offset, TopicPartition
from strandline.rpc.convert import offsets as convert
from strandline.v1 import leader_service_pb2 as pb

TP, TP1 = TopicPartition(ID, 0), TopicPartition(ID, 1)
TOPICS = FixedTopics()


def asking(*offsets: int, name: str = NAME, **fields: object) -> pb.DeleteRecordsRequest:
    """A request for the first partitions of a topic."""
    parts = [pb.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in enumerate(offsets)]
    return pb.DeleteRecordsRequest(topics=[pb.DeleteRecordsTopic(name=name, partitions=parts)], **fields)


def code_of(message: pb.DeleteRecordsRequest) -> ErrorCode:
    """The error of a whole request."""
    with pytest.raises(Refused) as caught:
        convert.read_deletions(message, TOPICS)
    return caught.value.refusal.code


def test_a_request_comes_through() -> None:
    """The client's request reads back equal at the leader: -1 is the high watermark, other numbers are unchanged."""
    message = convert.delete_records_request({TP: 7, TP1: -1}, cluster_id=CLUSTER, timeout_ms=250)
    timeout_ms, asked = convert.read_deletions(message, TOPICS)

    assert timeout_ms == 250
    assert asked.parts == (DeletePartition(TP, Offset(7)), DeletePartition(TP1, None))


def test_the_timeout_has_a_default_and_a_bound() -> None:
    """Absent means 30 s, and no request waits longer than 10 minutes."""
    assert convert.read_deletions(asking(1), TOPICS)[0] == 30_000
    assert convert.read_deletions(asking(1, timeout_ms=2_000_000_000), TOPICS)[0] == 600_000


def test_an_offset_that_is_left_out_deletes_nothing() -> None:
    """A forgotten field must not delete everything: it is offset 0."""
    message = asking()
    message.topics[0].partitions.add(partition_index=0)

    assert convert.read_deletions(message, TOPICS)[1].parts == (DeletePartition(TP, Offset(0)),)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (asking(1, timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (asking(), ErrorCode.INVALID_REQUEST),
        (pb.DeleteRecordsRequest(), ErrorCode.INVALID_REQUEST),
        (asking(1, cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_a_wrong_request_is_refused_as_a_whole(message: pb.DeleteRecordsRequest, code: ErrorCode) -> None:
    """A negative timeout, no partition at all, and another cluster's id reach no leader."""
    assert code_of(message) is code


def test_a_partition_is_named_once() -> None:
    """Two offsets for one partition contradict each other."""
    message = asking(1)
    message.topics[0].partitions.add(partition_index=0, offset=2)

    assert code_of(message) is ErrorCode.INVALID_REQUEST


def test_answers_come_through() -> None:
    """A low watermark that is not known is absent; a known one stays beside an error."""
    answers = [
        DeletedPartition(TP, Offset(0)),
        DeletedPartition(TP1, Offset(3), Refusal(ErrorCode.REQUEST_TIMED_OUT, "not yet")),
        DeletedPartition(TopicPartition(ID, 2), None, Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, "too high")),
    ]

    assert convert.read_deleted(convert.deletions_response(answers, (), TOPICS)) == answers


def test_an_unknown_topic_is_answered_under_its_name() -> None:
    """A partition of an unknown topic never reaches the core, and is answered under the topic's name."""
    _, asked = convert.read_deletions(asking(1, name="nobody"), TOPICS)
    (topic,) = convert.deletions_response((), asked.unresolved, TOPICS).topics

    assert asked.parts == ()
    assert (topic.name, topic.partitions[0].error_code) == ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
