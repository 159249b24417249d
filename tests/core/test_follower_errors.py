"""How a follower handles errors, damage and its own commits: it waits, it fails one partition, it never guesses."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, batch, fetched_part, history, partition_image

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import effects, events
from strandline.core.log.fetcher import ASK_AGAIN_AFTER_MS
from strandline.core.messages import FetchedPartition
from strandline.core.types import (
    BatchHeader,
    Durability,
    EpochEnd,
    LeaderEpoch,
    NodeId,
    Offset,
    Rules,
    TopicPartition,
    Truncation,
)

FETCH = Rules(truncation=Truncation.FETCH)


def following(*tps: TopicPartition, rules: Rules | None = None, epoch: int = 1, hold_flushes: bool = False) -> Cluster:
    """Node 2 follows node 1, which has no core, from an empty log."""
    cluster = Cluster(2, rules=rules or FETCH, hold_flushes=hold_flushes)
    cluster.push(2, *(partition_image(tp, epoch=epoch) for tp in tps or (TP,)))
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    """Node 2 follows node 1 in one partition."""
    return following()


def fetches(cluster: Cluster) -> list[effects.SendFetch]:
    return cluster.wished(2, effects.SendFetch)


def state(cluster: Cluster, tp: TopicPartition = TP) -> str:
    return str(cluster.follower(2, tp).state)


def answer(cluster: Cluster, found: FetchedPartition) -> None:
    """The leader answers the outstanding request of this partition."""
    correlation = cluster.follower(2, found.tp).outstanding
    cluster.step(2, events.FetchAnswered(cluster.now, NodeId(1), correlation, (found,)))


def refused(code: ErrorCode, tp: TopicPartition = TP) -> FetchedPartition:
    return FetchedPartition(tp, error=Refusal(code))


def test_fenced_by_a_newer_leader_epoch(cluster: Cluster) -> None:
    """T33: FENCED_LEADER_EPOCH stops this partition, marks it failed, and new metadata brings it back."""
    cluster.fetch_answered(refused(ErrorCode.FENCED_LEADER_EPOCH))
    cluster.advance(5000)
    stopped = state(cluster), len(fetches(cluster)), len(cluster.emitted(2, "PARTITION_FAILED"))
    cluster.push(2, partition_image(epoch=2, version=2))

    assert stopped == ("failed", 1, 1)
    assert state(cluster) == "fetching"
    assert len(fetches(cluster)) == 2


def test_a_leader_that_is_behind() -> None:
    """T33: a follower ahead of its leader gets no data and stays truncating until the leader has reached its epoch."""
    cluster = Cluster(1, 2)
    cluster.preload(1, history((0, 3, 0)))
    cluster.preload(2, history((0, 2, 0)))
    cluster.push(1, partition_image(epoch=0))
    cluster.push(2, partition_image(epoch=1, version=2))
    cluster.settle()
    cluster.advance(2000, settle=True)
    waiting = state(cluster), cluster.log(2).leo
    cluster.push(1, partition_image(epoch=1, version=2))
    cluster.advance(1100, settle=True)

    assert waiting == ("truncating", 2)
    assert state(cluster) == "fetching"
    assert cluster.log(2).leo == 3


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_that_pass(cluster: Cluster, code: ErrorCode) -> None:
    """M29: such an error keeps the state and backs off, from 50 ms doubling to 1000 ms."""
    gaps, last = [], 0
    for _ in range(7):
        cluster.fetch_answered(refused(code))
        known = len(fetches(cluster))
        while len(fetches(cluster)) == known:
            cluster.advance(10, tick_ms=10)
        gaps.append(cluster.now - last)
        last = cluster.now

    assert state(cluster) == "fetching"
    assert gaps == [50, 100, 200, 400, 800, 1000, 1000]


def test_new_metadata_ends_the_back_off(cluster: Cluster) -> None:
    """The follower fetches in a new leader epoch at once, regardless of the back-off of the old one."""
    for _ in range(5):
        cluster.fetch_answered(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        cluster.advance(1000)
    cluster.fetch_answered(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    before = len(fetches(cluster))
    cluster.push(2, partition_image(epoch=2, version=2))

    assert len(fetches(cluster)) == before + 1


def test_no_answer_is_no_news(cluster: Cluster) -> None:
    """M39: a fetch that fails leaves the log unchanged and is sent again."""
    cluster.fetch_answered(fetched_part(batch(base=0, epoch=1)))
    failing = fetches(cluster)[-1]
    cluster.step(2, events.FetchFailed(cluster.now, NodeId(1), failing.correlation_id, "gone"))
    cluster.advance(100)

    assert cluster.ends(2) == (1, 0)
    assert fetches(cluster)[-1].request.partitions == failing.request.partitions


def test_a_broken_stream_fails_every_question_on_it() -> None:
    """A failure without a correlation id applies to every outstanding fetch to that leader."""
    cluster = following(TP, TP1)
    cluster.step(2, events.FetchFailed(cluster.now, NodeId(1), None, "stream broke"))
    cluster.advance(100)

    assert {p.tp for p in fetches(cluster)[-1].request.partitions} == {TP, TP1}


def test_an_answer_to_no_question_counts_nothing(cluster: Cluster) -> None:
    """M27: only the answer to the outstanding request counts; a duplicate or late one has no effect."""
    first = fetches(cluster)[-1].correlation_id
    cluster.fetch_answered(fetched_part(batch(base=0, epoch=1)))
    cluster.step(2, events.FetchAnswered(0, NodeId(1), first, (fetched_part(batch(base=0, epoch=1), hw=1),)))

    assert cluster.ends(2) == (1, 0)


def test_a_question_that_is_forgotten_is_asked_again(cluster: Cluster) -> None:
    """A request that is neither answered nor failed is given up after half a minute."""
    cluster.advance(ASK_AGAIN_AFTER_MS + 5_000)

    assert len(fetches(cluster)) == 2


def test_flipped_bytes_are_fetched_again(cluster: Cluster) -> None:
    """T34: no part of a corrupt answer is appended; the second fetch succeeds."""
    cluster.fetch_answered(FetchedPartition(TP, high_watermark=Offset(2), corrupt="CRC does not match"))
    first = cluster.ends(2)
    cluster.advance(100)
    cluster.fetch_answered(fetched_part(batch(2, base=0, epoch=1), hw=0))

    assert first == (0, 0)
    assert cluster.log(2).leo == 2
    assert state(cluster) == "fetching"


def test_one_damaged_partition_does_not_stop_the_others() -> None:
    """T34, KIP-461: after equal failures one partition is marked failed, the others go on; a new epoch restores it."""
    cluster = following(TP, TP1)
    for count in range(5):
        answer(cluster, FetchedPartition(TP, corrupt="flipped"))
        answer(cluster, fetched_part(batch(base=count, epoch=1), tp=TP1))
        cluster.advance(1100)
    states = state(cluster), state(cluster, TP1)
    cluster.push(2, partition_image(TP, epoch=2, version=2))

    assert states == ("failed", "fetching")
    assert cluster.log(2, TP1).leo == 5
    assert "damaged at offset 0" in str(cluster.emitted(2, "PARTITION_FAILED")[0].event.reason)
    assert state(cluster) == "fetching"


@pytest.mark.parametrize(
    "batches",
    [
        (batch(base=5, epoch=1),),
        (batch(base=0, epoch=1), batch(base=2, epoch=1)),
        (batch(base=0, epoch=1), batch(base=1, epoch=0)),
        (batch(base=0, epoch=2),),
    ],
    ids=["not at the log end", "a gap", "epochs go back", "an epoch after the leader's"],
)
def test_batches_that_do_not_fit(cluster: Cluster, batches: tuple[BatchHeader, ...]) -> None:
    """M4, I0: a batch that does not continue this log is damage, and nothing of it is appended."""
    cluster.fetch_answered(fetched_part(*batches, hw=1))

    assert cluster.ends(2) == (0, 0)
    assert cluster.wished(2, effects.AppendReplicated) == []
    assert cluster.follower(2).damaged_count == 1


@pytest.mark.parametrize("batches", [(), (batch(base=0, epoch=1),)], ids=["no records", "records"])
def test_a_log_start_above_the_high_watermark_is_damage(cluster: Cluster, batches: tuple[BatchHeader, ...]) -> None:
    """M10: no leader deletes uncommitted records, so nothing of such an answer is applied."""
    cluster.fetch_answered(fetched_part(batch(3, base=0, epoch=1), hw=1))
    before = (cluster.ends(2), cluster.log(2).log_start_offset)
    answer = fetched_part(*(one._replace(base_offset=Offset(3)) for one in batches), hw=2)
    for _ in range(4):
        cluster.advance(1100)
        cluster.fetch_answered(answer._replace(log_start_offset=Offset(3)))
    state_before_the_last = state(cluster)
    cluster.advance(1100)
    cluster.fetch_answered(answer._replace(log_start_offset=Offset(3)))

    assert (cluster.ends(2), cluster.log(2).log_start_offset) == before
    assert (state_before_the_last, state(cluster)) == ("fetching", "failed")
    (failed,) = cluster.emitted(2, "PARTITION_FAILED")
    assert "log start 3 above the high watermark 2" in str(failed.event.reason)


def test_a_log_start_beyond_the_own_log_end_is_taken_as_far_as_the_log_goes(cluster: Cluster) -> None:
    """M10: records that the leader deleted and this replica does not have yet are not below its high watermark."""
    cluster.fetch_answered(fetched_part(batch(3, base=0, epoch=1), hw=1))
    cluster.fetch_answered(FetchedPartition(TP, high_watermark=Offset(9), log_start_offset=Offset(8)))

    assert cluster.ends(2) == (3, 3)
    assert cluster.log(2).log_start_offset == 3


def test_success_forgets_damage(cluster: Cluster) -> None:
    """Five failures in a row count as damage; a success between them resets the count."""
    for count in range(6):
        cluster.fetch_answered(FetchedPartition(TP, corrupt="flipped"))
        cluster.advance(1100)
        cluster.fetch_answered(fetched_part(batch(base=count, epoch=1)))

    assert state(cluster) == "fetching"
    assert cluster.log(2).leo == 6


def test_a_fetch_waits_for_the_own_commit() -> None:
    """M54: a fetch is sent only when everything below its offset is durable."""
    cluster = following(hold_flushes=True)
    cluster.fetch_answered(fetched_part(batch(3, base=0, epoch=1)))
    before = len(fetches(cluster))
    cluster.flush(2)

    assert before == 1
    assert fetches(cluster)[-1].request.partitions[0].fetch_offset == 3


def test_a_page_cache_does_not_wait() -> None:
    """M54: under page-cache the next fetch follows the append at once, and nothing is flushed."""
    cluster = following(rules=Rules(durability=Durability.PAGE_CACHE), hold_flushes=True)
    cluster.fetch_answered(fetched_part(batch(3, base=0, epoch=1)))

    assert fetches(cluster)[-1].request.partitions[0].fetch_offset == 3
    assert cluster.wished(2, effects.Flush) == []


def test_one_partition_commits_while_another_is_asked() -> None:
    """M54: a partition with a pending commit is left out of the next message, the others are not."""
    cluster = following(TP, TP1, hold_flushes=True)
    cluster.step(2, events.FetchFailed(cluster.now, NodeId(1), None, "stream broke"))
    cluster.advance(100)
    cluster.fetch_answered(fetched_part(batch(base=0, epoch=1)), fetched_part(tp=TP1))

    assert [p.tp for p in fetches(cluster)[-1].request.partitions] == [TP1]


def test_an_answer_for_one_partition_asks_for_that_one() -> None:
    """M54: a partition is in at most one outstanding fetch; one that is still unanswered is not named again."""
    cluster = following(TP, TP1)
    cluster.step(2, events.FetchFailed(cluster.now, NodeId(1), None, "stream broke"))
    cluster.advance(100)
    cluster.fetch_answered(fetched_part(batch(base=0, epoch=1)))

    assert [[p.tp for p in f.request.partitions] for f in fetches(cluster)[-2:]] == [[TP, TP1], [TP]]


@pytest.mark.parametrize(("leader_hw", "own"), [(0, 0), (2, 2), (9, 3)])
def test_high_watermark_of_a_follower(cluster: Cluster, leader_hw: int, own: int) -> None:
    """M7: a follower's HW is the smaller of the leader's HW and its own LEO, after the append."""
    cluster.fetch_answered(fetched_part(batch(3, base=0, epoch=1), hw=leader_hw))

    assert cluster.ends(2) == (3, own)


def test_high_watermark_of_a_follower_may_go_down(cluster: Cluster) -> None:
    """M7, I13: after a leader change the HW may go back; consumers get what is below it, and no end meanwhile."""
    cluster.fetch_answered(fetched_part(batch(3, base=0, epoch=1), hw=3))
    shown = cluster.result(cluster.fetch(0, by=None, node=2, at_follower=True))
    cluster.push(2, partition_image(epoch=2, version=2))
    cluster.fetch_answered(fetched_part(hw=1))
    below = [cluster.result(cluster.fetch(start, by=None, node=2, at_follower=True)) for start in (1, 2)]
    still = cluster.result(cluster.fetch(0, by=None, node=2, at_follower=True))
    ends = cluster.ends(2)
    cluster.fetch_answered(fetched_part(hw=3))
    again = cluster.result(cluster.fetch(0, by=None, node=2, at_follower=True))

    assert ends == (3, 1)
    assert (shown.high_watermark, again.high_watermark) == (3, 3)
    assert again.read.end == 3
    assert (still.read.end, still.high_watermark) == (1, None)
    for one in below:
        assert one.refusal.code is ErrorCode.OFFSET_NOT_AVAILABLE
        assert "HW 1 is below the 3" in one.refusal.message


def test_a_follower_that_cut_shows_no_high_watermark_above_its_log(cluster: Cluster) -> None:
    """F6: the HW from before an unclean election is void; the replica names none until it is there again, and serves
    what lies below its own."""
    cluster.fetch_answered(fetched_part(batch(2, base=0, epoch=1), batch(1, base=2, epoch=1), hw=3))
    cluster.fetch(0, by=None, node=2, at_follower=True)
    cluster.push(2, partition_image(epoch=2, version=2, unclean=2))
    cluster.fetch_answered(FetchedPartition(TP, diverging=EpochEnd(LeaderEpoch(1), Offset(2))))
    cut = cluster.ends(2)
    answers = []
    for size, hw in ((0, 2), (1, 2), (1, 4)):
        cluster.fetch_answered(fetched_part(*([batch(size, base=cluster.ends(2)[0], epoch=2)] if size else []), hw=hw))
        answers.append(cluster.result(cluster.fetch(0, by=None, node=2, at_follower=True)))

    assert cut == (2, 2)
    assert [answer and answer.high_watermark for answer in answers] == [None, None, 4]
    assert [answer.read.end if answer and answer.read else None for answer in answers] == [2, 2, 4]


def test_log_start_follows_the_leader() -> None:
    """M10: a follower adopts the leader's log start from an answer, and drops the epochs below it."""
    cluster = following(epoch=3)
    cluster.fetch_answered(fetched_part(batch(2, base=0, epoch=1), batch(2, base=2, epoch=3), hw=4))
    cluster.fetch_answered(FetchedPartition(TP, high_watermark=Offset(4), log_start_offset=Offset(3)))

    assert cluster.log(2).log_start_offset == 3
    assert [tuple(e) for e in cluster.log(2).epochs.entries] == [(3, 3)]


def test_the_epoch_is_saved_before_its_batch() -> None:
    """M35, M36: when a batch carries a new epoch, a follower stores the epoch before it appends the batch."""
    cluster = following(epoch=3)
    before = len(cluster.effects[2])
    cluster.fetch_answered(fetched_part(batch(2, base=0, epoch=1), batch(2, base=2, epoch=3)))
    done = [e for e in cluster.effects[2][before:] if isinstance(e, effects.SaveEpochs | effects.AppendReplicated)]

    assert [type(e) for e in done] == [effects.SaveEpochs, effects.AppendReplicated]
    assert isinstance(done[0], effects.SaveEpochs)
    assert [tuple(e) for e in done[0].entries] == [(1, 0), (3, 2)]


def test_followers_remember_producers() -> None:
    """M61, TR20: a follower that becomes leader recognises batches that the old leader appended."""
    cluster = following(rules=Rules())
    cluster.fetch_answered(fetched_part(batch(2, base=0, epoch=1, producer=7, sequence=0)))
    cluster.push(2, partition_image(leader=2, epoch=2, version=2, isr=(2,)))
    again = cluster.outcome(cluster.produce(batch(2, producer=7, sequence=0), node=2))
    new = cluster.outcome(cluster.produce(batch(1, producer=7, sequence=2), node=2))

    assert (again.base_offset, again.refusal) == (0, None)
    assert (new.base_offset, new.refusal) == (2, None)


def test_a_cut_takes_producers_with_it() -> None:
    """TR20, M61: a truncated batch is forgotten; the next leader appends the same batch again."""
    cluster = Cluster(1, 2)
    cluster.push_all(partition_image())
    cluster.produce(batch(producer=7, sequence=0))
    cluster.settle()
    lost = cluster.produce(batch(producer=7, sequence=1))
    again = cluster.produce(batch(producer=7, sequence=1))
    waited = [cluster.outcome(lost), cluster.outcome(again)]
    cluster.links.clear()
    cluster.push(2, partition_image(leader=2, epoch=1, version=2, isr=(2,)))
    elsewhere = cluster.outcome(cluster.produce(batch(3), node=2))
    again = cluster.outcome(cluster.produce(batch(producer=7, sequence=1), node=2))
    cluster.push(1, partition_image(leader=2, epoch=1, version=2, isr=(2,)))
    cluster.settle()
    cluster.push_all(partition_image(leader=1, epoch=2, version=3, isr=(1,)))
    found = cluster.outcome(cluster.produce(batch(producer=7, sequence=1)))

    assert waited == [None, None]
    assert elsewhere.base_offset == 1
    assert again.base_offset == 4
    assert cluster.cuts(1) == [1]
    assert found.base_offset == 4


def test_without_a_leader_no_node_is_asked(cluster: Cluster) -> None:
    """A partition without a leader waits, and reports this state."""
    before = len(fetches(cluster))
    cluster.push(2, partition_image(leader=None, epoch=2, version=2))
    cluster.advance(40_000, tick_ms=1000)

    assert state(cluster) == "waiting"
    assert len(fetches(cluster)) == before


def test_another_leader_is_asked_and_the_old_one_reported(cluster: Cluster) -> None:
    """A follower that switches to another leader ends the fetch that is parked at the old one."""
    cluster.push(2, partition_image(leader=3, epoch=2, version=2, replicas=(1, 2, 3), isr=(1, 2, 3)))

    assert cluster.wished(2, effects.SendForget) == [effects.SendForget(NodeId(1), (TP,))]
    assert [f.leader for f in fetches(cluster)] == [1, 3]


def test_a_replica_that_is_moved_away_goes(cluster: Cluster) -> None:
    """A partition whose replicas no longer include this node is dropped and its log set aside (C78)."""
    cluster.push(2, partition_image(epoch=1, version=2, replicas=(1, 3), isr=(1,)))

    assert cluster.wished(2, effects.SetLogAside) == [effects.SetLogAside(TP)]
    assert cluster.wished(2, effects.DeleteLog) == []
    assert cluster.cores[2].describe_replica(TP) is None


def test_what_a_follower_says_of_itself() -> None:
    """DescribeReplicas returns ends, state with its reason, leader and epochs."""
    cluster = following(rules=Rules(), epoch=4)
    cluster.fetch_answered(fetched_part(batch(2, base=0, epoch=4), hw=1))
    cluster.fetch_answered(refused(ErrorCode.FENCED_LEADER_EPOCH))
    view = cluster.cores[2].describe_replica(TP)

    assert (view.leo, view.durable_leo, view.high_watermark, view.log_start_offset) == (2, 2, 1, 0)
    assert (view.fetch_state, view.leader, view.leader_epoch, view.epochs) == ("failed", 1, 4, ((4, 0),))
    assert "FENCED_LEADER_EPOCH" in view.reason


def test_an_observer_replicates() -> None:
    """M60: an observer follows the leader like a replica."""
    cluster = Cluster(1, 9)
    cluster.push_all(partition_image(isr=(1,), replicas=(1,), observers=(9,)))
    cluster.produce(batch(4))
    cluster.settle()

    assert cluster.log(9).leo == 4
    assert cluster.wished(9, effects.SendEpochEnds) == []
