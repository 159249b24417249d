"""Producer state that a replica asks for (C43), and what readers of committed records are given (X12 to X15)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch, history, partition_image
from transactional_producer import Transactions, following, leading as leading_committed

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import events
from strandline.core.log.effects import AnswerCall, RestartLog, SendFetch, SendProducerSnapshot
from strandline.core.log.producers import ProducerLedger
from strandline.core.types import AbortedTransaction, LeaderEpoch, NodeId, Offset, ProducerBatch


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


def asked(cluster: Cluster, epoch: int = 4, node: int = 1) -> messages.ProducerSnapshotAnswer:
    """What a node answers to FetchProducerSnapshot."""
    question = messages.ProducerSnapshotQuestion(TP, LeaderEpoch(epoch))
    cluster.step(node, events.ProducerSnapshotAsked(cluster.now, 99, question))
    (answer,) = cluster.wished(node, AnswerCall)[-1].answers
    assert isinstance(answer, messages.ProducerSnapshotAnswer)
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

    assert refusal.code is code


def test_a_follower_refuses_to_answer() -> None:
    """A follower may lack what the leader knows."""
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
    answer = messages.ProducerSnapshotAnswer(TP, None if start is None else Offset(start), rows, refusal)
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


# What readers of committed records are given, by leaders and followers: up to the LSO (X12 to X15).


def read(cluster: Cluster, offset: int = 0, *, node: int = 1, committed: bool = True) -> tuple[int, int | None]:
    """(LSO, end of what a consumer may read) at ``node``."""
    result = cluster.result(cluster.fetch(offset, by=None, node=node, at_follower=node != 1, committed=committed))
    assert result.refusal is None and result.last_stable_offset is not None
    return result.last_stable_offset, result.read.end if result.read else None


def latest(cluster: Cluster, *, committed: bool, timestamp: int = messages.LATEST) -> int | None:
    """The latest offset in the leader's answer to a client."""
    request = cluster.request_id()
    question = messages.OffsetQuestion(TP, timestamp, read_committed=committed)
    cluster.step(1, events.OffsetsAsked(cluster.now, request, (question,)))
    (answer,) = cluster.answered[request]
    return answer.lookup.end if answer.lookup else answer.offset


def test_a_consumer_reads_up_to_the_last_stable_offset() -> None:
    """X14: records of an open transaction, and all behind them, are given to those alone who do not mind."""
    cluster = leading_committed()
    cluster.produce()
    Transactions(cluster).send(2)
    cluster.produce()
    cluster.fetch(4, by=2)

    assert read(cluster) == (1, 1)
    assert read(cluster, committed=False) == (1, 4)


def test_a_replica_reads_to_the_log_end() -> None:
    """X14: what is open is replicated like everything else."""
    cluster = leading_committed()
    Transactions(cluster).send()
    result = cluster.result(cluster.fetch(0, by=2))

    assert (result.read.end, result.last_stable_offset, result.aborted) == (1, None, ())


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed() -> None:
    """X12: until then it could be lost with its leader, and the transaction would be open again."""
    cluster = leading_committed()
    transactions = Transactions(cluster)
    transactions.send()
    cluster.fetch(1, by=2)
    transactions.end()
    assert read(cluster) == (0, None)
    cluster.fetch(2, by=2)

    assert read(cluster) == (2, 2)


def test_the_answer_names_what_was_aborted() -> None:
    """X14: of a transaction that ended before the fetch began nothing is said."""
    cluster = leading_committed()
    transactions = Transactions(cluster)
    for commit in (False, True, False):
        transactions.send()
        transactions.end(commit=commit)
    cluster.fetch(6, by=2)
    results = [cluster.result(cluster.fetch(offset, by=None, committed=True)) for offset in (0, 1, 2, 5)]
    first, last = (
        AbortedTransaction(7, Offset(0), Offset(1), Offset(2)),
        AbortedTransaction(7, Offset(4), Offset(5), Offset(6)),
    )

    assert [result.aborted for result in results if result] == [(first, last), (first, last), (last,), (last,)]
    uncommitted = cluster.result(cluster.fetch(0, by=None))
    assert uncommitted.aborted == ()


def test_only_a_rising_last_stable_offset_wakes_a_reader_of_committed_records() -> None:
    """X14: the HW alone does not; what is woken is the reader of everything."""
    cluster = leading_committed()
    transactions = Transactions(cluster)
    transactions.send()
    committed = cluster.fetch(0, by=None, committed=True, wait=1_000)
    everything = cluster.fetch(0, by=None, wait=1_000)
    cluster.fetch(1, by=2)
    assert (cluster.result(committed), cluster.result(everything) is None) == (None, False)
    transactions.end()
    cluster.fetch(2, by=2)
    result = cluster.result(committed)

    assert result.read.end == 2


def test_the_latest_offset_is_the_last_stable_one() -> None:
    """X14: for those who ask so, also where a time is looked for."""
    cluster = leading_committed()
    cluster.produce()
    Transactions(cluster).send()
    cluster.fetch(2, by=2)

    assert [latest(cluster, committed=committed) for committed in (False, True)] == [2, 1]
    assert [latest(cluster, committed=c, timestamp=messages.MAX_TIMESTAMP) for c in (False, True)] == [2, 1]


def test_a_follower_serves_by_its_own_log() -> None:
    """X15: LSO and aborted transactions of a follower are folded from what it replicated."""
    cluster = following()
    aborted, other = Transactions(cluster), Transactions(cluster, producer=8)
    aborted.send()
    other.send()
    aborted.end(commit=False)
    cluster.settle()
    cluster.advance(1_000, settle=True)
    assert [read(cluster, node=node) for node in (1, 2)] == [(1, 1)] * 2
    other.end()
    cluster.settle()
    cluster.advance(1_000, settle=True)
    result = cluster.result(cluster.fetch(2, by=None, node=2, at_follower=True, committed=True))

    assert result.read.end == 4
    assert [t[:3] for t in result.aborted] == [(7, 0, 2)]


def test_a_new_leader_knows_the_transactions_of_the_old_one() -> None:
    """X12: what is open, and which markers were written, are folded on the follower as on the leader."""
    cluster = following()
    transactions = Transactions(cluster)
    transactions.send()
    cluster.settle()
    cluster.push_all(partition_image(TP, leader=2, epoch=1, version=2))
    cluster.settle()
    assert cluster.log(2).lso == 0
    cluster.produce(transactions.next_batch(), node=2, transactional_id="orders")

    assert cluster.log(2).leo == 2


def test_a_cut_takes_the_marker_away() -> None:
    """X13: a transaction whose marker was truncated is open again, and its end no longer in the list."""
    cluster = following()
    transactions = Transactions(cluster)
    transactions.send()
    cluster.settle()
    cluster.push(1, partition_image(TP, leader=1, epoch=0, version=2, isr=(1, 2), min_isr=2))
    transactions.end(commit=False)
    assert cluster.log(1).producers.transactions.state().aborted != ()
    cluster.push(2, partition_image(TP, leader=2, epoch=1, version=3))
    cluster.push(1, partition_image(TP, leader=2, epoch=1, version=3))
    cluster.settle()
    state = cluster.log(1).producers.transactions.state()

    assert cluster.cuts(1) == [1]
    assert (state.aborted, state.ended, [t[:2] for t in state.open]) == ((), (), [(7, 0)])


@pytest.mark.parametrize("commit", [True, False])
def test_an_opened_log_does_not_trust_markers_above_its_high_watermark(commit: bool) -> None:
    """X12: after a restart a marker above the known HW may still be cut, so that its transaction is not decided."""
    cluster = leading_committed()
    transactions = Transactions(cluster)
    transactions.send(3)
    cluster.fetch(2, by=2, honest=False)
    transactions.end(commit=commit)
    cluster.restart(1)
    cluster.push(1, partition_image(TP, leader=1, epoch=1, version=2))
    assert (cluster.log(1).leo, cluster.log(1).lso) == (4, 0)
    cluster.fetch(4, by=2)

    assert cluster.log(1).lso == 4


def test_a_follower_serves_what_lies_below_its_high_watermark() -> None:
    """I13: after a cut below what it has shown, committed records are given and no end is named; above it waits."""
    cluster = following()
    for _ in range(3):
        cluster.produce()
    cluster.settle()
    cluster.advance(1_000, settle=True)
    cluster.fetch(0, by=None, node=2, at_follower=True)
    log = cluster.log(2)
    shown, log.hw = log.exposed_hw, Offset(2)
    below = cluster.result(cluster.fetch(1, by=None, node=2, at_follower=True))
    at_its_end = cluster.result(cluster.fetch(2, by=None, node=2, at_follower=True))

    assert shown == 3
    assert below.refusal is None
    assert (below.read.start, below.read.end) == (1, 2)
    assert (below.high_watermark, below.last_stable_offset) == (None, None)
    assert at_its_end.refusal.code is ErrorCode.OFFSET_NOT_AVAILABLE


def test_an_offset_below_the_log_start_is_answered_with_the_log_start() -> None:
    """A consumer that fell behind a deletion learns from the refusal where the log begins, everywhere."""
    cluster = following()
    for _ in range(3):
        cluster.produce()
    cluster.settle()
    for node in (1, 2):
        cluster.log(node).log_start_offset = Offset(2)
    found = [
        cluster.result(cluster.fetch(1, by=None)),
        cluster.result(cluster.fetch(1, by=None, node=2, at_follower=True)),
        cluster.result(cluster.fetch(99, by=None)),
    ]

    assert [each.refusal.code for each in found if each and each.refusal] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 3
    assert [each.log_start_offset for each in found if each] == [2, 2, 2]


def test_a_follower_never_goes_back_below_what_it_has_shown() -> None:
    """X15, I13: while its HW is lower than before, it refuses rather than to show a lower LSO."""
    cluster = following()
    Transactions(cluster).send()
    cluster.produce()
    cluster.settle()
    cluster.advance(1_000, settle=True)
    cluster.fetch(0, by=None, node=2, at_follower=True, committed=True)
    log = cluster.log(2)
    log.hw = Offset(0)
    result = cluster.result(cluster.fetch(0, by=None, node=2, at_follower=True, committed=True))

    assert result.refusal.code is ErrorCode.OFFSET_NOT_AVAILABLE
