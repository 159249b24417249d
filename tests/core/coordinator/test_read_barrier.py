"""Read barriers: a read is answered only by who still led when it came (G10)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, F, L, partition_image
from shard_cells import Get, code, coordinators, put

from strandline.core.coordinator.waiting import ReadBarrier
from strandline.core.errors import Outcome, Refusal
from strandline.core.log.events import FetchArrived
from strandline.core.log.saving_order import NodeTimings

BOTH = partition_image(replicas=(1, 2), isr=(1, 2), min_isr=2)


def _cluster(*, streams: bool = True) -> Cluster:
    cluster = Cluster(
        1, 2, coordinators=coordinators(), streams=streams, timings=NodeTimings(replica_fetch_wait_max_ms=10_000)
    )
    cluster.push_all(BOTH)
    cluster.settle()
    cluster.advance(100, settle=True)
    return cluster


def test_a_read_with_a_barrier_waits_for_one_round_trip() -> None:
    """The parked fetch of the follower is answered at once with the barrier, and its next fetch repeats it."""
    cluster = _cluster()
    read = cluster.ask_coordinator(Get("g", fenced=True))

    assert read not in cluster.answered
    assert cluster.waiting(L, F) == 1
    cluster.deliver(L, F)
    assert cluster.waiting(F, L) == 1
    cluster.deliver(F, L)
    assert cluster.answered[read] == {}


def test_a_barrier_that_was_repeated_wakes_nobody_again() -> None:
    """After the round trip the follower's fetch is parked as before."""
    cluster = _cluster()
    cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()

    assert (cluster.waiting(L, F), cluster.waiting(F, L)) == (0, 0)
    assert cluster.cores[L].parked[1] == 1


def test_requests_that_share_a_barrier_look_at_no_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """What followers have repeated is looked at when a barrier begins and when one of them fetches, not again for each
    of 50 requests that come in between."""
    cluster = _cluster()
    cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()
    looks: list[int] = []
    look = ReadBarrier.look
    monkeypatch.setattr(ReadBarrier, "look", lambda barrier: looks.append(barrier.passed) or look(barrier))
    later = [cluster.ask_coordinator(Get("g", fenced=True)) for _ in range(50)]

    assert looks == []
    cluster.advance(100, settle=True)
    assert set(later) <= set(cluster.answered)
    assert len(looks) <= 3


def test_requests_share_the_barrier_that_begins_next() -> None:
    """Within 100 ms of a barrier's beginning the next ones wait for one together, which begins at a tick."""
    cluster = _cluster()
    first = cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()
    later = [cluster.ask_coordinator(Get("g", fenced=True)) for _ in range(3)]
    cluster.settle()
    assert first in cluster.answered
    assert not set(later) & set(cluster.answered)
    before = cluster.leader().barrier
    cluster.advance(100, settle=True)

    assert set(later) <= set(cluster.answered)
    assert cluster.leader().barrier == before + 1


def test_who_leads_alone_needs_nobody() -> None:
    """With one replica a barrier passes as it begins."""
    cluster = Cluster(1, coordinators=coordinators())
    cluster.push_all(partition_image(replicas=(1,), isr=(1,)))
    cluster.advance(100, settle=True)

    assert cluster.answered[cluster.ask_coordinator(Get("g", fenced=True))] == {}


def test_answers_of_a_scope_leave_in_order_behind_a_barrier() -> None:
    """A write that is committed waits for the read before it, whose barrier has not passed."""
    cluster = _cluster()
    cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()
    read = cluster.ask_coordinator(Get("g", fenced=True))
    wrote = cluster.ask_coordinator(put(a=1))
    cluster.settle()
    assert not {read, wrote} & set(cluster.answered)
    cluster.advance(100, settle=True)

    assert list(cluster.answered)[-2:] == [read, wrote]


def test_a_barrier_that_does_not_pass_in_time_is_no_answer() -> None:
    """COORDINATOR_NOT_AVAILABLE when the request's time is over."""
    cluster = _cluster()
    read = cluster.ask_coordinator(Get("g", fenced=True), timeout=300)
    cluster.advance(400)

    answer = cluster.answered[read]
    assert isinstance(answer, Refusal)
    assert (code(answer), answer.outcome) == ("COORDINATOR_NOT_AVAILABLE", Outcome.NOT_APPENDED)


def test_below_min_isr_whoever_waits_for_a_barrier_hears_so_at_once() -> None:
    """A shrunken ISR ends the wait, and later requests are refused as they come."""
    cluster = _cluster()
    waits = cluster.ask_coordinator(Get("g", fenced=True))
    cluster.push(L, partition_image(replicas=(1, 2), isr=(1,), elr=(2,), min_isr=2, version=2))
    late = cluster.ask_coordinator(Get("g", fenced=True))

    assert [code(cluster.answered[r]) for r in (waits, late)] == ["COORDINATOR_NOT_AVAILABLE"] * 2


def test_a_member_that_leaves_the_isr_is_waited_for_no_longer() -> None:
    """With enough members left, who was removed cannot be elected and need not repeat the barrier."""
    cluster = Cluster(1, 2, 3, coordinators=coordinators(), streams=True)
    three = {"replicas": (1, 2, 3), "min_isr": 2}
    cluster.push_all(partition_image(isr=(1, 2, 3), **three))  # type: ignore[arg-type]
    cluster.settle()
    cluster.advance(100, settle=True)
    read = cluster.ask_coordinator(Get("g", fenced=True))
    cluster.deliver(L, F)
    cluster.deliver(F, L)
    assert read not in cluster.answered
    cluster.push(L, partition_image(isr=(1, 2), version=2, **three))  # type: ignore[arg-type]

    assert cluster.answered[read] == {}


def test_tr40_a_fetch_from_before_the_election_proves_nothing() -> None:
    """B's fetch is slow, B is elected and takes a write, a read comes to A, then B's old fetch: A does not answer."""
    cluster = _cluster()
    # The write that A and B share, and B's next fetch, which is slow.
    cluster.ask_coordinator(put(a=1))
    cluster.deliver(L, F)
    slow = cluster.links[F, L].popleft()
    # B is elected; node 1 does not know it. C, the third replica, is not needed: B's min ISR is 1.
    cluster.push(F, partition_image(leader=2, epoch=1, version=2, isr=(2,), min_isr=1))
    cluster.advance(100)
    taken = cluster.ask_coordinator(put(a=2), node=F)
    assert cluster.answered[taken] == "put"
    read = cluster.ask_coordinator(Get("g", fenced=True))
    event = slow.arrive()
    assert isinstance(event, FetchArrived)
    cluster.step(L, event)

    assert cluster.log(L).hw == cluster.log(L).leo
    assert read not in cluster.answered, "I30: the read missed a write that had been answered"
    cluster.advance(6_000)
    assert code(cluster.answered[read]) == "COORDINATOR_NOT_AVAILABLE"


def test_an_ordinary_partition_carries_no_barrier() -> None:
    """Neither its fetch answers nor its followers' fetches mention one."""
    cluster = Cluster(1, 2)
    cluster.push_all(BOTH)
    cluster.settle()
    cluster.produce()
    cluster.settle()

    assert cluster.leader().barrier is None
    assert cluster.follower(F).barrier_seen is None
    assert cluster.leader(tp=TP).progress[F].barrier_seen == 0
