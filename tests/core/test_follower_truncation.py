"""How a follower reconciles with its leader: epoch requests, truncation, and when it refuses (edge cases D, M41)."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch, entries, history, partition_image

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import effects as want, events
from strandline.core.messages import EpochEndAnswer, FetchedPartition, OffsetAnswer, ProducerSnapshotAnswer
from strandline.core.types import (
    BatchHeader,
    Durability,
    EpochEnd,
    EpochEntry,
    LeaderEpoch,
    NodeId,
    Offset,
    Rules,
    Truncation,
)

FETCH = Rules(truncation=Truncation.FETCH)
BOTH = [Rules(), FETCH]


def following(*log: BatchHeader, hw: int = 0, rules: Rules | None = None, epoch: int = 5, **image: Any) -> Cluster:
    """Node 2 follows node 1, which has no core: the test supplies its answers."""
    cluster = Cluster(2, rules=rules)
    if log:
        cluster.preload(2, log, hw=hw)
    cluster.push(2, partition_image(epoch=epoch, **image))
    return cluster


def with_cache(cluster: Cluster, *pairs: tuple[int, int]) -> None:
    """Give the follower's cache entries that differ from its batches."""
    log = cluster.log(2)
    log.epochs.clear()
    for epoch, start in pairs:
        log.epochs.assign(LeaderEpoch(epoch), Offset(start))


def asked(cluster: Cluster) -> want.SendEpochEnds:
    """The latest request for an epoch's end."""
    return cluster.wished(2, want.SendEpochEnds)[-1]


def fetches(cluster: Cluster) -> list[want.SendFetch]:
    return cluster.wished(2, want.SendFetch)


def fetched(cluster: Cluster, **answer: Any) -> None:
    cluster.fetch_answered(FetchedPartition(TP, **answer))


def diverges(cluster: Cluster, epoch: int, end: int, **more: Any) -> None:
    """The leader answers the latest fetch with a diverging epoch."""
    fetched(cluster, diverging=EpochEnd(LeaderEpoch(epoch), Offset(end)), **more)


def answer_offsets(cluster: Cluster, latest: int, earliest: int) -> None:
    """The leader returns its log end and log start."""
    follower = cluster.follower(2)
    answers = (OffsetAnswer(TP, Offset(latest)), OffsetAnswer(TP, Offset(earliest)))
    cluster.step(2, events.OffsetsAnswered(cluster.now, NodeId(1), follower.outstanding, answers))


def answer_producers(cluster: Cluster, start: int) -> None:
    """The leader remembers no producer below its log start."""
    outstanding = cluster.follower(2).outstanding
    assert outstanding is not None
    answer = ProducerSnapshotAnswer(TP, Offset(start))
    cluster.step(2, events.ProducerSnapshotAnswered(cluster.now, NodeId(1), outstanding, answer))


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_no_answer_cuts_nothing(code: ErrorCode) -> None:
    """T28: errors never truncate, however many; the answer then truncates once."""
    cluster = following(*history((5, 300, 0)), hw=100, epoch=6)
    for _ in range(4):
        cluster.epoch_ended(code=code)
        cluster.advance(1100)
    before = cluster.cuts(2), cluster.ends(2)
    cluster.epoch_ended(5, 156)

    assert before == ([], (300, 100))
    assert cluster.cuts(2) == [156]
    assert cluster.ends(2) == (156, 100)
    assert len(cluster.wished(2, want.SendEpochEnds)) == 5


def test_a_dead_leader_cuts_nothing() -> None:
    """T28: unanswered requests are sent again for ever, and nothing is truncated."""
    cluster = following(*history((5, 30, 0)), hw=10, epoch=6)
    for _ in range(6):
        cluster.step(2, events.EpochEndsFailed(cluster.now, NodeId(1), asked(cluster).correlation_id, "gone"))
        cluster.advance(1100)

    assert cluster.cuts(2) == []
    assert len(cluster.wished(2, want.SendEpochEnds)) == 7


def test_a_question_is_fenced_by_the_epoch_followed() -> None:
    """KIP-320, TR7: the request names the leader epoch it is meant for and the latest epoch known."""
    (question,) = asked(following(*history((3, 4, 0)), epoch=7)).questions

    assert (question.leader_epoch, question.current_leader_epoch) == (3, 7)


def test_an_epoch_the_follower_does_not_know() -> None:
    """T29, KIP-279: an answer with an unknown epoch truncates to the own end of the epoch below, and is retried."""
    cluster = following(*history((3, 120, 0), (5, 80, 120)), epoch=6)
    cluster.epoch_ended(4, 155)
    first = cluster.log(2).leo, str(cluster.follower(2).state), len(fetches(cluster))
    cluster.epoch_ended(3, 101)

    assert first == (120, "truncating", 0)
    assert cluster.cuts(2) == [120, 101]
    assert len(cluster.wished(2, want.SendEpochEnds)) == 2
    assert [f.request.partitions[0].fetch_offset for f in fetches(cluster)] == [101]


def test_an_empty_log_asks_nothing() -> None:
    """M28: without an epoch no epoch request is sent; the first fetch begins at its own log start, so it is valid."""
    cluster = following()
    part = fetches(cluster)[0].request.partitions[0]

    assert cluster.wished(2, want.SendEpochEnds) == []
    assert (part.fetch_offset, part.last_fetched_epoch, part.log_start_offset) == (0, None, 0)


def test_a_leader_that_cannot_say() -> None:
    """M38: an answer without an end never truncates under the current rules; the partition is marked failed."""
    cluster = following(*history((5, 3, 0)), epoch=6)
    cluster.epoch_ended()

    assert cluster.cuts(2) == []
    assert str(cluster.follower(2).state) == "failed"


def test_an_answer_of_an_older_epoch_is_ignored() -> None:
    """T33: an answer that arrives after the follower's epoch changed has no effect."""
    cluster = following(*history((5, 30, 0)), epoch=6)
    old = asked(cluster).correlation_id
    cluster.push(2, partition_image(epoch=7, version=2))
    late = EpochEndAnswer(TP, EpochEnd(LeaderEpoch(5), Offset(3)))
    cluster.step(2, events.EpochEndsAnswered(0, NodeId(1), old, (late,)))

    assert cluster.cuts(2) == []
    assert str(cluster.follower(2).state) == "truncating"


def test_a_fetch_answer_of_an_older_epoch_is_ignored() -> None:
    """T33: records that arrive after the follower's epoch changed are not appended."""
    cluster = following(rules=FETCH)
    old = fetches(cluster)[-1].correlation_id
    cluster.push(2, partition_image(epoch=7, version=2))
    part = FetchedPartition(TP, high_watermark=Offset(1), log_start_offset=Offset(0), batches=(batch(base=0, epoch=5),))
    cluster.step(2, events.FetchAnswered(0, NodeId(1), old, (part,)))

    assert cluster.ends(2) == (0, 0)


@pytest.mark.parametrize(
    ("own", "answer", "cut"),
    [
        # Own ends in the row's notation: 4 ends at (4, 149), 3 at (2, 129), 2 at (1, 119).
        (((1, 0), (4, 129), (5, 149)), (4, 140), 140),
        (((1, 0), (2, 119), (4, 129)), (3, 130), 129),
        (((1, 0), (3, 119)), (2, 120), 119),
    ],
)
def test_diverging_answers(own: tuple[tuple[int, int], ...], answer: tuple[int, int], cut: int) -> None:
    """T30a: the follower truncates to the smaller of the leader's end and its own, and continues to fetch."""
    cluster = following(*history((1, 200, 0)), rules=FETCH)
    with_cache(cluster, *own)
    diverges(cluster, *answer)

    assert cluster.cuts(2) == [cut]
    assert str(cluster.follower(2).state) == "fetching"
    assert cluster.wished(2, want.SendEpochEnds) == []
    assert fetches(cluster)[-1].request.partitions[0].fetch_offset == cut


def two_logs(rules: Rules, own: list[BatchHeader], leaders: list[BatchHeader], *, epoch: int, hw: int = 0,
             leader_hw: int = 0) -> Cluster:  # fmt: skip
    """Node 1 leads with one log, node 2 follows with another; nothing has been delivered yet."""
    cluster = Cluster(1, 2, rules=rules)
    cluster.preload(1, leaders, hw=leader_hw)
    cluster.preload(2, own, hw=hw)
    cluster.push_all(partition_image(epoch=epoch))
    return cluster


@pytest.mark.parametrize("rules", BOTH, ids=["asked", "fetch"])
def test_forked_logs_become_equal(rules: Rules) -> None:
    """T30: after one round the follower has only its last common epoch left, and at the end the logs are equal."""
    own, leaders = history((0, 1, 0), (2, 1, 1), (4, 1, 2)), history((0, 1, 0), (2, 1, 1), (5, 1, 2))
    cluster = two_logs(rules, own, leaders, epoch=5)
    cluster.deliver(2, 1)
    cluster.deliver(1, 2)
    after_one_round = cluster.log(2).epochs.latest_epoch
    cluster.settle()

    assert after_one_round == 2
    assert cluster.disks[2][TP].records() == cluster.disks[1][TP].records()
    assert cluster.log(2).epochs.latest_epoch == 5


@pytest.mark.parametrize("rules", BOTH, ids=["asked", "fetch"])
def test_the_high_watermark_waits_for_the_cut(rules: Rules) -> None:
    """T30c, TR13: the round that truncates moves neither HW nor log; one truncation, and at the end LEO 5 and HW 4."""
    own, leaders = history((0, 2, 0), (2, 1, 2), (4, 3, 3)), history((0, 2, 0), (2, 1, 2), (5, 2, 3))
    cluster = two_logs(rules, own, leaders, epoch=5, hw=1, leader_hw=4)
    cluster.deliver(2, 1)
    cluster.deliver(1, 2)
    first = cluster.ends(2), cluster.wished(2, want.AppendReplicated)
    for _ in range(2):
        cluster.deliver(2, 1)
        if cluster.waiting(1, 2):
            cluster.deliver(1, 2)
    at_the_end = cluster.ends(2)

    assert first == ((3, 1), [])
    assert at_the_end == (5, 4)
    assert cluster.cuts(2) == [3]


@pytest.mark.parametrize(("epoch", "end"), [(20, 29), (24, 30)])
@pytest.mark.parametrize("rules", BOTH, ids=["asked", "fetch"])
def test_an_epoch_that_wrote_nothing_leaves_no_trace(epoch: int, end: int, rules: Rules) -> None:
    """T5, KAFKA-10706: a truncation at or beyond the log end leaves the log alone and drops the phantom epoch."""
    cluster = Cluster(2, rules=rules)
    cluster.preload(2, history((19, 2, 27)), hw=27)
    cluster.push(2, partition_image(epoch=epoch, leader=2))
    phantom = cluster.log(2).epochs.latest_epoch
    cluster.push(2, partition_image(epoch=epoch + 1, version=2))
    if rules is FETCH:
        diverges(cluster, 19, end)
    else:
        cluster.epoch_ended(19, end)

    assert phantom == epoch
    assert cluster.log(2).leo == 29
    assert cluster.log(2).epochs.entries == entries((19, 27))
    assert cluster.wished(2, want.SaveEpochs)[-1].entries == entries((19, 27))
    assert cluster.wished(2, want.Truncate) == []


def test_a_cut_below_the_high_watermark_is_refused() -> None:
    """M41: the partition is marked failed, nothing is truncated, and the failure is reported."""
    cluster = following(*history((5, 10, 0)), hw=8, epoch=6)
    cluster.epoch_ended(5, 6)
    (failed,) = cluster.emitted(2, "PARTITION_FAILED")

    assert cluster.ends(2) == (10, 8)
    assert cluster.cuts(2) == []
    assert str(cluster.follower(2).state) == "failed"
    assert (failed.event.refused_to_leo, failed.event.leo, failed.event.hw) == (6, 10, 8)
    assert "below the HW 8" in str(failed.event.reason)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(durability=Durability.PAGE_CACHE),
        Rules(truncation=Truncation.KIP_279),
        Rules(truncation=Truncation.KIP_101),
    ],
)
def test_rules_that_accept_loss_cut_and_say_so(rules: Rules) -> None:
    """M41: with page-cache acknowledgements or a historic rule it truncates and reports how much was committed."""
    cluster = following(*history((5, 10, 0)), hw=8, epoch=6, rules=rules)
    cluster.epoch_ended(5, 6)
    (cut,) = cluster.emitted(2, "TRUNCATION")

    assert cluster.ends(2) == (6, 6)
    assert (cut.event.from_leo, cut.event.to_leo, cut.event.committed_cut) == (10, 6, 2)


def test_a_cut_right_after_a_start_does_not_say_that_nothing_was_committed() -> None:
    """F4: the HW of a checkpoint may be seconds old; a replica that has received no other reports it as unknown."""
    cluster = following(*history((5, 10, 0)), hw=3, epoch=6)
    cluster.epoch_ended(5, 6)
    (cut,) = cluster.emitted(2, "TRUNCATION")

    assert (cut.event.to_leo, cut.event.hw_before, cut.event.committed_cut) == (6, 3, None)


def test_a_cut_of_a_replica_that_had_received_the_high_watermark_is_counted() -> None:
    """F4: once a leader sent the HW in this process, a truncation above it removed nothing known as committed here."""
    cluster = following(*history((5, 10, 0)), hw=3, epoch=5, rules=FETCH)
    fetched(cluster, high_watermark=Offset(4))
    cluster.push(2, partition_image(epoch=6, version=2))
    fetched(cluster, diverging=EpochEnd(LeaderEpoch(5), Offset(6)))
    (cut,) = cluster.emitted(2, "TRUNCATION")

    assert (cut.event.to_leo, cut.event.committed_cut) == (6, 0)


def test_a_lower_high_watermark_of_a_new_leader_allows_no_deeper_cut() -> None:
    """M7, M41: records known as committed remain so, also while a new leader does not know it yet."""
    cluster = following(*history((5, 10, 0)), hw=8, epoch=5, rules=FETCH)
    fetched(cluster, high_watermark=Offset(8))
    cluster.push(2, partition_image(epoch=6, version=2))
    fetched(cluster, high_watermark=Offset(4))
    before = cluster.ends(2)
    fetched(cluster, diverging=EpochEnd(LeaderEpoch(5), Offset(6)))
    (failed,) = cluster.emitted(2, "PARTITION_FAILED")

    assert before == cluster.ends(2) == (10, 4)
    assert failed.event.refused_to_leo == 6


@pytest.mark.parametrize(("unclean", "allowed"), [(None, False), (5, False), (6, True)])
def test_an_unclean_election_explains_a_cut(unclean: int | None, allowed: bool) -> None:
    """M41: records of an epoch before the last unclean leader's may have been lost to it; later ones may not."""
    cluster = following(*history((5, 10, 0)), hw=8, epoch=7, unclean=unclean)
    cluster.epoch_ended(5, 6)

    assert cluster.ends(2) == ((6, 6) if allowed else (10, 8))
    assert cluster.cuts(2) == ([6] if allowed else [])


def test_the_first_record_cut_decides() -> None:
    """M41: an unclean election must explain the epoch of the first record that would be truncated."""
    log = history((3, 5, 0), (6, 5, 5))
    newer = following(*log, hw=8, epoch=9, unclean=6)
    newer.epoch_ended(6, 7)
    older = following(*log, hw=8, epoch=9, unclean=6)
    older.epoch_ended(3, 4)

    assert newer.cuts(2) == []
    assert older.cuts(2) == [4]


def test_a_cut_below_the_checkpoint_rewrites_it_first() -> None:
    """M41: a checkpointed HW beyond the new log end is rewritten, durably, before the next append."""
    cluster = following(*history((5, 10, 0)), hw=8, epoch=7, unclean=6)
    before = len(cluster.effects[2])
    cluster.epoch_ended(5, 6)
    done = [
        e
        for e in cluster.effects[2][before:]
        if isinstance(e, want.Truncate | want.SaveHighWatermarks | want.SendFetch)
    ]

    assert [type(e) for e in done] == [want.Truncate, want.SaveHighWatermarks, want.SendFetch]
    assert isinstance(done[0], want.Truncate) and done[0].durable
    assert isinstance(done[1], want.SaveHighWatermarks) and done[1].durable and done[1].high_watermarks == {TP: 6}


def test_a_restart_at_a_higher_log_start_is_no_truncation() -> None:
    """M41, M30: a log that lies wholly below the leader's start is restarted there, regardless of its HW."""
    cluster = following(*history((5, 3, 0)), hw=3, rules=FETCH)
    fetched(cluster, error=Refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
    answer_offsets(cluster, latest=20, earliest=12)
    answer_producers(cluster, 12)
    part = fetches(cluster)[-1].request.partitions[0]

    assert cluster.ends(2) == (12, 12)
    assert cluster.log(2).log_start_offset == 12
    assert cluster.log(2).epochs.entries == ()
    assert (part.fetch_offset, part.last_fetched_epoch, part.log_start_offset) == (12, None, 12)
    assert str(cluster.follower(2).state) == "fetching"


@pytest.mark.parametrize("unclean", [True, False])
def test_out_of_range_high(unclean: bool) -> None:
    """T32: leader with a shorter log: truncated to its end if an unclean election explains it, else failed and kept."""
    cluster = following(*history((0, 3, 0)), hw=3, rules=FETCH, unclean=4 if unclean else None)
    fetched(cluster, error=Refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
    answer_offsets(cluster, latest=0, earliest=0)

    assert cluster.ends(2) == ((0, 0) if unclean else (3, 3))
    assert str(cluster.follower(2).state) == ("fetching" if unclean else "failed")


@pytest.mark.parametrize("rules", BOTH, ids=["asked", "fetch"])
def test_out_of_range_low(rules: Rules) -> None:
    """T32: a leader whose log begins above the follower's end: it restarts its log there and becomes equal."""
    cluster = Cluster(1, 2, rules=rules)
    cluster.preload(1, history((4, 2, 2)), hw=4)
    cluster.preload(2, history((0, 1, 0)), hw=1)
    cluster.push_all(partition_image(epoch=5))
    cluster.settle()

    assert cluster.log(2).log_start_offset == 2
    assert cluster.log(2).leo == 4
    assert cluster.disks[2][TP].records() == cluster.disks[1][TP].records()
    assert cluster.log(2).epochs.latest_epoch == 4


@pytest.mark.parametrize("rules", BOTH, ids=["asked", "fetch"])
def test_a_log_start_within_a_batch(rules: Rules) -> None:
    """M30: the leader's log starts within a batch; the follower restarts with that whole batch, as it is sent."""
    cluster = Cluster(1, 2, rules=rules)
    cluster.preload(1, [batch(3, base=3, epoch=4), batch(2, base=6, epoch=4)], hw=8, start=5)
    cluster.preload(2, history((0, 1, 0)), hw=1)
    cluster.push_all(partition_image(epoch=5))
    cluster.settle()

    assert str(cluster.follower(2).state) == "fetching"
    assert (cluster.log(2).log_start_offset, cluster.log(2).leo) == (5, 8)
    assert cluster.disks[2][TP].records() == cluster.disks[1][TP].records()
    assert cluster.log(2).epochs.epoch_of(Offset(5)) == 4


def test_a_fenced_lookup_stops_the_partition() -> None:
    """T32: if the lookup of the leader's ends is fenced, the partition is marked failed."""
    cluster = following(*history((5, 3, 0)), hw=3, rules=FETCH)
    fetched(cluster, error=Refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
    fenced = OffsetAnswer(TP, refusal=Refusal(ErrorCode.FENCED_LEADER_EPOCH))
    cluster.step(2, events.OffsetsAnswered(0, NodeId(1), cluster.follower(2).outstanding, (fenced, fenced)))

    assert str(cluster.follower(2).state) == "failed"
    assert cluster.ends(2) == (3, 3)


@pytest.mark.parametrize(
    "answers",
    [(), (OffsetAnswer(TP),), *((OffsetAnswer(TP, end), OffsetAnswer(TP, Offset(0))) for end in (None, Offset(-1)))],
)
def test_a_lookup_that_says_nothing_is_no_answer(answers: tuple[OffsetAnswer, ...]) -> None:
    """M39: a malformed answer to the lookup truncates nothing and stops no process."""
    cluster = following(*history((5, 3, 0)), hw=3, rules=FETCH)
    fetched(cluster, error=Refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
    cluster.step(2, events.OffsetsAnswered(0, NodeId(1), cluster.follower(2).outstanding, answers))
    cluster.advance(100)

    assert cluster.ends(2) == (3, 3)
    assert str(cluster.follower(2).state) == "out_of_range"


def test_out_of_range_without_a_reason_does_not_spin() -> None:
    """M30: when the leader's ends explain nothing, the follower keeps its log and retries only after a delay."""
    cluster = following(*history((5, 3, 0)), hw=3, rules=FETCH)
    fetched(cluster, error=Refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
    answer_offsets(cluster, latest=9, earliest=0)
    at_once = len(fetches(cluster))
    cluster.advance(100)

    assert (at_once, len(fetches(cluster))) == (1, 2)
    assert cluster.ends(2) == (3, 3)


def test_batches_win_over_the_epoch_checkpoint() -> None:
    """M55: the recovery that other tests here use drops entries at the log end and adds missing ones."""
    cluster = Cluster(1)
    cluster.preload(1, history((2, 3, 0), (4, 1, 3)))
    disk = cluster.disks[1][TP]
    disk.epochs = (EpochEntry(LeaderEpoch(2), Offset(0)), EpochEntry(LeaderEpoch(9), Offset(4)))
    disk.recover()

    assert disk.epochs == entries((2, 0), (4, 3))


def test_a_cut_within_a_batch_takes_the_whole_batch() -> None:
    """The leader's first epoch may begin at a log start within a batch of a diverged log; batches are not split.

    No request is sent before the log end is known: a fetch offset is an acknowledgement.
    """
    cluster = following(*(batch(2, base=0, epoch=0), batch(3, base=2, epoch=1)), hw=2)
    cluster.epoch_ended(1, 4)

    assert cluster.ends(2) == (2, 2)
    assert [fetch.request.partitions[0].fetch_offset for fetch in fetches(cluster)] == [2]
    assert cluster.log(2).epochs.entries == entries((0, 0))


def test_a_log_that_lies_below_the_leaders_log_start_begins_again_there() -> None:
    """At its log start, in an epoch that the leader no longer has, nothing of the follower's log is usable (M30)."""
    cluster = following(*history((0, 4, 0)), hw=2, rules=FETCH)
    fetched(cluster, error=Refusal(ErrorCode.OFFSET_OUT_OF_RANGE))
    answer_offsets(cluster, latest=9, earliest=4)
    answer_producers(cluster, 4)

    assert cluster.ends(2) == (4, 4)
    assert fetches(cluster)[-1].request.partitions[0].last_fetched_epoch is None
