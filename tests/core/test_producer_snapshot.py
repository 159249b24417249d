"""The producer state that a replica asks its leader for before its log begins above offset 0 (C43)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch, history, partition_image

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import events
from strandline.core.log.effects import AnswerCall, RestartLog, SendFetch, SendProducerSnapshot
from strandline.core.log.producers import ProducerLedger
from strandline.core.messages import ProducerSnapshotAnswer, ProducerSnapshotQuestion
from strandline.core.types import LeaderEpoch, NodeId, Offset, ProducerBatch


def row(producer: int, sequence: int, offset: int) -> ProducerBatch:
    """One remembered batch of one record."""
    return ProducerBatch(producer, 0, sequence, sequence, Offset(offset), Offset(offset), 0)


def leading() -> Cluster:
    """Node 1 has batches of producer 7 at offsets 0, 1 and 3, of producer 8 at 2, and deletes what is below 3."""
    cluster = Cluster(1, 2)
    cluster.push(1, partition_image(isr=(1,), epoch=4))
    for producer, sequence in ((7, 0), (7, 1), (8, 0), (7, 2)):
        cluster.produce(batch(producer=producer, sequence=sequence))
    cluster.delete_records(3)
    return cluster


def asked(cluster: Cluster, epoch: int = 4, node: int = 1) -> ProducerSnapshotAnswer:
    """What a node answers to FetchProducerSnapshot."""
    question = ProducerSnapshotQuestion(TP, LeaderEpoch(epoch))
    cluster.step(node, events.ProducerSnapshotAsked(cluster.now, 99, question))
    (answer,) = cluster.wished(node, AnswerCall)[-1].answers
    assert isinstance(answer, ProducerSnapshotAnswer)
    return answer


def test_a_leader_returns_every_remembered_batch_below_its_log_start() -> None:
    """Also of a producer whose latest batch lies above: that one may yet be cut, and its earlier ones not."""
    answer = asked(leading())

    assert answer.refusal is None
    assert answer.log_start_offset == 3
    assert answer.producers == (row(7, 0, 0), row(7, 1, 1), row(8, 0, 2))


@pytest.mark.parametrize(("epoch", "code"), [(3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_question_of_another_leader_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    """The replica would fetch from another lineage than the one that it begins with."""
    refusal = asked(leading(), epoch).refusal

    assert refusal is not None
    assert refusal.code is code


def test_a_follower_refuses_to_answer() -> None:
    """It may lack what the leader knows."""
    cluster = leading()
    cluster.push(2, partition_image(isr=(1,), epoch=4))

    assert (refusal := asked(cluster, node=2).refusal) is not None
    assert refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_that_asked_has_the_leaders_state() -> None:
    """What was adopted, and what is folded from the records above, make the leader's ledger."""
    cluster = leading()
    cluster.push(2, partition_image(isr=(1,), epoch=4))
    cluster.settle()

    assert cluster.log(2).producers.rows() == cluster.log(1).producers.rows()
    assert cluster.ends(2)[0] == cluster.ends(1)[0]


def restarting() -> Cluster:
    """Node 2 has three records, its leader's log begins at 12, and the question about producers is under way."""
    cluster = Cluster(2)
    cluster.preload(2, history((5, 3, 0)), hw=3)
    cluster.push(2, partition_image(leader=1, epoch=5))
    follower = cluster.follower(2)
    follower._restart_from(Offset(12), "restart_at_log_start")
    follower.outstanding = None
    cluster.cores[2]._fetcher.consider(TP)
    cluster.step(2, events.Ticked(cluster.now))
    return cluster


def answered(cluster: Cluster, *rows: ProducerBatch, start: int | None = 12, refusal: Refusal | None = None) -> None:
    """The leader answers the latest question."""
    correlation_id = cluster.wished(2, SendProducerSnapshot)[-1].correlation_id
    answer = ProducerSnapshotAnswer(TP, None if start is None else Offset(start), rows, refusal)
    cluster.step(2, events.ProducerSnapshotAnswered(cluster.now, NodeId(1), correlation_id, answer))


def test_it_fetches_only_after_it_has_the_state() -> None:
    """The state is kept together with the new start, in front of the first fetch from there."""
    cluster = restarting()
    before = len(cluster.wished(2, SendFetch))
    answered(cluster, row(7, 0, 3))

    assert len(cluster.wished(2, RestartLog)) == 1
    assert cluster.wished(2, RestartLog)[0] == RestartLog(TP, Offset(12), (row(7, 0, 3),))
    assert cluster.log(2).producers.rows() == (row(7, 0, 3),)
    fetches = cluster.wished(2, SendFetch)
    assert len(fetches) == before + 1
    assert fetches[-1].request.partitions[0].fetch_offset == 12


def test_it_begins_where_the_answer_says() -> None:
    """The leader deleted more between the two questions."""
    cluster = restarting()
    answered(cluster, row(7, 0, 13), start=15)

    assert cluster.ends(2) == (15, 15)


def test_a_leader_of_an_earlier_release_is_followed_without_the_state() -> None:
    """It knows no such method; the replica begins where the leader's log did."""
    cluster = restarting()
    answered(cluster, start=None, refusal=Refusal(ErrorCode.UNSUPPORTED_VERSION))

    assert cluster.ends(2) == (12, 12)
    assert cluster.log(2).producers.rows() == ()


@pytest.mark.parametrize(
    ("rows", "start"),
    [((), 11), ((), -1), ((row(7, 0, 12),), 12), ((row(7, 0, -1),), 12)],
    ids=["below the first answer", "below 0", "a batch above", "a batch below 0"],
)
def test_an_answer_that_cannot_be_true_changes_nothing(rows: tuple[ProducerBatch, ...], start: int) -> None:
    """A log start never goes back, and the state is of batches below it; the question is asked again."""
    cluster = restarting()
    answered(cluster, *rows, start=start)

    assert cluster.ends(2)[0] == 3
    assert str(cluster.follower(2).state) == "restarting"


@pytest.mark.parametrize("start", [None, 12])
def test_without_an_answer_it_asks_again(start: int | None) -> None:
    """M39: nothing is known, so nothing is thrown away."""
    cluster = restarting()
    correlation_id = cluster.wished(2, SendProducerSnapshot)[-1].correlation_id
    if start is None:
        answered(cluster, start=None)
    else:
        cluster.step(2, events.ProducerSnapshotFailed(cluster.now, NodeId(1), correlation_id, "gone"))
    cluster.advance(1_100)

    assert cluster.ends(2)[0] == 3
    assert len(cluster.wished(2, SendProducerSnapshot)) == 2


def test_the_oldest_are_left_out_of_a_large_answer() -> None:
    """The newest batches are those that may still be sent again."""
    ledger = ProducerLedger(row(producer, 0, producer) for producer in range(10))

    assert ledger.rows_below(Offset(9), 3) == (row(6, 0, 6), row(7, 0, 7), row(8, 0, 8))
