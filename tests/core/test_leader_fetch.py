"""A leader's answers to a fetch, row by row of the edge cases B, and which requests it rejects."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch, entries, fetch_part, fetch_request, history, node_image, partition_image

from strandline.core import messages
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.log import events
from strandline.core.log.effects import AnswerOffsets, NoteDurable
from strandline.core.types import Durability, FetchHw, LeaderEpoch, NodeEpoch, NodeId, Offset, Rules, Truncation

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
SETTINGS = [Rules(), Rules(durability=Durability.PAGE_CACHE)]


def leading(records: int = 0, *, rules: Rules | None = None, hold_flushes: bool = False, **image: object) -> Cluster:
    """Node 1 leads and has appended ``records`` in its epoch; there are no other cores."""
    cluster = Cluster(1, rules=rules, hold_flushes=hold_flushes)
    cluster.push(1, partition_image(**image))  # type: ignore[arg-type]  # passed through
    if records:
        cluster.produce(*[batch() for _ in range(records)])
    return cluster


def code_of(result: messages.FetchResult | messages.OffsetAnswer | None) -> ErrorCode | None:
    """The error's code; None if it was not an error."""
    return result.refusal.code if result.refusal else None


def diverging(result: messages.FetchResult | None) -> tuple[int, int] | None:
    """The diverging epoch of an answer as a plain pair."""
    assert result.refusal is None
    if result.diverging is None:
        return None
    assert result.read is None, "a diverging answer carries no records"
    return result.diverging.epoch, result.diverging.end_offset


def many_epochs() -> Cluster:
    """T8's log, led in epoch 10."""
    cluster = Cluster(1)
    cluster.preload(1, history((0, 2, 0), (3, 6, 2), (4, 5, 8), (7, 1, 13), (9, 3, 14)))
    cluster.push(1, partition_image(epoch=10))
    return cluster


@pytest.mark.parametrize(
    ("offset", "lfe", "answer"),
    [
        (5, 2, (0, 2)),
        (4, 0, (0, 2)),
        (6, 6, (4, 13)),
        (9, 5, (4, 13)),
        (18, 10, (10, 17)),
        (2, 0, None),
        (14, 7, None),
        (17, 9, None),
        (17, 10, None),
    ],
)
def test_where_lineages_part(offset: int, lfe: int, answer: tuple[int, int] | None) -> None:
    """T8: a fetch whose last epoch ended earlier here gets that end, without records, and is not counted."""
    cluster = many_epochs()

    assert diverging(cluster.result(cluster.fetch(offset, by=2, lfe=lfe))) == answer
    assert cluster.remote(2) == (None if answer else offset)


def test_an_epoch_newer_than_the_leaders_is_out_of_range() -> None:
    """T8: an epoch that the leader cannot know is out of range."""
    cluster = many_epochs()

    assert code_of(cluster.result(cluster.fetch(5, by=2, lfe=11))) is OUT_OF_RANGE


def test_range_check_beats_divergence() -> None:
    """T8: below the log start everything is out of range, whatever its epoch."""
    cluster = many_epochs()
    cluster.fetch(17, by=2)
    cluster.delete_records(5)
    first = [cluster.result(cluster.fetch(o, by=2, lfe=e)) for o, e in ((8, 2), (5, 3))]
    below = cluster.result(cluster.fetch(0, by=2, lfe=0))
    cluster.delete_records(10)
    second = [cluster.result(cluster.fetch(6, by=2, lfe=e)) for e in (5, 3)]

    assert cluster.log(1).hw == 17
    assert [diverging(r) for r in first] == [(2, 5), None]
    assert code_of(below) is OUT_OF_RANGE
    assert [code_of(r) for r in second] == [OUT_OF_RANGE] * 2


def test_a_log_below_the_log_start_in_forgotten_epochs_is_not_counted() -> None:
    """Epoch 0 ended at 2 and is deleted here: a log that ends in it at the log start may have diverged below."""
    cluster = many_epochs()
    cluster.fetch(17, by=2)
    cluster.delete_records(5)
    counted = cluster.remote(2)

    assert code_of(cluster.result(cluster.fetch(5, by=2, lfe=0))) is OUT_OF_RANGE
    assert cluster.remote(2) == counted


@pytest.mark.parametrize("truncation", [Truncation.KIP_279, Truncation.KIP_101, Truncation.HIGH_WATERMARK])
def test_history_fetched_without_proof(truncation: Truncation) -> None:
    """Under the rules from before KIP-595 a replica's fetch carries no last fetched epoch and is served."""
    cluster = leading(3, rules=Rules(truncation=truncation))
    part = fetch_part(2, epoch=0)

    assert diverging(cluster.result(cluster.fetch(2, by=2, part=part))) is None
    assert cluster.remote(2) == 2


def test_the_fetch_offset_is_the_acknowledgement() -> None:
    """T9: the remote LEO follows the fetch offset; the caught-up time follows the earlier log end."""
    cluster = Cluster(1)
    cluster.preload(1, history((5, 6, 0)))
    cluster.now = 1000
    cluster.push(1, partition_image(epoch=5))
    progress = cluster.leader().progress[2]
    seen = [(progress.remote_leo, progress.last_caught_up_ms)]
    for offset in (3, 6):
        cluster.now += 500
        cluster.fetch(offset, by=2)
        seen.append((progress.remote_leo, progress.last_caught_up_ms))

    assert seen == [(None, 1000), (3, 1000), (6, 2000)]


def test_a_fetch_at_the_previous_log_end_proves_the_previous_time() -> None:
    """M43: an offset that was the log end at the last fetch makes the follower caught up as of that fetch."""
    cluster = leading(2)
    cluster.now = 1000
    cluster.fetch(1, by=2)
    cluster.produce(batch())
    cluster.now = 1700
    cluster.fetch(2, by=2)

    assert cluster.leader().progress[2].last_caught_up_ms == 1000


def test_an_append_meets_a_parked_fetch() -> None:
    """M43: a fetch parked at the log end was caught up until the append that completed it."""
    cluster = leading(1)
    cluster.fetch(1, by=2, wait=10_000)
    cluster.now = 5000
    cluster.produce(batch())
    cluster.now = 6000
    cluster.produce(batch())

    assert cluster.leader().progress[2].last_caught_up_ms == 5000


def test_an_idle_half_minute_evicts_no_follower() -> None:
    """M43: the first append after a long idle time finds a healthy follower parked and keeps it in the ISR."""
    cluster = leading(1)
    cluster.fetch(1, by=2, wait=60_000)
    cluster.advance(45_000)
    cluster.produce(batch())
    cluster.advance(16_000)

    assert cluster.leader().isr.maximal == {1, 2}
    assert cluster.leader().isr.pending is None


def test_unassigned_replica() -> None:
    """T10: a node outside the replicas is rejected and leaves no trace, until metadata of the same epoch names it."""
    cluster = leading(epoch=8, replicas=(1, 2))
    refused = cluster.result(cluster.fetch(0, by=3, epoch=8))
    shapeless = cluster.result(cluster.fetch(0, by=3, part=fetch_part(0, log_start=0)))
    known = set(cluster.leader().progress)
    cluster.push(1, partition_image(epoch=8, version=2, replicas=(1, 2, 3)))
    accepted = cluster.result(cluster.fetch(0, by=3, epoch=8))

    assert refused.refusal.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert refused.refusal.message.startswith("node 3 is not a replica of")
    assert code_of(shapeless) is ErrorCode.INVALID_REQUEST
    assert known == {2}
    assert code_of(accepted) is None
    assert cluster.remote(3) == 0


def test_an_older_incarnation_fetches_no_more() -> None:
    """A fetch of an older node epoch than in the metadata is rejected, and the remote LEO does not move."""
    cluster = leading(2)
    cluster.push(1, partition_image(version=2), nodes=[node_image(1), node_image(2, life=3)])
    cluster.fetch(1, by=2, life=3)

    late = cluster.result(cluster.fetch(2, by=2, life=2))
    assert late.refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "of an older incarnation of node 2; only its newest" in late.refusal.message
    assert cluster.remote(2) == 1


def test_a_node_epoch_above_the_metadata_is_refused_and_forgotten() -> None:
    """A fetch of a newer node epoch than in the metadata is retriable, and does not lock out the real process (F2)."""
    cluster = leading(2)
    cluster.push(1, partition_image(version=2), nodes=[node_image(1), node_image(2, life=3)])
    forged = cluster.result(cluster.fetch(2, by=2, life=9))
    real = cluster.result(cluster.fetch(1, by=2, life=3))

    assert (forged.refusal.code, forged.refusal.retriable) == (ErrorCode.UNKNOWN_LEADER_EPOCH, True)
    assert code_of(real) is None
    assert cluster.remote(2) == 1


def test_a_lie_about_the_own_leo_commits_nothing() -> None:
    """An offset beyond the previous one plus what was sent is rejected, and the HW stays."""
    cluster = leading(1)
    cluster.fetch(1, by=2)
    cluster.produce(*[batch() for _ in range(4)])

    assert code_of(cluster.result(cluster.fetch(5, by=2, honest=False))) is ErrorCode.INVALID_REQUEST
    assert (cluster.remote(2), cluster.log(1).hw) == (1, 1)


def test_a_forged_first_fetch_commits_nothing() -> None:
    """The first fetch of a leader epoch claims at most the epoch's start: nothing later was sent to a replica (F2)."""
    cluster = leading(3)
    acknowledged = cluster.produce(batch())

    assert code_of(cluster.result(cluster.fetch(4, by=2, honest=False))) is ErrorCode.INVALID_REQUEST
    assert cluster.remote(2) is None
    assert cluster.log(1).hw == 0
    assert cluster.outcome(acknowledged) is None


def test_the_first_fetch_of_a_process_that_does_not_ask_counts_for_nothing() -> None:
    """M66 with truncation=fetch: a follower stores after its first fetch that it agrees, so its second one counts."""
    cluster = Cluster(1, rules=Rules(truncation=Truncation.FETCH))
    cluster.preload(1, history((0, 4, 0)))
    cluster.push(1, partition_image(epoch=1))
    cluster.fetch(4, by=2)
    before = cluster.remote(2), cluster.log(1).hw
    cluster.fetch(4, by=2)

    assert before == (None, 0)
    assert (cluster.remote(2), cluster.log(1).hw) == (4, 4)


def test_the_start_of_the_epoch_may_be_claimed() -> None:
    """Records below the leader epoch's start may have come from an earlier leader."""
    cluster = Cluster(1)
    cluster.preload(1, history((0, 4, 0)))
    cluster.push(1, partition_image(epoch=1))

    assert code_of(cluster.result(cluster.fetch(4, by=2, honest=False))) is None
    assert cluster.remote(2) == 4


def test_a_forked_tail_hears_where_to_cut() -> None:
    """A follower whose tail ends beyond the limit gets a divergence answer and is not rejected for ever (F2)."""
    cluster = Cluster(1)
    cluster.preload(1, history((0, 4, 0)))
    cluster.push(1, partition_image(epoch=2))
    cluster.produce(batch(), batch(), batch())
    answer = cluster.result(cluster.fetch(6, by=2, lfe=1, honest=False))

    assert answer.refusal is None
    assert answer.diverging == (0, 4)


def test_the_limit_survives_removal_and_return() -> None:
    """A follower that is removed and put back in one epoch may claim no more than before (F2)."""
    cluster = leading(2)
    cluster.fetch(2, by=2)
    cluster.push(1, partition_image(version=2, isr=(1,), replicas=(1,)), nodes=[node_image(1), node_image(2)])
    cluster.produce(batch(), batch())
    cluster.push(1, partition_image(version=3, isr=(1,)), nodes=[node_image(1), node_image(2)])
    lie = cluster.result(cluster.fetch(4, by=2, honest=False))
    truth = cluster.result(cluster.fetch(2, by=2, honest=False))

    assert code_of(lie) is ErrorCode.INVALID_REQUEST
    assert code_of(truth) is None


def test_what_was_sent_may_be_claimed() -> None:
    """After an answer with records the follower may claim up to their end, and may also go back."""
    cluster = leading(3)
    cluster.fetch(0, by=2)
    after_sending = cluster.result(cluster.fetch(3, by=2))
    back = cluster.result(cluster.fetch(1, by=2))

    assert code_of(after_sending) is None
    assert code_of(back) is None
    assert cluster.remote(2) == 1


def test_a_directory_put_back_twice_may_hold_more_than_last_time() -> None:
    """A follower that fetched from a lower offset may return with records that this or an earlier leader sent it.

    Its directory may be restored from an older copy first, and from a newer one after that.
    """
    cluster = Cluster(1)
    cluster.preload(1, history((0, 4, 0)))
    cluster.push(1, partition_image(epoch=1))
    cluster.produce(batch(), batch())
    cluster.fetch(6, by=2)
    cluster.max_records_per_fetch = 1

    for offset in (0, 2, 4, 6):
        assert code_of(cluster.result(cluster.fetch(offset, by=2, honest=False))) is None
        assert cluster.remote(2) == offset
    cluster.produce(batch())
    assert code_of(cluster.result(cluster.fetch(7, by=2, honest=False))) is ErrorCode.INVALID_REQUEST


def test_a_restart_at_the_log_start_begins_the_count_again() -> None:
    """M30: a follower that discarded its log may begin at the leader's log start without an epoch."""
    cluster = leading(6)
    cluster.fetch(0, by=2)
    cluster.fetch(6, by=2)
    cluster.fetch(2, by=2)
    cluster.delete_records(4)

    assert code_of(cluster.result(cluster.fetch(4, by=2, part=fetch_part(4, epoch=0, log_start=4)))) is None
    assert cluster.remote(2) == 4


NO_ID, NO_INDEX = TP._replace(topic_id="gone"), TP._replace(partition=7)
NO_EPOCH, NO_LINEAGE = "current_leader_epoch is absent", "last_fetched_epoch is absent at fetch_offset 1"


@pytest.mark.parametrize(
    ("part", "code", "words"),
    [
        (fetch_part(-1, epoch=2, lfe=0), ErrorCode.INVALID_REQUEST, "fetch_offset is -1; it must be 0 or more"),
        (fetch_part(1, lfe=0), ErrorCode.INVALID_REQUEST, NO_EPOCH),
        (fetch_part(1, epoch=2), ErrorCode.INVALID_REQUEST, NO_LINEAGE),
        (fetch_part(1, epoch=2, log_start=0), ErrorCode.INVALID_REQUEST, NO_LINEAGE),
        (fetch_part(1, epoch=0, lfe=0), ErrorCode.FENCED_LEADER_EPOCH, "0 is older than 2; refresh metadata"),
        (fetch_part(1, epoch=3, lfe=0), ErrorCode.UNKNOWN_LEADER_EPOCH, "current_leader_epoch 3 is newer than 2"),
        (fetch_part(1, tp=NO_ID, epoch=2, lfe=0), ErrorCode.UNKNOWN_TOPIC_ID, "no topic has the id 'gone'"),
        (fetch_part(1, tp=NO_INDEX, epoch=2, lfe=0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has no partition 7; ask"),
    ],
)
def test_a_wrong_fetch_of_a_replica_counts_for_nothing(
    part: messages.FetchPartition, code: ErrorCode, words: str
) -> None:
    """TR4, TR5: a replica sends the leader's epoch, and its last epoch unless its log is empty; the answer says why."""
    cluster = leading(2, epoch=2)
    result = cluster.result(cluster.fetch(1, by=2, part=part))

    assert result.refusal.code is code
    assert words in result.refusal.message
    assert (cluster.remote(2), cluster.log(1).hw) == (None, 0)


@pytest.mark.parametrize(
    ("asked", "as_leader", "as_follower"),
    [
        (None, None, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (5, None, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (4, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_epoch_questions_check_the_epoch_first(
    asked: int | None, as_leader: ErrorCode | None, as_follower: ErrorCode | None
) -> None:
    """T6: with an absent or current epoch the role is checked next, an older or newer one is rejected before it."""
    for leader, expected in ((1, as_leader), (2, as_follower)):
        cluster = leading(epoch=5, leader=leader)
        question = messages.EpochEndQuestion(TP, LeaderEpoch(5), None if asked is None else LeaderEpoch(asked))
        cluster.step(1, events.EpochEndsAsked(0, 77, (question,)))
        answer = cluster.answered[77][0]

        assert (answer.refusal.code if answer.refusal else None) is expected
        if expected is None:
            assert (answer.end.epoch, answer.end.end_offset) == (5, 0)


def test_epoch_numbers_between_restarts_of_the_leader() -> None:
    """T7: with one replica each new epoch begins where the last one ended, also when epochs are skipped."""
    cluster = Cluster(1)
    for epoch, version in ((0, 1), (2, 2), (4, 3)):
        if epoch:
            cluster.restart(1)
        cluster.push(1, partition_image(epoch=epoch, version=version, isr=(1,), replicas=(1,)))
        cluster.produce(batch())
    questions = tuple(messages.EpochEndQuestion(TP, LeaderEpoch(e)) for e in (0, 1, 2, 4))
    cluster.step(1, events.EpochEndsAsked(0, 77, questions))

    assert [(a.end.epoch, a.end.end_offset) for a in cluster.answered[77]] == [(0, 1), (0, 1), (2, 2), (4, 3)]
    assert cluster.ends(1) == (3, 3)
    assert cluster.disks[1][TP].epochs == entries((0, 0), (2, 1), (4, 2))


def test_asking_a_follower_as_if_it_led() -> None:
    """M1: a fetch at a node that does not lead returns the leader it knows."""
    cluster = leading(leader=2, epoch=3)
    result = cluster.result(cluster.fetch(0, by=None))

    assert code_of(result) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (result.leader_hint.leader, result.leader_hint.leader_epoch) == (2, 3)


@pytest.mark.parametrize(("fetch_hw", "immediate"), [(FetchHw.SNAPSHOT, 0), (FetchHw.UPDATED, 2)])
@pytest.mark.parametrize("durability", list(Durability))
def test_which_high_watermark_an_answer_carries(fetch_hw: FetchHw, immediate: int, durability: Durability) -> None:
    """T13: an immediate answer carries the HW from before this fetch, unless the rules differ.

    A parked fetch is read again and carries the newer HW.
    """
    cluster = leading(rules=Rules(fetch_hw=fetch_hw, durability=durability))
    request = cluster.produce(batch(2))
    at_once = cluster.result(cluster.fetch(2, by=2, wait=1000, min_bytes=0))
    acked = cluster.outcome(request)
    parked = cluster.fetch(2, by=2, wait=1000, min_bytes=1000)
    cluster.advance(999)
    early = cluster.result(parked)
    cluster.advance(2)
    late = cluster.result(parked)

    assert at_once.high_watermark == immediate
    assert acked.refusal is None
    assert early is None
    assert late.high_watermark == 2


def test_an_append_wakes_replicas_at_once() -> None:
    """M21: a parked fetch is answered by the append it waited for, with the record."""
    cluster = leading()
    parked = cluster.fetch(0, by=2, wait=500)
    before = cluster.result(parked)
    cluster.produce(batch(3))
    result = cluster.result(parked)

    assert before is None
    assert (result.read.start, result.read.end) == (0, 3)


def test_a_leader_serves_replicas_what_is_not_yet_durable_on_itself() -> None:
    """M54: the leader's own commit overlaps with the followers'."""
    cluster = leading(hold_flushes=True)
    parked = cluster.fetch(0, by=2, wait=500)
    cluster.produce(batch(3))
    result = cluster.result(parked)

    assert result.read.end == 3


def test_recovery_may_trust_what_a_commit_covered_and_no_cut_took_away() -> None:
    """M55: a truncation while a commit is running reduces what recovery may trust afterwards."""
    cluster = Cluster(1, hold_flushes=True)
    cluster.preload(1, history((0, 4, 0)))
    cluster.push(1, partition_image())
    cluster.produce(batch(2))
    cluster.flush(1)
    cluster.produce(batch(), batch())
    cluster.log(1).truncate(Offset(7), [])
    cluster.flush(1)

    assert cluster.wished(1, NoteDurable) == [NoteDurable(TP, Offset(6)), NoteDurable(TP, Offset(7))]


def test_a_fetch_waits_for_min_bytes() -> None:
    """M22: bytes count only once there are min_bytes of them."""
    cluster = leading()
    parked = cluster.fetch(0, by=2, wait=500, min_bytes=250)
    cluster.produce(batch(2))
    before = cluster.result(parked)
    cluster.produce(batch(1))

    assert before is None
    assert cluster.result(parked) is not None


def test_a_rising_high_watermark_wakes_consumers_only() -> None:
    """M22, KAFKA-9952: a consumer parked at the HW is woken when it moves, a replica at the log end is not."""
    cluster = leading(2, replicas=(1, 2, 3), isr=(1, 2))
    consumer = cluster.fetch(0, by=None, wait=500)
    replica = cluster.fetch(2, by=3, wait=500)
    nothing = cluster.result(consumer)
    cluster.fetch(2, by=2)
    cluster.fetch(2, by=3, wait=500)
    woken = cluster.result(consumer)

    assert nothing is None
    assert cluster.result(replica) is None
    assert (woken.read.start, woken.read.end) == (0, 2)


def test_a_woken_consumer_reads_to_the_high_watermark_only() -> None:
    """M9: records above the HW wait when a parked consumer is woken, on a stream as on a call."""
    cluster = leading(3, replicas=(1, 2), isr=(1, 2))
    consumer = cluster.fetch(0, by=None, wait=500)
    on_stream = cluster.fetch(0, by=None, wait=500, stream=7)
    cluster.fetch(2, by=2)

    for woken in (cluster.result(consumer), cluster.result(on_stream)):
        assert (woken.read.start, woken.read.end, woken.high_watermark) == (0, 2, 2)
    assert cluster.ends(1) == (3, 2)


def test_zero_wait_is_answered_at_once() -> None:
    """M22: a fetch without a wait gets an empty answer."""
    cluster = leading()
    result = cluster.result(cluster.fetch(0, by=2, wait=0))

    assert result.read is None


def test_errors_are_answered_at_once_with_everything_else() -> None:
    """M22: one partition's error completes a call over two partitions."""
    cluster = leading()
    request = cluster.request_id()
    parts = (fetch_part(0, epoch=0, log_start=0), fetch_part(0, tp=TP._replace(partition=7), epoch=0, log_start=0))
    asked = fetch_request(*parts, replica=2, wait=500)
    cluster.step(1, events.FetchArrived(0, request, asked))
    answers = cluster.fetched[request]

    assert len(answers) == 1 and answers[0].done
    assert [code_of(r) for r in answers[0].results] == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("settings", SETTINGS)
def test_beyond_the_high_watermark_a_consumer_sees_nothing(settings: Rules) -> None:
    """T14: a follower gets records above the HW, a consumer there gets an empty answer and no error."""
    cluster = leading(2, rules=settings, replicas=(1, 2, 3), isr=(1, 2, 3))
    replica = cluster.result(cluster.fetch(1, by=2))
    consumer = cluster.result(cluster.fetch(1, by=None))
    far = cluster.result(cluster.fetch(1000, by=None))

    assert replica.read.end == 2
    assert (consumer.refusal, consumer.read, consumer.high_watermark) == (None, None, 0)
    assert code_of(far) is OUT_OF_RANGE


@pytest.mark.parametrize("stream", [None, 5])
def test_a_parked_caller_hears_of_a_new_leader(stream: int | None) -> None:
    """T15: when the leader becomes a follower, its parked produce and its parked fetches complete at once."""
    cluster = leading(replicas=(1, 2, 3), isr=(1, 2, 3))
    produce = cluster.produce()
    replica = cluster.fetch(1, by=2, wait=10_000, stream=stream)
    consumer = cluster.fetch(0, by=None, wait=10_000)
    cluster.push(1, partition_image(leader=2, epoch=1, version=2))
    produced = cluster.outcome(produce)
    codes = {code_of(cluster.result(r)) for r in (replica, consumer)}

    assert (produced.refusal.code, produced.outcome) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.MAY_APPEAR)
    assert codes == {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert cluster.cores[1].parked == (0, 0)


def test_a_caller_of_a_parked_fetch_goes_away() -> None:
    """CallGone: the fetch is no longer parked and never answered."""
    cluster = leading()
    request = cluster.fetch(0, by=None, wait=500)
    cluster.step(1, events.CallGone(0, request))
    cluster.advance(600)

    assert request not in cluster.fetched
    assert cluster.cores[1].parked == (0, 0)


def test_a_replica_that_is_taken_away_is_reported() -> None:
    """M23: a parked fetch of a node that is no longer a replica completes with an error."""
    cluster = leading(replicas=(1, 2, 3), isr=(1, 2))
    parked = cluster.fetch(0, by=3, wait=10_000)
    cluster.push(1, partition_image(version=2))

    assert code_of(cluster.result(parked)) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_reading_from_a_follower() -> None:
    """M1: a follower serves up to its own HW; above it OFFSET_NOT_AVAILABLE, never out of range."""
    cluster = Cluster(1, 2, rules=Rules(fetch_hw=FetchHw.UPDATED))
    cluster.push_all(partition_image())
    cluster.produce(batch(), batch())
    cluster.settle()
    cluster.advance(600, settle=True)
    cluster.produce(batch())
    for _ in range(2):
        cluster.deliver(*next(link for link, waiting in cluster.links.items() if waiting))
    read = cluster.result(cluster.fetch(0, by=None, node=2, at_follower=True))
    above = cluster.result(cluster.fetch(9, by=None, node=2, at_follower=True))
    at_leader = cluster.result(cluster.fetch(0, by=None, node=1, at_follower=True))
    replica = cluster.result(cluster.fetch(0, by=1, node=2, at_follower=True))

    assert (read.read.end, read.high_watermark) == (2, 2)
    assert code_of(above) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert code_of(at_leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(replica) is ErrorCode.INVALID_REQUEST


def asked_offsets(cluster: Cluster, timestamp: int, *, by: int | None) -> messages.OffsetAnswer:
    """The answer to ListOffsets."""
    request = cluster.request_id()
    replica = None if by is None else messages.ReplicaState(NodeId(by), NodeEpoch(100 + by))
    found = cluster.step(
        1, events.OffsetsAsked(cluster.now, request, (messages.OffsetQuestion(TP, timestamp),), replica)
    )
    return next(e for e in found if isinstance(e, AnswerOffsets)).answers[0]


def test_offsets_never_go_back_after_a_change_of_leader() -> None:
    """T16: until its HW has reached the start of its epoch a leader returns its log end to no client."""
    cluster = leading(replicas=(1, 2, 3), isr=(1, 3))
    cluster.produce(batch(2))
    cluster.produce(batch(3))
    for follower in (2, 3):
        cluster.fetch(2, by=follower)
    before = cluster.log(1).hw
    cluster.push(1, partition_image(replicas=(1, 2, 3), isr=(1, 3), leader=3, epoch=1, version=2))
    cluster.push(1, partition_image(replicas=(1, 2, 3), isr=(1, 3), leader=1, epoch=2, version=3))
    client, replica = asked_offsets(cluster, messages.LATEST, by=None), asked_offsets(cluster, messages.LATEST, by=3)
    earliest, by_time = asked_offsets(cluster, messages.EARLIEST, by=None), asked_offsets(cluster, 12345, by=None)
    for follower in (2, 3):
        cluster.fetch(5, by=follower)
    settled, later = asked_offsets(cluster, messages.LATEST, by=None), asked_offsets(cluster, 12345, by=None)

    assert before == 2
    assert code_of(client) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert replica.offset == 5
    assert (earliest.offset, earliest.refusal) == (0, None)
    # Looked up to the log end, but a hit at or above the HW is rejected for every caller.
    assert (by_time.lookup.end, by_time.lookup.settled_end, by_time.lookup.unsettled) == (5, 2, True)
    assert (settled.offset, settled.refusal) == (5, None)
    assert not later.lookup.unsettled and later.lookup.end == 5


def test_a_timestamp_that_means_nothing() -> None:
    """A negative timestamp without a meaning is rejected."""
    assert code_of(asked_offsets(leading(), -9, by=None)) is ErrorCode.INVALID_REQUEST
