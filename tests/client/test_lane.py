"""One partition's path to its leader, without sockets: what is sent when, and how batches are given up."""

from __future__ import annotations

import random

import pytest

from strandline.client.cluster.view import Leader
from strandline.client.produce.delivery import Delivery, OutgoingBatch, ProducerIdentity
from strandline.client.produce.lane import PartitionLane
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import Endpoint
from strandline.core.types import LeaderEpoch, NodeId, Offset, TopicPartition
from strandline.rpc.channels import Backoff

TP = TopicPartition("id", 0)
DEFINITE = Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "", Outcome.NOT_APPENDED)
INDEFINITE = Refusal(ErrorCode.REQUEST_TIMED_OUT, "", Outcome.MAY_APPEAR)
OUT_OF_ORDER = Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "", Outcome.NOT_APPENDED)


def a_batch(records: int = 10, deadline_ms: float = 1e9) -> OutgoingBatch:
    batch = OutgoingBatch("t", TP, now_ms=0, deadline_ms=deadline_ms)
    batch.record_count = records
    return batch


def a_lane(batches: int = 3, *, idempotent: bool = True) -> tuple[PartitionLane, list[OutgoingBatch]]:
    lane = PartitionLane("t-0", idempotent=idempotent, max_in_flight=5, backoff=Backoff(10, 10, draw=random.Random(1)))
    lane.identity = ProducerIdentity(1, 0) if idempotent else None
    waiting = [a_batch() for _ in range(batches)]
    lane.queue.extend(waiting)
    return lane, waiting


def take_all(lane: PartitionLane, now_ms: float = 0.0, first_attempt: int = 1) -> list[OutgoingBatch]:
    taken = []
    while (batch := lane.maybe_take(first_attempt + len(taken), now_ms)) is not None:
        taken.append(batch)
    return taken


def leader(epoch: int) -> Leader:
    return Leader(NodeId(1), LeaderEpoch(epoch), Endpoint("h", 1))


def test_sequences_follow_the_records() -> None:
    """Each batch's sequence begins where the one before ended, counted in records."""
    lane, _ = a_lane()

    assert [batch.sequence for batch in take_all(lane)] == [0, 10, 20]


def test_sequences_wrap() -> None:
    """The sequence after 2^31 - 1 is 0, as leaders expect."""
    lane, _ = a_lane(batches=2)
    lane._next_sequence = (1 << 31) - 10

    assert [batch.sequence for batch in take_all(lane)] == [(1 << 31) - 10, 0]


def test_window_spans_sequences_not_answers() -> None:
    """An old batch without an answer keeps the window closed, even if later batches are answered."""
    lane, batches = a_lane(batches=9)
    taken = take_all(lane)
    for batch in taken[1:]:
        lane.acknowledged(batch, Offset(0), 0)

    assert take_all(lane) == []
    lane.acknowledged(taken[0], Offset(0), 0)
    assert take_all(lane) == batches[5:]


def test_a_failed_attempt_holds_everything_back() -> None:
    """After an error nothing is sent until all answers are in; then all are sent again in order, after a wait."""
    lane, batches = a_lane(batches=4)
    first, second, third, fourth = take_all(lane)
    lane.refused(second, DEFINITE, 0)
    lane.queue.append(a_batch())
    while_waiting = take_all(lane, 1_000)
    lane.acknowledged(first, Offset(0), 0)
    lane.refused(third, OUT_OF_ORDER, 0)
    lane.refused(fourth, OUT_OF_ORDER, 0)

    assert while_waiting == []
    assert take_all(lane, 1) == []
    again = take_all(lane, 20)
    assert again[:3] == batches[1:]
    assert [batch.sequence for batch in again] == [10, 20, 30, 40]


def test_new_leader_ends_the_wait() -> None:
    """Metadata with a new epoch sends a numbered batch at once, without the old leader's answer."""
    lane, batches = a_lane()
    lane.leader_is(leader(1), 0)
    take_all(lane)
    lane.leader_is(leader(1), 0)
    same_epoch = take_all(lane, 0, 10)
    lane.leader_is(leader(2), 0)
    again = take_all(lane, 0, 10)

    assert same_epoch == []
    assert again == batches
    assert all(batch.may_have_appeared for batch in again)
    assert [batch.sequence for batch in again] == [0, 10, 20]


def test_new_leader_does_not_repeat_without_numbers() -> None:
    """Without sequences the old leader's answer is awaited: a copy could be written twice."""
    lane, _ = a_lane(idempotent=False)
    lane.leader_is(leader(1), 0)
    take_all(lane)
    lane.leader_is(leader(2), 0)

    assert take_all(lane, 0, 10) == []


def test_given_up_sequence_drains_then_renews() -> None:
    """After a final error the rest drains, and batches that were never written start a new identity at 0."""
    lane, (first, second, third) = a_lane()
    take_all(lane)
    lane.refused(first, Refusal(ErrorCode.INVALID_RECORD, "", Outcome.NOT_APPENDED), 0)
    lane.refused(second, OUT_OF_ORDER, 0)
    lane.refused(third, OUT_OF_ORDER, 0)

    assert first.refusal.outcome is Outcome.NOT_APPENDED
    assert take_all(lane, 1_000) == []
    assert lane.needs_identity
    lane.renew(ProducerIdentity(2, 0))
    again = take_all(lane, 1_000)
    assert again == [second, third]
    assert [(batch.identity, batch.sequence) for batch in again] == [((2, 0), 0), ((2, 0), 10)]


def test_what_may_be_written_keeps_its_number() -> None:
    """While draining, a batch that may be in the log is retried under its old number, never a new one."""
    lane, (first, second, third) = a_lane()
    take_all(lane)
    lane.lost(first, 0, was_sent=True, why="")
    lane.lost(second, 0, was_sent=True, why="")
    lane.lost(third, 0, was_sent=False, why="")
    lane.abandon([first], ErrorCode.REQUEST_TIMED_OUT, "", 0)
    again = take_all(lane, 1_000)

    assert again == [second]
    assert (second.identity, second.sequence) == ((1, 0), 10)
    lane.refused(second, OUT_OF_ORDER, 1_000)
    assert second.refusal.outcome is Outcome.MAY_APPEAR
    assert lane.needs_identity
    assert list(lane.queue) == [third]
    assert third.sequence is None


def test_a_forgotten_producer_never_renumbers_what_may_be_written() -> None:
    """UNKNOWN_PRODUCER_ID: batches that may be written end as indefinite, the others continue under a new id."""
    lane, (first, second, third) = a_lane()
    take_all(lane)
    for batch in (first, second, third):
        lane.lost(batch, 0, was_sent=batch is first, why="")
    take_all(lane, 1_000, 10)
    for batch in (first, second, third):
        lane.refused(batch, Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, "", Outcome.NOT_APPENDED), 1_000)

    assert first.refusal.outcome is Outcome.MAY_APPEAR
    assert lane.needs_identity
    assert [(batch, batch.sequence) for batch in lane.queue] == [(second, None), (third, None)]


def test_never_attempted_is_definite() -> None:
    """A batch that expires before its first attempt was not written, and leaves no gap."""
    lane, _ = a_lane(batches=0)
    late = a_batch(deadline_ms=5)
    lane.queue.append(late)

    assert lane.expire(4) == []
    assert lane.expire(5) == [late]
    assert late.refusal.outcome is Outcome.NOT_APPENDED
    assert not lane.is_draining


@pytest.mark.parametrize(
    ("attempts", "outcome"),
    [
        ([DEFINITE, DEFINITE], Outcome.NOT_APPENDED),
        ([INDEFINITE, DEFINITE], Outcome.MAY_APPEAR),
        ([DEFINITE, INDEFINITE], Outcome.MAY_APPEAR),
        ([Refusal(ErrorCode.NOT_ENOUGH_REPLICAS), DEFINITE], Outcome.MAY_APPEAR),
    ],
)
def test_definite_only_if_every_attempt_was(attempts: list[Refusal], outcome: Outcome) -> None:
    """One attempt without a definite outcome makes the result indefinite (P2)."""
    lane, (batch,) = a_lane(batches=1)
    for number, refusal in enumerate(attempts):
        take_all(lane, number * 1_000)
        lane.refused(batch, refusal, number * 1_000)
    lane.abandon([batch], ErrorCode.REQUEST_TIMED_OUT, "", 0)

    assert batch.refusal.outcome is outcome


def test_duplicate_too_old_is_acknowledged() -> None:
    """DUPLICATE_SEQUENCE_NUMBER means success, at an offset that is no longer known."""
    lane, (batch,) = a_lane(batches=1)
    take_all(lane)
    lane.refused(batch, Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "", Outcome.MAY_APPEAR), 0)

    assert batch.is_done
    assert batch.refusal is None
    assert Delivery(batch, 0, None).result().offset is None


def test_random_histories_never_duplicate_or_reorder() -> None:
    """For any answers of a faulty leader, its log holds no batch twice, and acknowledged ones in order."""
    for seed in range(200):
        _play(random.Random(seed))


def _play(draw: random.Random) -> None:
    """A leader that applies sequences strictly, rejects at random and loses answers at random."""
    lane, batches = a_lane(batches=draw.randint(1, 12))
    log: list[OutgoingBatch] = []
    expected: dict[int, int] = {}
    now_ms, attempt, identity = 0.0, 0, 1
    for _ in range(2_000):
        if all(batch.is_done for batch in batches):
            break
        now_ms += 100
        if lane.needs_identity:
            identity += 1
            lane.renew(ProducerIdentity(identity, 0))
        taken = take_all(lane, now_ms, attempt + 1)
        attempt += len(taken) + 1
        for batch in taken:
            _answer(draw, lane, batch, log, expected, now_ms)
    written = [batch for batch in log if batch.refusal is None]

    assert all(batch.is_done for batch in batches)
    assert len(log) == len(set(map(id, log)))
    assert written == sorted(written, key=batches.index)
    assert all(batch in log for batch in batches if batch.refusal is None)
    assert not any(batch in log for batch in batches if batch.refusal and batch.refusal.outcome is Outcome.NOT_APPENDED)


def _answer(
    draw: random.Random,
    lane: PartitionLane,
    batch: OutgoingBatch,
    log: list[OutgoingBatch],
    expected: dict[int, int],
    now_ms: float,
) -> None:
    assert batch.sequence is not None
    producer_id = batch.identity.producer_id
    fault = draw.random()
    if fault < 0.1:
        lane.lost(batch, now_ms, was_sent=draw.random() < 0.5, why="")
        return
    if batch not in log:
        if batch.sequence != expected.get(producer_id, 0):
            lane.refused(batch, OUT_OF_ORDER, now_ms)
            return
        if fault < 0.2:
            lane.refused(batch, DEFINITE, now_ms)
            return
        if fault < 0.25:
            lane.refused(batch, Refusal(ErrorCode.INVALID_RECORD, "", Outcome.NOT_APPENDED), now_ms)
            return
        log.append(batch)
        expected[producer_id] = batch.sequence + batch.record_count
    if fault < 0.4:
        lane.lost(batch, now_ms, was_sent=True, why="")
    elif fault < 0.45:
        lane.refused(batch, INDEFINITE, now_ms)
    else:
        lane.acknowledged(batch, Offset(log.index(batch)), now_ms)
