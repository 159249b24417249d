"""DeleteRecords at the leader (C100, T61, TR34), and idempotent producers whose records are deleted (M30, M61, C43)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, batch, fetch_part, partition_image

from strandline.core.errors import ErrorCode, Outcome
from strandline.core.log import events
from strandline.core.log.effects import AdvanceLogStart, AnswerCall
from strandline.core.messages import DeletedPartition, DeletePartition, ProduceResult
from strandline.core.serving import deletion
from strandline.core.types import BatchHeader, Offset

ALL = (1, 2, 3)


def leading(records: int = 5, *, isr: tuple[int, ...] = ALL, min_isr: int = 2) -> Cluster:
    """Node 1 leads nodes 2 and 3, and everything it has is committed."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(replicas=ALL, isr=isr, min_isr=min_isr))
    cluster.produce(*[batch() for _ in range(records)])
    for node in isr[1:]:
        follow(cluster, node, records, 0)
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    """Node 1 leads nodes 2 and 3, and its five records are committed."""
    return leading()


def follow(cluster: Cluster, node: int, offset: int, log_start: int | None, *, epoch: int = 0) -> None:
    """A fetch of a replica at ``offset`` whose log begins at ``log_start``."""
    part = fetch_part(offset, epoch=epoch, lfe=epoch, log_start=log_start)
    cluster.fetch(offset, by=node, part=part)


def answer(cluster: Cluster, request: int) -> DeletedPartition | None:
    """The answer to a deletion in one partition, None while it waits."""
    answers: tuple[DeletedPartition, ...] | None = cluster.answered.get(request)
    return answers[0] if answers else None


def code(cluster: Cluster, request: int) -> ErrorCode | None:
    """The error of an answered deletion, None for success."""
    found = answer(cluster, request)
    return found.refusal.code if found.refusal else None


@pytest.mark.parametrize("offset", [7, 6, -2])
def test_an_offset_outside_the_committed_log_deletes_nothing(cluster: Cluster, offset: int) -> None:
    """T61: above the HW, and below 0, OFFSET_OUT_OF_RANGE is answered at once and the log start stays."""
    assert code(cluster, cluster.delete_records(offset)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.wished(1, AdvanceLogStart) == []
    assert cluster.log(1).log_start_offset == 0


def test_the_high_watermark_is_what_no_offset_means(cluster: Cluster) -> None:
    """T61: without an offset everything committed is deleted, and nothing above it."""
    cluster.produce(batch())
    cluster.delete_records(None)

    assert [effect.offset for effect in cluster.wished(1, AdvanceLogStart)] == [5]


def test_a_new_leader_says_not_yet() -> None:
    """While the HW may be below the one an earlier leader returned (KIP-207), an offset above it may be committed."""
    cluster = Cluster(1)
    cluster.preload(1, [batch(base=offset, epoch=0) for offset in range(5)], hw=2)
    cluster.push(1, partition_image(epoch=1))
    known, latest, beyond = (cluster.delete_records(offset) for offset in (2, None, 4))

    assert answer(cluster, known) is None
    assert code(cluster, latest) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert code(cluster, beyond) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert cluster.log(1).log_start_offset == 2


def test_only_the_leader_deletes(cluster: Cluster) -> None:
    """A follower, and a node that does not know the partition, reject the request and delete nothing."""
    cluster.push(1, partition_image(leader=2, epoch=1, version=2, replicas=ALL, isr=ALL))
    led_elsewhere, unknown = cluster.delete_records(2), cluster.delete_records(2, tp=TP1)

    assert code(cluster, led_elsewhere) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(cluster, unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.wished(1, AdvanceLogStart) == []


def test_every_member_of_the_isr_is_waited_for(cluster: Cluster) -> None:
    """T61: the answer is sent on the fetch in which the last ISR member reports the new log start."""
    request = cluster.delete_records(None)
    follow(cluster, 2, 5, 5)
    before = answer(cluster, request)
    follow(cluster, 3, 5, 5)

    assert before is None
    assert answer(cluster, request) == DeletedPartition(TP, Offset(5))


def test_a_replica_outside_the_isr_is_not_waited_for() -> None:
    """T61: node 3 is not in the ISR, so its log start does not matter."""
    cluster = leading(isr=(1, 2))
    request = cluster.delete_records(3)
    follow(cluster, 2, 5, 3)

    assert answer(cluster, request) == DeletedPartition(TP, Offset(3))


def test_a_member_that_tells_no_log_start_is_waited_for() -> None:
    """The leader waits for a member whose fetch reports no log start, because its log start is unknown."""
    cluster = leading(isr=(1, 2))
    request = cluster.delete_records(0)
    follow(cluster, 2, 5, None)

    assert cluster.cores[1].state.leaders[TP].low_watermark is None
    assert answer(cluster, cluster.delete_records(0)) is None
    assert answer(cluster, request) == DeletedPartition(TP, Offset(0))


def test_a_leader_alone_answers_at_once() -> None:
    """Without other members of the ISR, and with min ISR 1, only the leader's own log start counts."""
    cluster = leading(isr=(1,), min_isr=1)

    assert answer(cluster, cluster.delete_records(4)) == DeletedPartition(TP, Offset(4))


def test_below_min_isr_no_deletion_is_complete() -> None:
    """A replica of the ELR may be elected, and its log start is unknown: the leader has deleted, and waits."""
    cluster = leading(isr=(1,), min_isr=1)
    cluster.push(1, partition_image(version=2, replicas=ALL, isr=(1,), elr=(2,), min_isr=2))
    request = cluster.delete_records(4, timeout=1_000)
    cluster.advance(1_100)

    assert cluster.log(1).log_start_offset == 4
    assert code(cluster, request) is ErrorCode.REQUEST_TIMED_OUT


def test_a_member_that_leaves_is_waited_for_no_longer(cluster: Cluster) -> None:
    """When the controller reports that a replica left the ISR, a deletion that waited only for it completes."""
    request = cluster.delete_records(3)
    follow(cluster, 2, 5, 3)
    before = answer(cluster, request)
    cluster.push(1, partition_image(version=2, replicas=ALL, isr=(1, 2), min_isr=2))

    assert before is None
    assert answer(cluster, request) == DeletedPartition(TP, Offset(3))


def test_a_pending_member_is_waited_for() -> None:
    """M19: a follower whose joining is proposed may be a member already, so its log start counts."""
    cluster = leading(isr=(1, 2))
    follow(cluster, 3, 5, 0)
    request = cluster.delete_records(3)
    follow(cluster, 2, 5, 3)
    before = answer(cluster, request)
    follow(cluster, 3, 5, 3)

    assert cluster.cores[1].state.leaders[TP].isr.maximal == {1, 2, 3}
    assert before is None
    assert answer(cluster, request) == DeletedPartition(TP, Offset(3))


def test_nobody_joins_below_a_completed_deletion() -> None:
    """M44: a follower that still holds deleted records joins only after its fetch shows that it deleted them too."""
    cluster = leading(isr=(1, 2))
    cluster.delete_records(3)
    follow(cluster, 2, 5, 3)
    follow(cluster, 3, 5, 0)
    below = cluster.cores[1].proposals.get(TP)
    follow(cluster, 3, 5, 3)

    assert below is None
    assert TP in cluster.cores[1].proposals


def test_no_follower_joins_below_the_log_start_that_an_epoch_began_with() -> None:
    """Deletions that earlier leaders completed are not above the log start of a leader that was in their ISR."""
    cluster = Cluster(1)
    cluster.preload(1, [batch(base=offset, epoch=0) for offset in range(5)], hw=5, start=2)
    cluster.push(1, partition_image(epoch=1, isr=(1,), replicas=(1, 2)))
    follow(cluster, 2, 5, 1, epoch=1)
    follow(cluster, 2, 5, 1, epoch=1)
    below = cluster.cores[1].proposals.get(TP)
    follow(cluster, 2, 5, 2, epoch=1)

    assert below is None
    assert TP in cluster.cores[1].proposals


def test_the_deadline_tells_the_low_watermark_so_far(cluster: Cluster) -> None:
    """C100: REQUEST_TIMED_OUT carries the lowest known log start, and is not sent before the deadline."""
    request = cluster.delete_records(4, timeout=1_000)
    follow(cluster, 2, 5, 4)
    cluster.advance(900)
    early = answer(cluster, request)
    cluster.advance(200)

    assert early is None
    assert code(cluster, request) is ErrorCode.REQUEST_TIMED_OUT
    assert cluster.answered[request][0].low_watermark == 0
    assert len(cluster.cores[1]._deletions) == 0


def test_a_deletion_is_repeatable(cluster: Cluster) -> None:
    """C100: a repeated request after a time-out deletes nothing more, and waits for the same replicas."""
    cluster.delete_records(4, timeout=100)
    cluster.advance(200)
    again = cluster.delete_records(4)
    follow(cluster, 2, 5, 4)
    follow(cluster, 3, 5, 4)

    assert answer(cluster, again) == DeletedPartition(TP, Offset(4))
    assert len(cluster.wished(1, AdvanceLogStart)) == 1


def test_a_change_of_leader_is_reported_at_once(cluster: Cluster) -> None:
    """T15: a leader that resigns cannot know whether the next one deleted, and returns the new leader."""
    request = cluster.delete_records(4)
    cluster.push(1, partition_image(leader=2, epoch=1, version=2, replicas=ALL, isr=ALL))

    assert code(cluster, request) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_caller_that_left_is_not_answered(cluster: Cluster) -> None:
    """The records that a caller deleted before it left stay deleted."""
    request = cluster.delete_records(4)
    cluster.step(1, events.CallGone(cluster.now, request))
    follow(cluster, 2, 5, 4)
    follow(cluster, 3, 5, 4)

    assert answer(cluster, request) is None
    assert len(cluster.cores[1]._deletions) == 0
    assert cluster.log(1).log_start_offset == 4


def test_partitions_of_one_call_are_answered_together() -> None:
    """Partitions of a call are answered together, in the request's order: an early rejection waits for the others."""
    cluster = Cluster(1)
    cluster.push(1, *(partition_image(tp, isr=(1, 2)) for tp in (TP, TP1)))
    cluster.produce(batch(), batch())
    cluster.fetch(2, by=2, part=fetch_part(2, epoch=0, lfe=0, log_start=0))
    parts = (DeletePartition(TP1, Offset(9)), DeletePartition(TP, Offset(1)))
    cluster.step(1, events.DeleteRecordsAsked(cluster.now, 77, 30_000, parts))
    before = cluster.answered.get(77)
    cluster.fetch(2, by=2, part=fetch_part(2, epoch=0, lfe=0, log_start=1))
    refused, deleted = cluster.answered[77]

    assert before is None
    assert (refused.tp, refused.refusal.code) == (TP1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert deleted == DeletedPartition(TP, Offset(1))


def test_how_many_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a call is rejected before it deletes anything."""
    monkeypatch.setattr(deletion, "MAX_WAITING", 2)
    cluster = leading()
    waiting = [cluster.delete_records(1), cluster.delete_records(1)]
    refused = cluster.delete_records(4)

    assert [answer(cluster, each) for each in waiting] == [None, None]
    assert code(cluster, refused) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert cluster.log(1).log_start_offset == 1


def test_the_log_start_is_moved_before_the_answer() -> None:
    """C100: the file effect precedes the answer, so the log start that is returned is on the leader's disk."""
    cluster = leading(isr=(1,), min_isr=1)
    part = DeletePartition(TP, Offset(2))
    kinds = [type(effect) for effect in cluster.step(1, events.DeleteRecordsAsked(cluster.now, 77, 30_000, (part,)))]

    assert kinds.index(AdvanceLogStart) < kinds.index(AnswerCall)


# An idempotent producer whose records are deleted, and a leader that never had them (M30, M61, C43).


def sent(sequence: int) -> BatchHeader:
    """A batch of one record of producer 7."""
    return batch(producer=7, sequence=sequence)


def late_leader(*, knows_producers: bool = False) -> Cluster:
    """Node 1 appends sequences 0 to 2 and deletes them. Node 2, down meanwhile, restarts its log above and leads.

    It knows the producer if node 1 is of a release that has FetchProducerSnapshot.
    """
    cluster = Cluster(1, 2)
    if not knows_producers:
        cluster.earlier_releases.add(1)
    cluster.push(1, partition_image(isr=(1,)))
    for sequence in range(3):
        cluster.produce(sent(sequence))
    cluster.produce(batch(4))
    cluster.delete_records(3)
    cluster.push(2, partition_image(isr=(1,)))
    cluster.settle()
    cluster.push_all(partition_image(leader=2, epoch=1, isr=(2,), version=1))
    return cluster


def produced(cluster: Cluster, header: BatchHeader) -> ProduceResult:
    """The new leader's answer to a batch."""
    result = cluster.outcome(cluster.produce(header, node=2))
    assert result is not None
    return result


@pytest.mark.parametrize("sequence", [2, 3])
def test_what_may_lie_among_deleted_records_is_not_appended_again(sequence: int) -> None:
    """M61: a leader that cannot distinguish a second copy of a deleted batch from the next one rejects both."""
    cluster = late_leader()
    ends_before = cluster.ends(2)
    result = produced(cluster, sent(sequence))

    assert cluster.log(2).log_start_offset == 3
    assert (result.refusal.code, result.outcome) == (ErrorCode.UNKNOWN_PRODUCER_ID, Outcome.NOT_APPENDED)
    assert cluster.ends(2) == ends_before


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_a_leader_that_asked_recognizes_what_was_deleted(sequence: int) -> None:
    """C43: the copy of a deleted batch is answered as the batch was, the first one included."""
    cluster = late_leader(knows_producers=True)
    ends_before = cluster.ends(2)
    again = produced(cluster, sent(sequence))

    assert (again.refusal, again.base_offset) == (None, sequence)
    assert cluster.ends(2) == ends_before


def test_a_leader_that_asked_takes_the_next_batch() -> None:
    """C43: the producer goes on as if the same leader had stayed."""
    following = produced(late_leader(knows_producers=True), sent(3))

    assert (following.refusal, following.base_offset) == (None, 7)


def test_a_forgotten_producer_begins_again() -> None:
    """M61: with the next producer epoch, from sequence 0, a forgotten producer continues."""
    cluster = late_leader()
    first = produced(cluster, batch(producer=7, producer_epoch=1, sequence=0))
    second = produced(cluster, batch(producer=7, producer_epoch=1, sequence=1))

    assert [first.refusal, second.refusal] == [None, None]
    assert [first.base_offset, second.base_offset] == [7, 8]


def test_who_deleted_the_records_still_knows_their_producer() -> None:
    """M61: deleting records removes nothing from a leader's state of their producers."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(isr=(1,)))
    for sequence in range(3):
        cluster.produce(sent(sequence))
    cluster.delete_records(3)
    again, following = (cluster.outcome(cluster.produce(sent(sequence))) for sequence in (2, 3))

    assert again.base_offset == 2
    assert following.base_offset == 3
