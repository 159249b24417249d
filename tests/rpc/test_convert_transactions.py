"""AddPartitionsToTxn between two nodes: what one asks is what the other reads, and each answer is for its question."""

from __future__ import annotations

from fixed_topics import CLUSTER, ID, NAME, FixedTopics

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.transactions.messages import AddPartitions, ProducerIdentity
from strandline.core.types import TopicPartition
from strandline.rpc.convert.errors import write_error
from strandline.rpc.convert.transactions import Adding, add_partitions_request, read_added, read_results
from strandline.v1 import transaction_service_pb2 as pb

TOPICS = FixedTopics()


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

    assert read_added(pb.AddPartitionsToTxnRequest.FromString(sent.SerializeToString()), TOPICS) == tuple(
        Adding(each.transactional_id, each) for each in asked
    )
    assert sent.transactions[0].topics[0].topic == NAME


def test_each_answer_is_for_its_question() -> None:
    """By transactional id, in whatever order they come; one that is left out is no success."""
    response = pb.AddPartitionsToTxnResponse()
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
