"""Transactions on the wire: markers, descriptions of producers, and partitions that are added."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_topics import CLUSTER, ID, NAME, FixedTopics

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import ProduceResult
from strandline.core.transactions.messages import AddPartitions, MarkerQuestion, ProducerIdentity, TxnMarker
from strandline.core.types import Acks, ActiveProducer, LeaderEpoch, Marker, Offset, ProducerStamp, TopicPartition
from strandline.records.codec import marker_of
from strandline.rpc.convert.errors import write_error
from strandline.rpc.convert.produce import markers_request, markers_response, read_marker_results, read_markers
from strandline.rpc.convert.producers import producers_response, read_described
from strandline.rpc.convert.transactions import Adding, add_partitions_request, read_added, read_results
from strandline.v1 import leader_service_pb2 as pb, transaction_service_pb2 as transaction_pb

TOPICS = FixedTopics()
NOW_MS = 1_700_000_000_000


def request(**fields: Any) -> pb.WriteTxnMarkersRequest:
    """Two markers: an abort of producer 7 in two partitions and an unknown topic, a commit of producer 8 in one."""
    known, unknown = {"topic_id": ID, "partitions": [0, 1]}, {"topic": "nowhere", "partitions": [3]}
    first = {"producer_id": 7, "producer_epoch": 4, "coordinator_epoch": 9, "topics": [known, unknown], **fields}
    second = {"producer_id": 8, "transaction_result": True, "topics": [{"topic": NAME, "partitions": [1]}]}
    return pb.WriteTxnMarkersRequest(cluster_id=CLUSTER, markers=[first, second])


def test_markers_become_control_batches() -> None:
    """X11: one batch per marker for all its partitions, appended by the rules of acks=all."""
    event = read_markers(request(), TOPICS, NOW_MS).arrives(5, 6, within_ms=7)

    assert (event.acks, event.timeout_ms) == (Acks.ALL, 7)
    assert [part.tp for part in event.partitions] == [TopicPartition(ID, index) for index in (0, 1, 1)]
    assert [part.header.marker for part in event.partitions] == [Marker(False, 9), Marker(False, 9), Marker(True, 0)]
    assert [part.header.producer for part in event.partitions[1:]] == [ProducerStamp(7, 4, -1), ProducerStamp(8, 0, -1)]
    assert marker_of(event.partitions[0].payload) == Marker(False, 9)  # type: ignore[arg-type]
    assert event.partitions[0].header.max_timestamp_ms == NOW_MS


def test_results_go_out_marker_by_marker() -> None:
    """Also those of partitions that the core was never asked about."""
    asked = read_markers(request(), TOPICS, NOW_MS)
    fenced = Refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "older")
    results = [
        ProduceResult(asked.parts[0].tp, Offset(5)),
        ProduceResult(asked.parts[1].tp, refusal=fenced),
        ProduceResult(asked.parts[2].tp, Offset(9)),
    ]
    response = markers_response(request(), asked, results, TOPICS)
    rows = [
        (marker.producer_id, topic.name, row.partition_index, row.error_code)
        for marker in response.markers
        for topic in marker.topics
        for row in topic.partitions
    ]

    assert rows == [
        (7, NAME, 0, 0),
        (7, NAME, 1, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (7, "nowhere", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (8, NAME, 1, 0),
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"producer_id": -1}, "producer_id -1"),
        ({"producer_epoch": 1 << 15}, "producer_epoch 32768"),
        ({"coordinator_epoch": -1}, "coordinator_epoch -1"),
        ({"topics": []}, "names no partition"),
        ({"topics": [{"topic_id": ID, "partitions": [1, 1]}]}, "named twice"),
    ],
)
def test_a_marker_that_cannot_be_is_an_invalid_request(fields: dict[str, Any], words: str) -> None:
    """Nothing of such a request is appended."""
    with pytest.raises(Refused, match=words) as caught:
        read_markers(request(**fields), TOPICS, NOW_MS)

    assert caught.value.refusal.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (pb.WriteTxnMarkersRequest(cluster_id=CLUSTER), ErrorCode.INVALID_REQUEST),
        (pb.WriteTxnMarkersRequest(markers=[{}]), ErrorCode.INVALID_REQUEST),
        (pb.WriteTxnMarkersRequest(cluster_id="another", markers=[{}]), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_a_node_says_whose_markers_they_are(message: pb.WriteTxnMarkersRequest, code: ErrorCode) -> None:
    """A coordinator of another cluster ends no transaction here, and an empty request is a mistake."""
    with pytest.raises(Refused) as caught:
        read_markers(message, TOPICS, NOW_MS)

    assert caught.value.refusal.code is code


def test_what_a_producer_does_not_have_is_absent() -> None:
    """Sequence 0, coordinator epoch 0 and offset 0 mean themselves."""
    tp, other = TopicPartition(ID, 0), TopicPartition(ID, 1)
    producers = (ActiveProducer(7, 1, 0, 5, 0, Offset(0)), ActiveProducer(8, 2, None, 6, None, None))
    message = pb.DescribeProducersRequest(topics=[{"topic_id": ID, "partitions": [0, 1]}])
    asked = read_described(message, TOPICS)
    refusal = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here")
    response = producers_response({tp: producers, other: refusal}, asked.unresolved, TOPICS)
    first, second = response.topics[0].partitions
    optional = ("last_sequence", "coordinator_epoch", "current_txn_start_offset")

    assert asked.parts == (tp, other)
    assert [(p.producer_id, p.producer_epoch, p.last_timestamp) for p in first.active_producers] == [
        (7, 1, 5),
        (8, 2, 6),
    ]
    assert [[p.HasField(name) for name in optional] for p in first.active_producers] == [[True] * 3, [False] * 3]
    assert second.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def questions() -> list[MarkerQuestion]:
    """A commit in two partitions by one coordinator, and an abort in one of them by another."""
    first, second = ProducerIdentity(7, 4), ProducerIdentity(8, 1)
    zero, one = TopicPartition(ID, 0), TopicPartition(ID, 1)
    return [
        MarkerQuestion(TopicPartition("state", 1), LeaderEpoch(9), TxnMarker("a", first, True, zero)),
        MarkerQuestion(TopicPartition("state", 1), LeaderEpoch(9), TxnMarker("a", first, True, one)),
        MarkerQuestion(TopicPartition("state", 2), LeaderEpoch(3), TxnMarker("b", second, False, one)),
    ]


def test_a_leader_takes_what_coordinators_send() -> None:
    """X8: each marker comes to its partition with result, identity and coordinator epoch, and each answer back to its
    question, in order."""
    sent = markers_request(questions(), TOPICS, CLUSTER)
    asked = read_markers(sent, TOPICS, NOW_MS)
    fenced = Refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "older")
    results = [ProduceResult(part.tp, refusal=fenced if index == 1 else None) for index, part in enumerate(asked.parts)]
    answers = read_marker_results(markers_response(sent, asked, results, TOPICS), 3)

    assert [(part.tp.partition, part.header.marker, part.header.producer) for part in asked.parts] == [
        (0, Marker(True, 9), ProducerStamp(7, 4, -1)),
        (1, Marker(True, 9), ProducerStamp(7, 4, -1)),
        (1, Marker(False, 3), ProducerStamp(8, 1, -1)),
    ]
    assert [answer and answer.code for answer in answers] == [None, fenced.code, None]


def test_an_answer_that_does_not_fit_is_no_success() -> None:
    """A leader that leaves a marker out says nothing of any of them."""
    answers = read_marker_results(pb.WriteTxnMarkersResponse(markers=[{"producer_id": 7}]), 2)

    assert [answer and answer.code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


def question(name: str, *partitions: int, verify_only: bool = False) -> AddPartitions:
    """Partitions of the one topic."""
    tps = tuple(TopicPartition(ID, index) for index in partitions)
    return AddPartitions(
        transactional_id=name, identity=ProducerIdentity(7, 3), partitions=tps, verify_only=verify_only
    )


def test_what_is_asked_is_what_is_read() -> None:
    """Ids, identities, partitions and whether they are only looked up, over the wire and back."""
    asked = [question("a", 0, 1), question("b", 1, verify_only=True)]
    sent = add_partitions_request(asked, TOPICS, CLUSTER)

    assert read_added(transaction_pb.AddPartitionsToTxnRequest.FromString(sent.SerializeToString()), TOPICS) == tuple(
        Adding(each.transactional_id, each) for each in asked
    )
    assert sent.transactions[0].topics[0].topic == NAME


def test_each_answer_is_for_its_question() -> None:
    """By transactional id, in whatever order they come; one that is left out is no success."""
    response = transaction_pb.AddPartitionsToTxnResponse()
    write_error(
        response.results_by_transaction.add(transactional_id="b"), Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, "wait")
    )
    response.results_by_transaction.add(transactional_id="a")
    answers = read_results(response, [question(name, 0) for name in "abc"])

    assert [answer and answer.code for answer in answers] == [
        None,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
