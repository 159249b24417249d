"""How the high watermark moves and reaches followers, round by round, and how its advances are reported."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import batch, partition_image
from hypothesis import given, strategies as st

from strandline.core.log.high_watermark import candidate
from strandline.core.types import FetchHw, NodeId, Offset, Rules
from strandline.observe.samples import BUCKET_MS, EXACT_PER_S, Advance, HwAdvances

SNAPSHOT, UPDATED = FetchHw.SNAPSHOT, FetchHw.UPDATED
WAIT_MS = 500


@pytest.mark.parametrize("fetch_hw", [SNAPSHOT, UPDATED])
@pytest.mark.parametrize("streams", [False, True], ids=["unary", "stream"])
def test_three_replicas_at_rest(fetch_hw: FetchHw, streams: bool) -> None:
    """L6: when traffic stops, HW reaches LEO on every replica, regardless of which HW the answers carry."""
    cluster = Cluster(1, 2, 3, rules=Rules(fetch_hw=fetch_hw), streams=streams)
    cluster.push_all(partition_image(replicas=(1, 2, 3), isr=(1, 2, 3)))
    request = cluster.produce(batch(), batch(), batch())
    cluster.settle()
    cluster.advance(2 * WAIT_MS, settle=True)

    assert [cluster.ends(n) for n in (1, 2, 3)] == [(3, 3)] * 3
    assert request in cluster.produced


def test_followers_overlap_the_leaders_commit() -> None:
    """M54, M55: under fsync the follower may be durable before the leader; the HW waits for both commits."""
    cluster = Cluster(1, 2, hold_flushes=True)
    cluster.push_all(partition_image())
    cluster.produce()
    cluster.deliver(2, 1)
    cluster.deliver(1, 2)
    before_its_commit = cluster.waiting(2, 1)
    cluster.flush(2)
    cluster.deliver(2, 1)
    follower_only = cluster.remote(2), cluster.log(1).hw
    cluster.flush(1)

    assert before_its_commit == 0
    assert follower_only == (1, 0)
    assert cluster.log(1).hw == 1


# How far the high watermark may move, as a function (M6, M16-M19).


@pytest.mark.parametrize(
    ("vote", "remotes", "isr", "min_isr", "expected"),
    [
        (5, [], 1, 1, 5),
        (5, [3, 4], 3, 2, 3),
        (2, [3, 4], 3, 2, 2),
        (5, [None, 4], 3, 1, None),
        (5, [4], 1, 2, None),
        (5, [4], 2, 2, 4),
    ],
)
def test_shortest_stave(vote: int, remotes: list[int | None], isr: int, min_isr: int, expected: int | None) -> None:
    """M6, M11, M18: the minimum over all counted replicas; none while one is unknown or the ISR is too small."""
    leos = [None if leo is None else Offset(leo) for leo in remotes]

    assert candidate(Offset(vote), leos, committed_isr_size=isr, min_isr=min_isr) == expected


# Advances of a HW are reported exactly up to ten a second; above that each boundary is exact to 100 ms.


def _play(gaps_ms: list[int]) -> tuple[list[Advance], list[int]]:
    """The events when the HW rises by one after each gap, with ticks every 50 ms between; and the true times."""
    advances, now_ms, times = HwAdvances(), 0, []
    reported: list[Advance | None] = []
    for number, gap_ms in enumerate(gaps_ms):
        if number % 2:  # the clock may tick late
            reported += [advances.due(at_ms) for at_ms in range(now_ms, now_ms + gap_ms, 50)]
        now_ms += gap_ms
        times.append(now_ms)
        reported += advances.rose(Offset(number), Offset(number + 1), "fetch", (NodeId(2),), now_ms)
    reported.append(advances.rest())
    return [one for one in reported if one is not None], times


def test_a_slow_hw_is_reported_exactly() -> None:
    """Ten advances in a second are ten events, each with its own time."""
    reported, times = _play([100] * EXACT_PER_S)

    assert [(one.first_ms, one.last_ms, one.n_coalesced) for one in reported] == [(t, t, 1) for t in times]


def test_a_fast_hw_is_reported_in_buckets() -> None:
    """A thousand advances in a second become ten exact events and as many buckets as fit."""
    reported, _ = _play([1] * 1_000)

    assert len(reported) <= EXACT_PER_S + 1_000 // BUCKET_MS + 1
    assert sum(one.n_coalesced for one in reported) == 1_000


@given(st.lists(st.integers(0, 400), max_size=200))
def test_nothing_is_lost_or_blurred(gaps_ms: list[int]) -> None:
    """The chain of HWs has no hole, the count is right, and a bucket is never longer than 100 ms."""
    reported, times = _play(gaps_ms)
    chain = [(one.old_hw, one.new_hw) for one in reported]
    assert [old for old, _ in chain] == [0, *(new for _, new in chain)][: len(chain)]
    assert (chain[-1][1] if chain else 0) == len(times)
    assert sum(one.n_coalesced for one in reported) == len(times)
    for one in reported:
        assert times[one.old_hw] == one.first_ms
        assert one.last_ms == times[one.new_hw - 1]
        assert one.last_ms - one.first_ms <= BUCKET_MS


def test_a_bucket_names_everybody_who_held_back() -> None:
    """A bucket of joined advances has the blockers of all of them."""
    advances = HwAdvances()
    for number in range(EXACT_PER_S + 3):
        advances.rose(Offset(number), Offset(number + 1), "fetch", (NodeId(2 + number % 2),), number)
    rest = advances.rest()
    assert rest.blocking_replicas == (2, 3)
