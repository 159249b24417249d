"""What readers of committed records are given, by leaders and followers: up to the LSO (X12 to X15)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, partition_image
from transactional_producer import Transactions, following, leading

from strandline.core.errors import ErrorCode
from strandline.core.log import events
from strandline.core.messages import LATEST, MAX_TIMESTAMP, OffsetQuestion
from strandline.core.types import AbortedTransaction, Offset


def read(cluster: Cluster, offset: int = 0, *, node: int = 1, committed: bool = True) -> tuple[int, int | None]:
    """(LSO, end of what a consumer may read) at ``node``."""
    result = cluster.result(cluster.fetch(offset, by=None, node=node, at_follower=node != 1, committed=committed))
    assert result is not None and result.refusal is None and result.last_stable_offset is not None
    return result.last_stable_offset, result.read.end if result.read else None


def latest(cluster: Cluster, *, committed: bool, timestamp: int = LATEST) -> int | None:
    """The latest offset in the leader's answer to a client."""
    request = cluster.request_id()
    question = OffsetQuestion(TP, timestamp, read_committed=committed)
    cluster.step(1, events.OffsetsAsked(cluster.now, request, (question,)))
    (answer,) = cluster.answered[request]
    found: int | None = answer.lookup.end if answer.lookup else answer.offset
    return found


def test_a_consumer_reads_up_to_the_last_stable_offset() -> None:
    """X14: records of an open transaction, and all behind them, are given to those alone who do not mind."""
    cluster = leading()
    cluster.produce()
    Transactions(cluster).send(2)
    cluster.produce()
    cluster.fetch(4, by=2)

    assert read(cluster) == (1, 1)
    assert read(cluster, committed=False) == (1, 4)


def test_a_replica_reads_to_the_log_end() -> None:
    """X14: what is open is replicated like everything else."""
    cluster = leading()
    Transactions(cluster).send()
    result = cluster.result(cluster.fetch(0, by=2))

    assert result is not None and result.read is not None
    assert (result.read.end, result.last_stable_offset, result.aborted) == (1, None, ())


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed() -> None:
    """X12: until then it could be lost with its leader, and the transaction would be open again."""
    cluster = leading()
    transactions = Transactions(cluster)
    transactions.send()
    cluster.fetch(1, by=2)
    transactions.end()
    assert read(cluster) == (0, None)
    cluster.fetch(2, by=2)

    assert read(cluster) == (2, 2)


def test_the_answer_names_what_was_aborted() -> None:
    """X14: of a transaction that ended before the fetch began nothing is said."""
    cluster = leading()
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
    assert uncommitted is not None and uncommitted.aborted == ()


def test_only_a_rising_last_stable_offset_wakes_a_reader_of_committed_records() -> None:
    """X14: the HW alone does not; what is woken is the reader of everything."""
    cluster = leading()
    transactions = Transactions(cluster)
    transactions.send()
    committed = cluster.fetch(0, by=None, committed=True, wait=1_000)
    everything = cluster.fetch(0, by=None, wait=1_000)
    cluster.fetch(1, by=2)
    assert (cluster.result(committed), cluster.result(everything) is None) == (None, False)
    transactions.end()
    cluster.fetch(2, by=2)
    result = cluster.result(committed)

    assert result is not None and result.read is not None and result.read.end == 2


def test_the_latest_offset_is_the_last_stable_one() -> None:
    """X14: for those who ask so, also where a time is looked for."""
    cluster = leading()
    cluster.produce()
    Transactions(cluster).send()
    cluster.fetch(2, by=2)

    assert [latest(cluster, committed=committed) for committed in (False, True)] == [2, 1]
    assert [latest(cluster, committed=c, timestamp=MAX_TIMESTAMP) for c in (False, True)] == [2, 1]


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

    assert result is not None and result.read is not None and result.read.end == 4
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
    cluster = leading()
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
    assert below is not None and below.refusal is None
    assert below.read is not None and (below.read.start, below.read.end) == (1, 2)
    assert (below.high_watermark, below.last_stable_offset) == (None, None)
    assert at_its_end is not None and at_its_end.refusal is not None
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

    assert result is not None and result.refusal is not None
    assert result.refusal.code is ErrorCode.OFFSET_NOT_AVAILABLE
