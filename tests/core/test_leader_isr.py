"""Which replicas are in sync and from when it counts, row by row of the edge cases C."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch, history, node_image, partition_image

from strandline.core.errors import ErrorCode
from strandline.core.log import events
from strandline.core.log.effects import Effect
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import NodeImage
from strandline.core.types import Acks, Durability, IsrJoin, NodeId, Rules


def leading(
    records: int = 10, *, rules: Rules | None = None, timings: NodeTimings | None = None, **image: Any
) -> Cluster:
    """Node 1 leads epoch 5 with ``records`` records of that epoch; there are no other cores."""
    cluster = Cluster(1, rules=rules, timings=timings)
    cluster.push(1, partition_image(**{"epoch": 5, **image}))
    if records:
        cluster.produce(*[batch() for _ in range(records)])
    return cluster


def proposed(cluster: Cluster) -> list[set[int]]:
    """The ISR of every attempt so far."""
    return [{m.node_id for m in r.partitions[0].new_isr} for r in cluster.attempts()]


def isr(cluster: Cluster) -> tuple[set[int], set[int]]:
    """(committed ISR, maximal ISR)."""
    state = cluster.leader().isr
    return set(state.committed), set(state.maximal)


def test_expansion() -> None:
    """T17: a follower at the log end is proposed once and counted at once; the controller makes it a member."""
    cluster = leading(isr=(1,))
    cluster.fetch(3, by=2)
    behind = len(cluster.attempts())
    cluster.fetch(10, by=2)
    cluster.fetch(10, by=2)
    pending = isr(cluster)
    cluster.decide(1, 2)

    assert behind == 0
    assert proposed(cluster) == [{1, 2}]
    assert pending == ({1}, {1, 2})
    assert isr(cluster) == ({1, 2}, {1, 2})
    assert len(cluster.emitted(1, "ISR_CHANGE")) == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_final_refusals_stay_pending_and_are_not_retried(code: ErrorCode) -> None:
    """T17: after such an error this leader is behind; it keeps the stricter (maximal) ISR and waits for metadata."""
    cluster = leading(isr=(1,))
    cluster.fetch(10, by=2)
    cluster.decide(code=code)
    cluster.advance(5000)
    after = isr(cluster), len(cluster.attempts())
    cluster.push(1, partition_image(epoch=5, version=9, isr=(1,)))

    assert after == (({1}, {1, 2}), 1)
    assert cluster.cores[1]._isr.failed_updates == 1
    assert isr(cluster)[0] == {1}


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_change_that_did_not_happen_is_taken_back(code: ErrorCode) -> None:
    """Back to the committed ISR, and the same proposal again only after a delay."""
    cluster = leading(isr=(1,))
    cluster.fetch(10, by=2)
    cluster.decide(code=code)
    reverted = isr(cluster)
    cluster.fetch(10, by=2)
    at_once = len(cluster.attempts())
    cluster.advance(1500)

    assert reverted == ({1}, {1})
    assert at_once == 1
    assert proposed(cluster) == [{1, 2}, {1, 2}]


@pytest.mark.parametrize(("join", "joins_at"), [(IsrJoin.HW, 5), (IsrJoin.CAUGHT_UP, 7)])
def test_no_follower_joins_before_the_epoch_began(join: IsrJoin, joins_at: int) -> None:
    """T18, TR6: at the HW is not enough; under `caught-up` the start of the epoch is not enough either."""
    cluster = leading(0, rules=Rules(isr_join=join), epoch=8, replicas=(1, 2, 3), isr=(1, 3))
    cluster.produce(batch(2))
    cluster.produce(batch(3))
    # F2 is in the middle of the first batch, from its leader's view.
    cluster.fetch(1, by=3)
    hw = cluster.log(1).hw
    cluster.push(1, partition_image(leader=3, epoch=9, version=2, replicas=(1, 2, 3), isr=(1, 3)))
    cluster.push(1, partition_image(leader=1, epoch=10, version=3, replicas=(1, 2, 3), isr=(1, 3)))
    start = cluster.leader().epoch_start_offset
    cluster.produce(batch(2))
    joined = {}
    for offset in (0, 1, 5, 7):
        cluster.step(1, events.FetchServed(cluster.now, NodeId(2), ((TP, offset, 0),)))
        cluster.fetch(offset, by=2)
        joined[offset] = len(cluster.attempts())

    assert (hw, start) == (1, 5)
    assert joined == {o: int(o >= joins_at) for o in (0, 1, 5, 7)}
    assert proposed(cluster) == [{1, 2, 3}]


@pytest.mark.parametrize(("join", "joins_at_hw"), [(IsrJoin.HW, True), (IsrJoin.CAUGHT_UP, False)])
def test_joining_at_a_frozen_high_watermark(join: IsrJoin, joins_at_hw: bool) -> None:
    """T42 (core part): at a frozen HW far below the log end a slow follower joins only under Kafka's rule."""
    cluster = Cluster(1, rules=Rules(isr_join=join, durability=Durability.PAGE_CACHE))
    cluster.preload(1, history((4, 100, 0)), hw=100)
    cluster.push(1, partition_image(epoch=5, isr=(1,), min_isr=2))
    cluster.produce(*[batch() for _ in range(900)], acks=Acks.LEADER)
    cluster.fetch(100, by=2)
    at_hw = len(cluster.attempts())
    cluster.step(1, events.FetchServed(0, NodeId(2), ((TP, 1000, 0),)))
    cluster.fetch(1000, by=2)

    assert cluster.ends(1) == (1000, 100)
    assert at_hw == int(joins_at_hw)
    assert len(cluster.attempts()) == 1


@pytest.mark.parametrize(
    "node",
    [node_image(2, fenced=True), node_image(2, leaving=True), node_image(2, observer=True)],
    ids=["fenced", "shutting down", "observer"],
)
def test_only_the_eligible_join(node: NodeImage) -> None:
    """M44, M16: a replica that could not be elected neither joins the ISR nor holds the HW back, but is served."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(isr=(1,)), nodes=[node_image(1), node])
    cluster.produce(batch(10))
    served = cluster.result(cluster.fetch(0, by=2))
    cluster.fetch(10, by=2)
    cluster.produce(batch())
    cluster.advance(1000)

    assert served.read is not None
    assert cluster.remote(2) == 10
    assert cluster.attempts() == []
    assert cluster.ends(1) == (11, 11)


def test_a_parked_follower_joins_when_it_becomes_eligible() -> None:
    """A follower that is parked at the log end fetches no more; it joins when the metadata unfences it."""
    cluster = leading(isr=(1,))
    cluster.push(1, nodes=[node_image(2, fenced=True)])
    cluster.fetch(10, by=2, wait=60_000)
    fenced = len(cluster.attempts())
    cluster.push(1, nodes=[node_image(2)])
    cluster.advance(200)

    assert fenced == 0
    assert proposed(cluster) == [{1, 2}]


def test_one_proposal_per_partition() -> None:
    """M45: while a change is pending no second one is proposed, even if another follower catches up."""
    cluster = leading(isr=(1,), replicas=(1, 2, 3))
    cluster.fetch(10, by=2)
    cluster.fetch(10, by=3)
    pending = proposed(cluster)
    cluster.decide(1, 2)
    cluster.fetch(10, by=3)

    assert pending == [{1, 2}]
    assert proposed(cluster) == [{1, 2}, {1, 2, 3}]


def test_shrinking() -> None:
    """T19: the leader proposes to remove a member behind for longer than the lag time, and counts it until then."""
    cluster = leading(replicas=(1, 2, 3), isr=(1, 2, 3))
    cluster.fetch(10, by=2)
    assert cluster.leader().maybe_shrink(cluster.now) is None
    cluster.advance(30_000, tick_ms=1000)
    early = len(cluster.attempts())
    cluster.advance(15_001, tick_ms=1000)
    pending = isr(cluster), cluster.log(1).hw
    cluster.decide(1, 2)

    assert early == 0
    assert proposed(cluster) == [{1, 2}]
    assert pending == (({1, 2, 3}, {1, 2, 3}), 0)
    assert isr(cluster) == ({1, 2}, {1, 2})
    assert cluster.log(1).hw == 10


@pytest.mark.parametrize(("age", "expected"), [(0, None), (30_000, None), (30_001, {1, 2})])
def test_the_lag_time_to_the_millisecond(age: int, expected: set[int] | None) -> None:
    """T19: a member silent for 30000 ms is still in, at 30001 ms it is out."""
    cluster = leading(replicas=(1, 2, 3), isr=(1, 2, 3))
    cluster.fetch(10, by=2)
    proposal = cluster.leader().maybe_shrink(age)

    assert (proposal and {m.node_id for m in proposal.new_isr}) == expected


def test_a_lost_answer_is_asked_again() -> None:
    """T20: without an answer the shrink is sent again as a new attempt, and nothing changes until one is answered."""
    cluster = leading()
    cluster.advance(45_001, tick_ms=1000)
    first = cluster.attempts()[-1]
    cluster.lose_attempt()
    cluster.advance(100)
    between = cluster.log(1).hw, cluster.leader().isr.partition_epoch, len(cluster.attempts())
    cluster.decide(1)

    assert between == (0, 1, 2)
    assert cluster.attempts()[-1].request_sequence > first.request_sequence
    assert cluster.attempts()[-1].partitions == first.partitions
    assert (cluster.log(1).hw, cluster.leader().isr.partition_epoch) == (10, 2)


def test_a_refused_shrink_stays_pending() -> None:
    """T20: INVALID_UPDATE_VERSION means this leader is behind: it does not retry and does not move the HW."""
    cluster = leading()
    cluster.advance(45_001, tick_ms=1000)
    cluster.decide(code=ErrorCode.INVALID_UPDATE_VERSION)
    cluster.advance(60_000, tick_ms=1000)

    assert len(cluster.attempts()) == 1
    assert isr(cluster) == ({1, 2}, {1, 2})
    assert cluster.log(1).hw == 0


FAST = NodeTimings(replica_lag_time_max_ms=100, replica_fetch_wait_max_ms=50)


def test_a_slow_follower_leaves_and_returns() -> None:
    """T23: behind at every fetch for longer than the lag time is out, although it moves; at the log end it is in."""
    cluster = leading(timings=FAST)
    cluster.fetch(8, by=2)
    cluster.advance(75, tick_ms=10)
    cluster.step(1, events.FetchServed(cluster.now, NodeId(2), ((TP, 10, 0),)))
    cluster.fetch(9, by=2)
    cluster.advance(75, tick_ms=10)
    cluster.decide(1)
    cluster.step(1, events.FetchServed(cluster.now, NodeId(2), ((TP, 10, 0),)))
    cluster.fetch(10, by=2)

    assert proposed(cluster) == [{1}, {1, 2}]


def test_a_caught_up_follower_may_be_silent() -> None:
    """T23: at the log end silence is not lag."""
    cluster = leading(timings=FAST)
    cluster.fetch(10, by=2)
    cluster.advance(150, tick_ms=10)

    assert cluster.attempts() == []


def test_a_follower_that_never_fetched_leaves() -> None:
    """T23: a member that has not fetched in this epoch is out after the lag time."""
    cluster = leading(timings=FAST)
    cluster.advance(150, tick_ms=10)

    assert proposed(cluster) == [{1}]


def test_under_min_isr_the_high_watermark_stands() -> None:
    """T24: a pending member does not lift the ISR over its minimum; only the controller's answer does."""
    cluster = leading(replicas=(1, 2, 3), isr=(1, 2), min_isr=3)
    cluster.produce(*[batch() for _ in range(10)], acks=Acks.LEADER)
    cluster.fetch(10, by=2)
    one = cluster.log(1).hw
    cluster.fetch(10, by=3)
    pending = isr(cluster)[1], cluster.log(1).hw
    cluster.decide(1, 2, 3)

    assert one == 0
    assert pending == ({1, 2, 3}, 0)
    assert cluster.log(1).hw == 10


def test_a_proposed_member_holds_the_high_watermark() -> None:
    """TR9: from the moment a member is proposed the HW is the minimum over it too, accepted or not."""
    cluster = leading(0, rules=Rules(isr_join=IsrJoin.HW), replicas=(1, 2, 3), isr=(1, 2))
    cluster.fetch(0, by=2)
    cluster.fetch(0, by=3)
    request = cluster.produce(*[batch() for _ in range(10)])
    cluster.fetch(0, by=2)
    cluster.fetch(10, by=2)
    held = cluster.log(1).hw, request in cluster.produced
    cluster.decide(1, 2, 3)
    accepted = cluster.log(1).hw
    cluster.fetch(0, by=3)
    cluster.fetch(10, by=3)

    assert proposed(cluster) == [{1, 2, 3}]
    assert held == (0, False)
    assert accepted == 0
    assert cluster.log(1).hw == 10 and request in cluster.produced


def test_a_removed_member_holds_the_high_watermark_until_the_answer() -> None:
    """TR9, mirrored: a member proposed for removal is counted until the controller has agreed."""
    cluster = leading()
    cluster.advance(45_001, tick_ms=1000)
    pending = proposed(cluster), cluster.log(1).hw
    cluster.decide(1)

    assert pending == ([{1}], 0)
    assert cluster.log(1).hw == 10


def test_a_catching_up_follower_is_waited_for() -> None:
    """M16: a replica outside the ISR that is caught up and eligible counts as well, or it could never catch up."""
    cluster = leading(0, isr=(1,), replicas=(1, 2, 3))
    cluster.push(1, nodes=[node_image(3)])
    cluster.fetch(0, by=2)
    # A change is pending; 3 cannot be proposed, but it is at the log end.
    cluster.fetch(0, by=3)
    cluster.produce(batch())
    cluster.decide(1, 2)
    cluster.fetch(0, by=2)
    cluster.fetch(1, by=2)
    cluster.fetch(0, by=3)
    waits = cluster.log(1).hw
    cluster.fetch(1, by=3)

    assert waits == 0
    assert cluster.log(1).hw == 1


def test_an_unheard_member_pins_the_high_watermark() -> None:
    """M5: in a new epoch a member counts as unknown until it has fetched."""
    cluster = leading(0, replicas=(1, 2, 3), isr=(1, 2, 3))
    cluster.produce(batch(5))
    cluster.fetch(5, by=2)
    pinned = cluster.log(1).hw
    cluster.fetch(5, by=3)

    assert (pinned, cluster.log(1).hw) == (0, 5)


def test_a_new_epoch_knows_no_remote_leo() -> None:
    """TR8: a fetch of an older epoch is not counted in a newer one."""
    cluster = leading(4)
    cluster.fetch(4, by=2)
    cluster.push(1, partition_image(epoch=7, version=2))
    cluster.produce(batch())

    assert cluster.remote(2) is None
    assert cluster.ends(1) == (5, 4)


def test_observers_are_served_and_not_counted() -> None:
    """M60: an observer fetches like a replica, but neither holds the HW nor joins the ISR."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(isr=(1, 2), observers=(9,)), nodes=[node_image(2), node_image(9, observer=True)])
    cluster.produce(batch(3))
    fetched = cluster.result(cluster.fetch(0, by=9))
    cluster.fetch(3, by=2)
    hw = cluster.log(1).hw
    cluster.fetch(3, by=9)
    cluster.advance(1000)
    view = cluster.cores[1].describe_partition(TP, cluster.now)
    found = [(r.node_id, r.remote_leo, r.in_isr, r.is_observer) for r in view.replicas]

    assert fetched.read.end == 3
    assert hw == 3
    assert cluster.attempts() == []
    assert view is not None
    assert found == [(1, 3, True, False), (2, 3, True, False), (9, 3, False, True)]


def test_a_lowered_min_isr_counts_from_its_partition_epoch() -> None:
    """TR19, M57: the leader keeps its old minimum until the partition epoch that lowers it arrives."""
    cluster = Cluster(1)
    cluster.preload(1, history((4, 100, 0)), hw=100)
    cluster.push(1, partition_image(epoch=5, replicas=(1, 2, 3), isr=(1,), elr=(2,), min_isr=2))
    cluster.produce(batch(50), acks=Acks.LEADER)
    frozen = cluster.log(1).hw
    # The same partition epoch cannot carry another minimum; an older one is ignored.
    cluster.push(1, partition_image(epoch=5, version=0, replicas=(1, 2, 3), isr=(1,), min_isr=1))
    ignored = cluster.log(1).hw
    cluster.push(1, partition_image(epoch=5, version=2, replicas=(1, 2, 3), isr=(1,), min_isr=1))

    assert (frozen, ignored) == (100, 100)
    assert cluster.log(1).hw == 150


def test_a_newer_partition_epoch_keeps_what_was_heard() -> None:
    """T26: same leader epoch, newer partition epoch: follower state, epoch start and cache stay."""
    cluster = leading(6)
    cluster.fetch(4, by=2)
    leader, cache = cluster.leader(), cluster.log(1).epochs.entries
    progress = leader.progress[2]
    cluster.now = 5000
    cluster.push(1, partition_image(epoch=5, version=2, replicas=(1, 2, 3)))

    assert cluster.leader() is leader
    assert leader.progress[2] is progress and progress.remote_leo == 4
    assert set(leader.progress) == {2, 3}
    assert leader.epoch_start_offset == 0
    assert cluster.log(1).epochs.entries == cache
    assert leader.isr.partition_epoch == 2


def test_metadata_older_than_the_controllers_answer_is_ignored() -> None:
    """T26: an AlterPartition answer may arrive before the metadata; the late metadata does not undo it."""
    cluster = leading(isr=(1,))
    cluster.fetch(10, by=2)
    cluster.decide(1, 2, version=3)
    cluster.push(1, partition_image(epoch=5, version=2, isr=(1,)))

    assert isr(cluster) == ({1, 2}, {1, 2})
    assert cluster.leader().isr.partition_epoch == 3


@pytest.mark.parametrize(
    ("span", "checkpoint", "leader", "ends"),
    [((0, 6, 0), 4, 1, (6, 4)), ((0, 6, 0), 4, 2, (6, 4)), ((0, 3, 5), 99, 1, (8, 8)), ((0, 3, 5), 0, 1, (8, 5))],
    ids=["leader", "follower", "beyond the log end", "below the log start"],
)
def test_the_high_watermark_begins_at_its_checkpoint(
    span: tuple[int, int, int], checkpoint: int, leader: int, ends: tuple[int, int]
) -> None:
    """T26, M36: of a new leader as of a follower; a checkpoint outside the log is clamped to the log."""
    cluster = Cluster(1)
    cluster.preload(1, history(span), hw=checkpoint)
    cluster.push(1, partition_image(epoch=1, leader=leader))

    assert cluster.ends(1) == ends


def test_a_pause_of_the_leader_is_no_followers_fault() -> None:
    """M59: a minute in which the leader itself did not run evicts no member; half a minute of running does."""
    cluster = leading()
    cluster.fetch(9, by=2)
    cluster.advance(20_000, tick_ms=1000)
    cluster.advance(60_000, tick_ms=60_000)
    cluster.advance(5_000, tick_ms=1000)
    paused = len(cluster.attempts())
    cluster.advance(30_000, tick_ms=1000)

    assert paused == 0
    assert proposed(cluster) == [{1}]


def test_complete_isrs_are_not_searched_for_who_may_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose partitions lack no member looks at none of them, until metadata or a decision changes an ISR."""
    cluster = leading(isr=(1, 2))
    cluster.advance(400)
    searched: list[int] = []
    expand = NodeCore._expand_isrs

    def noted(core: NodeCore, now_ms: int, out: list[Effect]) -> None:
        searched.append(now_ms)
        expand(core, now_ms, out)

    monkeypatch.setattr(NodeCore, "_expand_isrs", noted)
    for _ in range(5):
        cluster.advance(200)
    while_complete = len(searched)
    cluster.push(1, partition_image(epoch=5, isr=(1,), version=7))
    for _ in range(5):
        cluster.advance(200)

    assert while_complete == 0
    assert len(searched) == 5
