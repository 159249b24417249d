"""The throttle of reassignments (C80): buckets with time as input, whose copies wait, and who never does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_of_cores import Cluster
from core_builders import BATCH_BYTES, TP, TP1, batch, fetch_request, history, partition_image
from hypothesis import given, strategies as st

from strandline.core.log import events
from strandline.core.log.move_throttle import MoveThrottle
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import PartitionImage
from strandline.core.token_bucket import TokenBucket
from strandline.core.types import NEVER_MS, NodeId, TopicPartition

RATE = 1_000
"""Ten batches a second."""
BATCHES = 60
PER_FETCH = 4 * BATCH_BYTES
SMALL = NodeTimings(replica_fetch_max_bytes=PER_FETCH, replica_fetch_response_max_bytes=PER_FETCH)
LEADER, ADDED, MEMBER = 1, 2, 3


def moving(
    tp: TopicPartition = TP, *, rate: int | None = RATE, version: int = 1, isr: tuple[int, ...] = (1, 3)
) -> PartitionImage:
    """Node 1 leads, 3 is in the ISR, and a reassignment adds 2."""
    image = partition_image(tp, version=version, replicas=(1, 2, 3), isr=isr)
    return replace(image, adding=(NodeId(ADDED),), original=(NodeId(LEADER), NodeId(MEMBER)), throttle_bytes_per_s=rate)


def copying(
    *throttled: int, streams: bool = True, tps: tuple[TopicPartition, ...] = (TP,), timings: NodeTimings = SMALL
) -> Cluster:
    """A cluster in which 2 begins to copy; ``throttled``: the nodes that were sent the rate."""
    cluster = Cluster(LEADER, ADDED, MEMBER, timings=timings, streams=streams)
    for tp in tps:
        for node in (LEADER, MEMBER):
            cluster.preload(node, history((0, BATCHES, 0)), hw=BATCHES, tp=tp)
    for node in (MEMBER, LEADER, ADDED):
        cluster.push(node, *(moving(tp, rate=RATE if node in throttled else None) for tp in tps))
    cluster.settle()
    return cluster


def seconds_to_copy(cluster: Cluster, *tps: TopicPartition) -> float:
    """How long node 2 takes to hold all of it."""
    began = cluster.now
    while any(cluster.log(ADDED, tp).leo < BATCHES for tp in tps or (TP,)):
        cluster.advance(50, tick_ms=50, settle=True)
        assert cluster.now - began < 60_000, "it never holds the log"
    return (cluster.now - began) / 1_000


@given(
    rate=st.integers(1, 10_000),
    takes=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 5_000)), min_size=1, max_size=50),
)
def test_no_more_passes_than_rate_and_burst_allow(rate: int, takes: list[tuple[int, int]]) -> None:
    """In any time from the start at most rate x time, the burst and the last one pass; nothing passes before its
    time, and what is closed opens at exactly the time that it names."""
    bucket, now_ms, passed, last = TokenBucket(rate, 0), 0, 0, 0
    for pause_ms, count in takes:
        now_ms += pause_ms
        if not bucket.is_open(now_ms):
            opens_at_ms = bucket.opens_at_ms
            assert not bucket.is_open(opens_at_ms - 1)
            now_ms = opens_at_ms
            assert bucket.is_open(now_ms)
        bucket.take(count, now_ms)
        passed, last = passed + count, count

        assert passed - last < rate * (1 + now_ms / 1_000)


def test_an_idle_bucket_holds_no_more_than_its_burst() -> None:
    """A minute without copying allows no more than one second's bytes at once."""
    bucket = TokenBucket(RATE, 0)
    bucket.take(RATE, 60_000)

    assert not bucket.is_open(60_000)
    assert bucket.opens_at_ms == 60_001


def test_those_that_wait_go_on_one_at_a_time_and_in_turn() -> None:
    """While a bucket is in debt partitions wait; one of each rate goes on as soon as it is open, the first to wait
    first, and rates that are paid for are forgotten."""
    throttle = MoveThrottle()
    throttle.passed(RATE, RATE // 5, 0)
    held = [throttle.holds(tp, RATE, 0) for tp in (TP, TP1)]
    other = throttle.holds(TP, 2 * RATE, 0)
    due_ms = throttle.due_ms
    released = [list(throttle.released(at_ms)) for at_ms in (0, due_ms, due_ms)]
    throttle.holds(TP, 3 * RATE, 10_000)

    assert (held, other, due_ms) == ([True, True], False, 1)
    assert released == [[], [TP], [TP1]]
    assert throttle.due_ms == NEVER_MS
    assert list(throttle._buckets) == [3 * RATE]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("side", [LEADER, ADDED])
def test_each_side_keeps_the_rate(side: int, streams: bool) -> None:
    """What a reassignment copies takes its bytes / rate, less a burst of 0.2 s, whichever side knows the rate; without
    a rate it takes no time at all."""
    free = seconds_to_copy(copying(streams=streams))
    took = seconds_to_copy(copying(side, streams=streams))
    least = (BATCHES * BATCH_BYTES - PER_FETCH) / RATE - 0.2

    assert free == 0
    assert least <= took <= least + 0.8


@pytest.mark.parametrize("side", [LEADER, ADDED])
def test_reassignments_of_one_rate_share_it(side: int) -> None:
    """Two partitions of one rate take twice as long on a side as one, and both get their turn."""
    one = seconds_to_copy(copying(side))
    cluster = copying(side, tps=(TP, TP1))
    cluster.advance(3_000, tick_ms=50, settle=True)
    half_way = [cluster.log(ADDED, tp).leo for tp in (TP, TP1)]
    both = 3 + seconds_to_copy(cluster, TP, TP1)

    assert both - one == pytest.approx(BATCHES * BATCH_BYTES / RATE, abs=1)
    assert abs(half_way[0] - half_way[1]) <= 2 * PER_FETCH / BATCH_BYTES


def test_a_member_of_the_isr_is_never_throttled() -> None:
    """While the bucket is in debt for an added replica, a member of the ISR gets what it fetches at once, even one that
    was added by the same reassignment and is far behind."""
    cluster = copying(LEADER, ADDED)
    cluster.push_all(moving(version=2, isr=(1, 2, 3)))
    cluster.settle()

    assert cluster.log(ADDED).leo == BATCHES


def test_others_are_not_slowed() -> None:
    """A produce with acks=all is acknowledged at once by the ISR while an added replica waits for its rate."""
    cluster = copying(LEADER, ADDED)
    waits_at = cluster.log(ADDED).leo
    request = cluster.produce(batch())
    cluster.settle()
    outcome = cluster.outcome(request)

    assert outcome.refusal is None
    assert cluster.log(MEMBER).leo == BATCHES + 1
    assert cluster.log(ADDED).leo == waits_at < BATCHES


def returning(catch_up: int, isr: tuple[int, ...] = (1,)) -> Cluster:
    """Node 3 comes back without its log, beside a throttled reassignment that adds 2, which is down."""
    cluster = Cluster(LEADER, MEMBER, timings=replace(SMALL, catch_up_bytes_per_s=catch_up), streams=True)
    cluster.preload(LEADER, history((0, BATCHES, 0)), hw=BATCHES)
    cluster.push_all(moving(isr=isr))
    cluster.settle()
    return cluster


@pytest.mark.parametrize(("catch_up", "isr"), [(0, (1,)), (RATE, (1, 3))])
def test_a_replica_that_no_reassignment_adds_is_not_throttled(catch_up: int, isr: tuple[int, ...]) -> None:
    """A replica that lost its log copies without the rate of a reassignment of the same partition, and as a member of
    the ISR without the rate of those that come back, too."""
    assert returning(catch_up, isr).log(MEMBER).leo == BATCHES


def test_a_replica_that_comes_back_keeps_the_rate_of_its_node() -> None:
    """With catch_up_bytes_per_s a replica outside the ISR copies at that rate, and near the HW it does not wait: it
    holds what was written meanwhile and joins the ISR's end."""
    cluster = returning(RATE)
    began = cluster.now
    while cluster.log(MEMBER).leo < BATCHES:
        cluster.advance(50, tick_ms=50, settle=True)
        assert cluster.now - began < 60_000, "it never holds the log"
    cluster.produce(batch())
    cluster.settle()
    least = (BATCHES * BATCH_BYTES - PER_FETCH) / RATE - 1

    assert least <= (cluster.now - began) / 1_000 <= least + 2
    assert cluster.log(MEMBER).leo == BATCHES + 1


@pytest.mark.parametrize("side", [LEADER, ADDED])
def test_the_time_for_which_a_copy_was_held_is_reported(side: int) -> None:
    """The side that keeps the rate reports each wait once, in FETCH_STATS: together all the time that the copy took."""
    cluster = copying(side, timings=replace(SMALL, sample_min_ms=1_000, sample_max_ms=10_000))
    took = seconds_to_copy(cluster)
    cluster.advance(11_000, tick_ms=500, settle=True)
    stats = {node: [emit.event for emit in cluster.emitted(node, "FETCH_STATS")] for node in (LEADER, ADDED)}
    held = {node: sum(one.throttled_ms for one in found) for node, found in stats.items()}
    other = LEADER + ADDED - side

    assert 0.8 * took <= held[side] / 1_000 <= took
    assert held[other] == 0
    assert {one.replica_id for one in stats[side] if one.throttled_ms} == {ADDED}
    assert len([one for one in stats[side] if one.throttled_ms]) <= 2 + took / 10


@pytest.mark.parametrize(("behind", "is_sent"), [(0, True), (1, True), (2, False)])
def test_near_the_hw_no_replica_waits(behind: int, is_sent: bool) -> None:
    """An added replica at or above HW - 1 batch is sent what it lacks although the bucket is in debt; one further
    behind is not."""
    cluster = Cluster(LEADER, timings=SMALL)
    cluster.push(LEADER, moving())
    cluster.produce(*[batch() for _ in range(5)])
    cluster.fetch(5, by=MEMBER)
    hw = cluster.log(LEADER).hw
    cluster.fetch(0, by=ADDED)
    cluster.step(LEADER, events.FetchServed(cluster.now, NodeId(ADDED), ((TP, hw, 10 * RATE),)))
    cluster.produce(batch())
    request = cluster.request_id()
    part = cluster.honest_part(hw - behind)
    cluster.step(LEADER, events.FetchArrived(cluster.now, request, fetch_request(part, replica=ADDED, wait=500), 44))

    assert bool(cluster.fetched.get(request)) is is_sent


def test_a_rate_that_is_taken_back_holds_no_fetch() -> None:
    """As soon as nodes hear that there is no rate any more, the fetches that wait for it go on."""
    cluster = copying(LEADER, ADDED)
    before = cluster.log(ADDED).leo
    cluster.push_all(moving(rate=None, version=2))
    cluster.settle()

    assert before < BATCHES
    assert cluster.log(ADDED).leo == BATCHES
