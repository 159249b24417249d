"""Transactional batches and markers at a leader: verified, appended, refused, waited for (X3, X9 to X11)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, batch, marker, partition_image, produce_part
from transactional_producer import ID, Transactions, leading

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.log import events
from strandline.core.log.effects import Append, SendAddPartitions
from strandline.core.messages import ProduceResult
from strandline.core.types import Acks, BatchHeader

REFUSED = Refusal(ErrorCode.INVALID_TXN_STATE, "no", Outcome.NOT_APPENDED)


def first(sequence: int = 0, *, producer: int = 7, epoch: int = 0, plain: bool = False) -> BatchHeader:
    """A batch of a transactional producer."""
    return batch(producer=producer, producer_epoch=epoch, sequence=sequence, transactional=not plain)


def said(result: ProduceResult | None) -> tuple[ErrorCode, Outcome | None] | None:
    """How a request was refused; None while it waits."""
    return None if result is None or result.refusal is None else (result.refusal.code, result.outcome)


def appended(cluster: Cluster) -> int:
    """How many batches node 1 has appended."""
    return len(cluster.wished(1, Append))


@pytest.fixture
def cluster() -> Cluster:
    """Node 1 leads partition 0 for nodes 1 and 2; there is no core for node 2."""
    return leading()


def test_the_first_batch_of_a_transaction_waits_for_the_coordinator(cluster: Cluster) -> None:
    """X9: it is appended when the coordinator has added the partition, and acknowledged by the HW."""
    request = cluster.produce(first(), transactional_id=ID)
    asked = cluster.wished(1, SendAddPartitions)
    assert [(a.transactional_id, a.producer_id, a.producer_epoch, a.tp) for a in asked] == [(ID, 7, 0, TP)]
    assert (appended(cluster), cluster.outcome(request)) == (0, None)
    cluster.coordinator_says()
    assert (appended(cluster), cluster.outcome(request)) == (1, None)
    cluster.fetch(1, by=2)
    result = cluster.outcome(request)

    assert (result.base_offset, result.refusal) == (0, None)
    assert cluster.cores[1].parked == (0, 0)


def test_later_batches_wait_in_order_behind_the_first(cluster: Cluster) -> None:
    """X9: one question for all of them; they are appended in the order in which they came."""
    requests = [cluster.produce(first(sequence), transactional_id=ID) for sequence in (0, 1, 1, 2)]
    cluster.coordinator_says()
    cluster.fetch(3, by=2)
    results = [cluster.outcome(request) for request in requests]

    assert len(cluster.wished(1, SendAddPartitions)) == 1
    assert [result.base_offset for result in results if result] == [0, 1, 1, 2]
    assert appended(cluster) == 3


def test_within_an_open_transaction_nothing_is_asked(cluster: Cluster) -> None:
    """X9: only the first batch of a transaction here is verified; the next transaction's first one is again."""
    transactions = Transactions(cluster)
    for _ in range(3):
        transactions.send()
    assert len(cluster.wished(1, SendAddPartitions)) == 1
    transactions.end()
    transactions.send()

    assert len(cluster.wished(1, SendAddPartitions)) == 2


def test_a_refusal_of_the_coordinator_is_answered_to_all_that_wait(cluster: Cluster) -> None:
    """X9: nothing was appended, and the answer says so."""
    requests = [cluster.produce(first(sequence), transactional_id=ID) for sequence in (0, 1)]
    cluster.coordinator_says(REFUSED)

    assert [cluster.refused(request) for request in requests] == [(REFUSED.code, Outcome.NOT_APPENDED)] * 2
    assert (appended(cluster), cluster.cores[1].parked) == (0, (0, 0))


def test_a_producer_that_the_coordinator_fences_hears_what_it_can_recover_from(cluster: Cluster) -> None:
    """KAFKA-19690: at a partition that has no marker yet a producer whose transaction timed out gets
    INVALID_PRODUCER_EPOCH, as it does where the marker came first."""
    request = cluster.produce(first(), transactional_id=ID)
    cluster.coordinator_says(Refusal(ErrorCode.PRODUCER_FENCED, "at epoch 1"))

    assert cluster.refused(request) == (ErrorCode.INVALID_PRODUCER_EPOCH, Outcome.NOT_APPENDED)


def test_a_marker_in_between_voids_a_late_answer(cluster: Cluster) -> None:
    """X10: the coordinator confirmed a transaction that it has ended since; its late batch appends nothing."""
    request = cluster.produce(first(), transactional_id=ID)
    cluster.produce(marker(7, 1, commit=False))
    cluster.coordinator_says()

    assert cluster.refused(request) == (ErrorCode.INVALID_PRODUCER_EPOCH, Outcome.NOT_APPENDED)
    assert (appended(cluster), cluster.log(1).lso) == (1, 0)
    cluster.fetch(1, by=2)
    assert cluster.log(1).lso == 1


@pytest.mark.parametrize("answer", [None, REFUSED], ids=["confirmed", "refused"])
def test_an_answer_is_about_the_transaction_that_was_asked_about(cluster: Cluster, answer: Refusal | None) -> None:
    """X9: the batch that was asked about is gone, and its transaction has ended; the next one's batch waits behind it.

    A late confirmation does not append it, or it would open a transaction that the coordinator never ends here; a late
    refusal does not refuse it. It is asked about itself.
    """
    cluster.produce(first(), transactional_id=ID, timeout=1_000)
    cluster.advance(1_000)
    cluster.produce(marker(7, 1, commit=False))
    request = cluster.produce(first(epoch=1), transactional_id=ID)
    cluster.coordinator_says(answer)

    assert [a.producer_epoch for a in cluster.wished(1, SendAddPartitions)] == [0, 1]
    assert (appended(cluster), cluster.outcome(request)) == (1, None)
    cluster.coordinator_says()
    cluster.fetch(2, by=2)
    result = cluster.outcome(request)
    assert (result.base_offset, result.refusal) == (1, None)


def test_no_answer_in_time_is_definite(cluster: Cluster) -> None:
    """X9: the batch was not appended, and a later answer does not append it."""
    request = cluster.produce(first(), transactional_id=ID, timeout=1_000)
    cluster.advance(1_000)
    cluster.coordinator_says()

    assert cluster.refused(request) == (ErrorCode.REQUEST_TIMED_OUT, Outcome.NOT_APPENDED)
    assert (appended(cluster), cluster.cores[1].parked) == (0, (0, 0))


def test_a_change_of_leader_drops_what_waits(cluster: Cluster) -> None:
    """X10: the caller hears at once that nothing was appended here."""
    request = cluster.produce(first(), transactional_id=ID)
    cluster.push(1, partition_image(TP, leader=2, epoch=1, version=2))
    assert cluster.refused(request) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.NOT_APPENDED)
    cluster.push(1, partition_image(TP, leader=1, epoch=2, version=3))
    cluster.coordinator_says()

    assert appended(cluster) == 0


def test_a_caller_that_went_away_appends_nothing(cluster: Cluster) -> None:
    """The answer to a caller that went away could not be delivered."""
    request = cluster.produce(first(), transactional_id=ID)
    cluster.step(1, events.CallGone(0, request))
    cluster.coordinator_says()

    assert (appended(cluster), cluster.cores[1].parked) == (0, (0, 0))


def test_of_a_call_over_two_partitions_each_waits_for_its_own(cluster: Cluster) -> None:
    """X9: one partition is appended, the other one refused, and the answer comes when both are settled."""
    cluster.push(1, partition_image(TP1))
    request = cluster.request_id()
    parts = (produce_part(first(), TP), produce_part(first(), TP1))
    cluster.step(1, events.ProduceArrived(0, request, Acks.ALL, 1_000, parts, transactional_id=ID))
    cluster.coordinator_says(REFUSED)
    first_question = cluster.wished(1, SendAddPartitions)[0]
    cluster.step(1, events.AddPartitionsAnswered(0, first_question.correlation_id))
    assert request not in cluster.produced
    cluster.fetch(1, by=2)
    results = cluster.produced[request].results

    assert [result.tp for result in results] == [TP, TP1]
    assert (results[0].base_offset, said(results[1])) == (0, (ErrorCode.INVALID_TXN_STATE, Outcome.NOT_APPENDED))


def test_a_plain_batch_beside_a_transactional_one_is_settled_by_itself(cluster: Cluster) -> None:
    """X3: one request may have both; the refusal of the transaction is not about the plain batch."""
    cluster.push(1, partition_image(TP1))
    request = cluster.request_id()
    parts = (produce_part(first(), TP), produce_part(batch(), TP1))
    cluster.step(1, events.ProduceArrived(0, request, Acks.ALL, 1_000, parts, transactional_id=ID))
    (question,) = cluster.wished(1, SendAddPartitions)
    cluster.coordinator_says(REFUSED)
    cluster.step(1, events.Ticked(1_001))
    transactional, plain = cluster.produced[request].results

    assert question.tp == TP
    assert said(transactional) == (ErrorCode.INVALID_TXN_STATE, Outcome.NOT_APPENDED)
    assert (plain.tp, appended(cluster)) == (TP1, 1)


def test_min_isr_comes_before_the_coordinator() -> None:
    """X9: below min ISR nothing would be appended, so no coordinator is asked."""
    cluster = leading(min_isr=2, isr=(1,))
    request = cluster.produce(first(), transactional_id=ID)

    assert cluster.refused(request) == (ErrorCode.NOT_ENOUGH_REPLICAS, Outcome.NOT_APPENDED)
    assert cluster.wished(1, SendAddPartitions) == []


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
def test_weaker_acks_are_refused(cluster: Cluster, acks: Acks) -> None:
    """X3: an acknowledged record of weaker acks could vanish inside a committed transaction."""
    request = cluster.produce(first(), acks=acks, transactional_id=ID)

    assert cluster.refused(request) == (ErrorCode.INVALID_REQUIRED_ACKS, Outcome.NOT_APPENDED)


def test_a_transactional_batch_needs_its_id(cluster: Cluster) -> None:
    """X3: without it no coordinator can be asked."""
    assert cluster.refused(cluster.produce(first())) == (ErrorCode.INVALID_REQUEST, Outcome.NOT_APPENDED)


def test_a_request_names_each_partition_once(cluster: Cluster) -> None:
    """Two batches of one partition could be settled in different ways, for one slot of the answer each."""
    request = cluster.produce(first(), first(producer=8), transactional_id=ID)
    cluster.coordinator_says()
    cluster.fetch(1, by=2)
    results = cluster.produced[request].results

    assert (results[0].base_offset, said(results[1])) == (0, (ErrorCode.INVALID_REQUEST, Outcome.NOT_APPENDED))


def test_a_plain_batch_within_a_transaction_is_refused(cluster: Cluster) -> None:
    """T87: of the producer that has the transaction open; others are appended."""
    Transactions(cluster).send()
    request = cluster.produce(first(1, plain=True))

    assert cluster.refused(request) == (ErrorCode.INVALID_TXN_STATE, Outcome.NOT_APPENDED)
    cluster.produce(first(0, producer=8, plain=True))
    assert cluster.log(1).leo == 2


def test_a_lower_epoch_is_refused_before_anything_else() -> None:
    """X9, KAFKA-19690: a producer whose transaction timed out hears what it can recover from, without a question."""
    cluster = leading(min_isr=1)
    cluster.produce(marker(7, 3))
    request = cluster.produce(first(epoch=2), transactional_id=ID)

    assert cluster.refused(request) == (ErrorCode.INVALID_PRODUCER_EPOCH, Outcome.NOT_APPENDED)
    assert cluster.wished(1, SendAddPartitions) == []


def test_a_marker_is_answered_by_the_high_watermark(cluster: Cluster) -> None:
    """X11: a marker has the rules of acks=all."""
    transactions = Transactions(cluster)
    transactions.send()
    request = transactions.end()
    before = cluster.outcome(request)
    cluster.fetch(2, by=2)
    result = cluster.outcome(request)

    assert before is None
    assert (result.base_offset, result.refusal) == (1, None)


def test_a_repeated_marker_waits_for_the_first(cluster: Cluster) -> None:
    """X11: the first copy may still be lost with this leader, so the second one is answered no sooner."""
    transactions = Transactions(cluster)
    transactions.send()
    transactions.end()
    request = cluster.produce(marker(7, 1))
    assert (cluster.outcome(request), cluster.log(1).leo) == (None, 2)
    cluster.fetch(2, by=2)
    later = cluster.produce(marker(7, 1))

    assert [cluster.outcome(r).base_offset for r in (request, later)] == [1, 1]  # type: ignore[union-attr]
    assert cluster.log(1).leo == 2


def test_a_marker_is_refused_below_min_isr() -> None:
    """X11: like a batch with acks=all, before anything is written."""
    cluster = leading(min_isr=2, isr=(1,))

    assert cluster.refused(cluster.produce(marker(7, 1))) == (ErrorCode.NOT_ENOUGH_REPLICAS, Outcome.NOT_APPENDED)


@pytest.mark.parametrize(
    ("epoch", "coordinator", "code"),
    [
        (2, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
def test_markers_that_are_refused(cluster: Cluster, epoch: int, coordinator: int, code: ErrorCode) -> None:
    """X11: an old epoch, a late copy, an old coordinator; the open transaction stays open."""
    cluster.produce(marker(7, 3, coordinator=5))
    cluster.produce(first(epoch=3), transactional_id=ID)
    cluster.coordinator_says()
    request = cluster.produce(marker(7, epoch, coordinator=coordinator))

    assert cluster.refused(request) == (code, Outcome.NOT_APPENDED)
    assert cluster.log(1).leo == 2
