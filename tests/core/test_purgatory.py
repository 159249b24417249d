"""Produce calls that wait: for the HW, for the leader's own commit, until a time-out, until the leader is gone."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, batch, metadata, node_epoch, partition_image, produce_part

from strandline.core.errors import ErrorCode, Outcome
from strandline.core.log import events
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import Acks, Durability, Rules

PAGE_CACHE = Rules(durability=Durability.PAGE_CACHE)


def leading(*, rules: Rules | None = None, hold_flushes: bool = False, timings: NodeTimings | None = None,
            min_isr: int = 1, isr: tuple[int, ...] = (1, 2)) -> Cluster:  # fmt: skip
    """Node 1 leads partitions 0 and 1 for nodes 1 and 2; there is no core for node 2."""
    cluster = Cluster(1, rules=rules, hold_flushes=hold_flushes, timings=timings)
    cluster.push(1, *(partition_image(tp, isr=isr, min_isr=min_isr) for tp in (TP, TP1)))
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    """Node 1 leads under the default rules, and has no records."""
    return leading()


@pytest.mark.parametrize("rules", [Rules(), PAGE_CACHE])
def test_acks_all_waits_for_the_high_watermark(rules: Rules) -> None:
    """M46: acks=all completes when the HW has passed the last record, with the first offset."""
    cluster = leading(rules=rules)
    request = cluster.produce(batch(3))
    cluster.fetch(0, by=2)
    before = cluster.outcome(request)
    cluster.fetch(3, by=2)
    after = cluster.outcome(request)

    assert before is None
    assert (after.base_offset, after.refusal) == (0, None)
    assert cluster.cores[1].parked == (0, 0)


def test_acks_one_waits_for_the_leaders_own_commit() -> None:
    """M55: under fsync acks=1 completes after the leader's own commit, and needs no follower."""
    cluster = leading(hold_flushes=True)
    request = cluster.produce(acks=Acks.LEADER)
    before = cluster.outcome(request)
    cluster.flush(1)
    after = cluster.outcome(request)

    assert before is None
    assert after.base_offset == 0 and after.refusal is None


def test_acks_one_does_not_wait_for_a_page_cache() -> None:
    """M55: under page-cache acks=1 completes after the append."""
    cluster = leading(rules=PAGE_CACHE)

    assert cluster.outcome(cluster.produce(acks=Acks.LEADER)) is not None


def test_acks_none_says_no_offset() -> None:
    """acks=0 is answered after the append attempt, without a base offset."""
    cluster = leading(hold_flushes=True)
    result = cluster.outcome(cluster.produce(acks=Acks.NONE))

    assert (result.base_offset, result.refusal) == (None, None)
    assert cluster.log(1).leo == 1


def test_high_watermark_counts_the_durable_end_of_the_leader() -> None:
    """M55: the leader's own vote is its durable LEO; the completed flush can raise the HW."""
    cluster = leading(hold_flushes=True)
    request = cluster.produce(batch(2))
    cluster.fetch(2, by=2)
    before = cluster.log(1).hw, cluster.outcome(request)
    cluster.flush(1)

    assert before == (0, None)
    assert cluster.log(1).hw == 2
    assert cluster.outcome(request) is not None


def test_time_out_says_may_appear(cluster: Cluster) -> None:
    """P2: a produce that timed out is appended and may still commit."""
    request = cluster.produce(timeout=1000)
    cluster.advance(999)
    before = cluster.outcome(request)
    cluster.advance(1)

    assert before is None
    assert cluster.refused(request) == (ErrorCode.REQUEST_TIMED_OUT, Outcome.MAY_APPEAR)
    assert cluster.log(1).leo == 1
    assert cluster.cores[1].parked == (0, 0)


def test_time_out_keeps_what_was_reached(cluster: Cluster) -> None:
    """Only the partition that still waits times out in a call over two."""
    request = cluster.request_id()
    parts = (produce_part(batch(), TP), produce_part(batch(), TP1))
    cluster.step(1, events.ProduceArrived(0, request, Acks.ALL, 1000, parts))
    cluster.fetch(1, by=2, tp=TP1)
    cluster.advance(1000)
    results = cluster.produced[request].results

    assert [r.tp for r in results] == [TP, TP1]
    assert results[0].refusal.code is ErrorCode.REQUEST_TIMED_OUT
    assert results[1].refusal is None and results[1].base_offset == 0


def test_two_batches_of_one_partition_wait_for_the_later(cluster: Cluster) -> None:
    """A call with two batches for one partition is answered once, when both are committed."""
    request = cluster.produce(batch(2), batch(3))
    cluster.fetch(2, by=2)
    before = cluster.outcome(request)
    cluster.fetch(5, by=2)

    assert before is None
    assert [r.base_offset for r in cluster.produced[request].results] == [0, 2]


def test_not_leader_before_the_append_is_definite() -> None:
    """P2: a node that does not lead appends nothing and returns the leader it knows."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(leader=2))
    result = cluster.outcome(cluster.produce())

    assert (result.refusal.code, result.outcome) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.NOT_APPENDED)
    assert (result.leader_hint.leader, result.leader_hint.leader_epoch) == (2, 0)


def test_not_leader_after_the_append_is_indefinite(cluster: Cluster) -> None:
    """T15, P2: a leader that resigns answers all waiting calls at once, and the records may appear."""
    waiting = [cluster.produce(), cluster.produce(acks=Acks.ALL)]
    cluster.push(1, partition_image(leader=2, epoch=1, version=2))
    results = [cluster.outcome(r) for r in waiting]

    assert [r.refusal.code for r in results if r and r.refusal] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [r.outcome for r in results if r] == [Outcome.MAY_APPEAR] * 2


@pytest.mark.parametrize(
    ("acks", "leader"), [(Acks.LEADER, 2), (Acks.ALL, 1)], ids=["acks=1 that waits for a commit", "re-elected leader"]
)
def test_a_new_epoch_ends_what_waited_in_the_old_one(acks: Acks, leader: int) -> None:
    """T15: under fsync an acks=1 call waits as well, and is answered at once; no call outlives the epoch it came in."""
    cluster = leading(hold_flushes=acks is Acks.LEADER)
    request = cluster.produce(acks=acks)
    cluster.push(1, partition_image(leader=leader, epoch=1, version=2))
    result = cluster.outcome(request)

    assert result.outcome is Outcome.MAY_APPEAR


def test_deleting_the_topic_answers_everybody(cluster: Cluster) -> None:
    """A call that waits in a topic that is deleted gets an unknown-topic error, and its records may have appeared."""
    request = cluster.produce()
    image = metadata(node_epoch(1), deleted=(TP.topic_id,))
    cluster.step(1, events.MetadataArrived(0, image))

    assert cluster.refused(request) == (ErrorCode.UNKNOWN_TOPIC_ID, Outcome.MAY_APPEAR)
    assert TP not in cluster.disks[1]


def test_entries_are_bounded() -> None:
    """At the bound a call is rejected whole and definitely, and may be sent again."""
    cluster = leading(timings=NodeTimings(purgatory_max_entries=2))
    first = [cluster.produce(), cluster.produce()]
    full = cluster.cores[1].purgatory_full
    result = cluster.refused(cluster.produce())
    cluster.fetch(2, by=2)

    assert full
    assert result == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, Outcome.NOT_APPENDED)
    assert cluster.log(1).leo == 2
    assert all(cluster.outcome(r) for r in first)
    assert not cluster.cores[1].purgatory_full


def test_bytes_are_bounded() -> None:
    """Waiting bytes are counted, and released when a call times out."""
    cluster = leading(timings=NodeTimings(purgatory_max_bytes=250))
    cluster.produce(batch(2), timeout=500)
    open_before = cluster.cores[1].purgatory_full
    cluster.produce(batch(1), timeout=500)
    full = cluster.cores[1].purgatory_full
    cluster.advance(500)

    assert (open_before, full, cluster.cores[1].purgatory_full) == (False, True, False)


def test_calls_that_left_leave_nothing_behind() -> None:
    """While the HW does not move calls arrive and time out; what is kept of them is bounded."""
    cluster = leading(timings=NodeTimings(purgatory_max_entries=100))
    purgatory = cluster.cores[1]._produce.purgatory
    for _ in range(400):
        cluster.produce(timeout=1)
        cluster.advance(10, tick_ms=10)
    last = cluster.produce()
    remembered = sum(len(heap) for heap in purgatory._by_offset.values()), len(purgatory._by_deadline)
    cluster.fetch(cluster.log(1).leo, by=2)

    assert max(remembered) <= 128
    assert last in cluster.produced


def test_a_caller_that_went_away_is_forgotten() -> None:
    """CallGone: the records stay, the answer is dropped, and the bytes are released."""
    cluster = leading(timings=NodeTimings(purgatory_max_entries=1))
    request = cluster.produce()
    cluster.step(1, events.CallGone(0, request))
    cluster.fetch(1, by=2)

    assert request not in cluster.produced
    assert cluster.ends(1) == (1, 1)
    assert cluster.cores[1].parked == (0, 0)


def test_min_isr_before_the_append() -> None:
    """M47: acks=all is rejected below min ISR before anything is written; acks=1 is not."""
    cluster = leading(min_isr=2, isr=(1,))
    result = cluster.refused(cluster.produce())
    one = cluster.outcome(cluster.produce(acks=Acks.LEADER))

    assert result == (ErrorCode.NOT_ENOUGH_REPLICAS, Outcome.NOT_APPENDED)
    assert one.refusal is None
    assert cluster.log(1).leo == 1


def test_min_isr_stops_the_high_watermark() -> None:
    """M18: a produce that waits when the ISR falls below min ISR stays parked until its time-out."""
    cluster = leading(min_isr=2)
    request = cluster.produce(timeout=1000)
    cluster.push(1, partition_image(isr=(1,), min_isr=2, version=2))
    cluster.fetch(1, by=2)
    parked = cluster.log(1).hw, cluster.outcome(request)
    cluster.advance(1000)
    result = cluster.outcome(request)

    assert parked == (0, None)
    assert result.refusal.code is ErrorCode.REQUEST_TIMED_OUT


def test_min_isr_after_the_append() -> None:
    """M47: below the HW but under min ISR counts as appended, not as acknowledged."""
    cluster = leading(min_isr=2)
    first = cluster.produce(batch(producer=7, sequence=0))
    cluster.fetch(1, by=2)
    cluster.push(1, partition_image(isr=(1,), min_isr=2, version=2))
    again = cluster.refused(cluster.produce(batch(producer=7, sequence=0)))

    assert cluster.outcome(first) is not None
    assert again == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Outcome.MAY_APPEAR)


def test_a_duplicate_waits_for_its_first_append(cluster: Cluster) -> None:
    """TR20, M61: a duplicate is answered with the first offset, and not before that is below the HW."""
    cluster.produce(batch(3))
    first = cluster.produce(batch(2, producer=7, sequence=0))
    cluster.produce(batch(4))
    again = cluster.produce(batch(2, producer=7, sequence=0))
    leo = cluster.log(1).leo
    cluster.fetch(3, by=2)
    before = cluster.outcome(again)
    cluster.fetch(5, by=2)
    results = [cluster.outcome(first), cluster.outcome(again)]
    third = cluster.outcome(cluster.produce(batch(2, producer=7, sequence=0)))

    assert leo == 9
    assert before is None
    assert [r.base_offset for r in results if r] == [3, 3]
    assert third.base_offset == 3
    assert cluster.log(1).leo == 9


def test_a_duplicate_is_recognised_below_min_isr() -> None:
    """M61: the sequence check precedes the min-ISR check, so a duplicate is never NOT_APPENDED."""
    cluster = leading(min_isr=2)
    cluster.produce(batch(producer=7, sequence=0))
    cluster.push(1, partition_image(isr=(1,), min_isr=2, version=2))
    again = cluster.produce(batch(producer=7, sequence=0), timeout=1000)
    new = cluster.outcome(cluster.produce(batch(producer=7, sequence=1)))
    waiting = cluster.outcome(again)
    cluster.advance(1000)
    late = cluster.outcome(again)

    assert waiting is None
    assert new.outcome is Outcome.NOT_APPENDED
    assert late.outcome is Outcome.MAY_APPEAR


@pytest.mark.parametrize(
    ("producer_epoch", "sequence", "code", "outcome"),
    [
        (1, 9, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Outcome.NOT_APPENDED),
        (0, 2, ErrorCode.INVALID_PRODUCER_EPOCH, Outcome.NOT_APPENDED),
        (1, 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, Outcome.MAY_APPEAR),
    ],
)
def test_refused_sequences(
    cluster: Cluster, producer_epoch: int, sequence: int, code: ErrorCode, outcome: Outcome
) -> None:
    """M61: a gap and an old producer epoch are definite errors; a batch older than the last five may be in the log."""
    for known in range(6):
        cluster.produce(batch(producer=7, producer_epoch=1, sequence=known))
    result = cluster.refused(cluster.produce(batch(producer=7, producer_epoch=producer_epoch, sequence=sequence)))

    assert result == (code, outcome)
    assert cluster.log(1).leo == 6


def test_a_duplicate_with_acks_one_waits_for_the_commit_of_its_first() -> None:
    """M55, M61: also under acks=1 a duplicate is acknowledged no sooner than its first append is durable."""
    cluster = leading(hold_flushes=True)
    header = batch(producer=7, sequence=0)
    requests = [cluster.produce(header, acks=Acks.LEADER), cluster.produce(header, acks=Acks.LEADER)]
    before = [cluster.outcome(r) for r in requests]
    cluster.flush(1)

    assert before == [None, None]
    assert [r.base_offset for r in map(cluster.outcome, requests) if r] == [0, 0]


def test_unknown_partition_is_definite(cluster: Cluster) -> None:
    """A partition that is unknown to this node is rejected with NOT_APPENDED."""
    result = cluster.outcome(cluster.produce(tp=TP._replace(partition=9)))
    other = cluster.outcome(cluster.produce(tp=TP._replace(topic_id="other")))

    assert result.outcome is Outcome.NOT_APPENDED
    assert result.refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.refusal.code is ErrorCode.UNKNOWN_TOPIC_ID
