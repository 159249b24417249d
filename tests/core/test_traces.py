"""Traces of PROTOCOL.md#traces played on several cores: the shortest ways in which older rules lost records."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch, fetch_part, history, partition_image

from strandline.core.errors import ErrorCode, Outcome
from strandline.core.types import IsrJoin, Rules, Truncation

A, B, C = 1, 2, 3
BOTH = [Rules(), Rules(truncation=Truncation.FETCH)]
JOIN_AT_HW = Rules(isr_join=IsrJoin.HW)


def three(*, rules: Rules | None = None) -> Cluster:
    """Replicas A, B and C, before any metadata."""
    return Cluster(A, B, C, rules=rules)


def image(leader: int, epoch: int, *, isr: tuple[int, ...] = (A, B, C), **more: Any) -> Any:
    """A leads by default for A, B and C; the partition epoch follows the leader epoch."""
    return partition_image(
        **{"leader": leader, "epoch": epoch, "version": 10 * epoch + 1, "isr": isr, "replicas": (A, B, C)} | more
    )


def records(cluster: Cluster, node: int) -> list[tuple[int, object]]:
    """(epoch, payload) of every record of a log."""
    return [r[1:] for r in cluster.disks[node][TP].records()]


@pytest.mark.parametrize("rules", BOTH, ids=["asked", "fetch"])
def test_a_fork_after_a_fast_double_failover(rules: Rules) -> None:
    """TR3: a leader that answers with an epoch the follower lacks makes it truncate to the last common point."""
    cluster = Cluster(A, B, rules=rules)
    cluster.push(A, partition_image(leader=A, epoch=0, version=1))
    cluster.push(B, partition_image(leader=B, epoch=1, version=2))
    cluster.produce(node=A, payload="m0")
    cluster.push(A, partition_image(leader=A, epoch=2, version=3))
    cluster.produce(node=A, payload="m1")
    cluster.produce(node=B, payload="m2")
    forked = records(cluster, A), records(cluster, B)
    cluster.push(B, partition_image(leader=A, epoch=2, version=3))
    cluster.settle()

    assert forked == ([(0, "m0"), (2, "m1")], [(1, "m2")])
    assert cluster.cuts(B) == [0]
    assert records(cluster, A) == records(cluster, B) == forked[0]


@pytest.mark.parametrize("rules", BOTH, ids=["asked", "fetch"])
def test_a_follower_of_an_older_epoch_is_not_counted(rules: Rules) -> None:
    """TR4, TR5: C follows A in epoch 0 while A leads epoch 2; offsets and epochs match, but nothing is committed."""
    cluster = three(rules=rules)
    cluster.push(A, image(A, 2, isr=(A, C)))
    request = cluster.produce(node=A, payload="m0")
    cluster.push(C, image(A, 0))
    cluster.settle()
    cluster.advance(2000, settle=True)
    held = cluster.remote(C, A), cluster.log(A).hw, cluster.outcome(request), cluster.log(C).leo
    cluster.push(C, image(A, 2, isr=(A, C)))
    cluster.settle()

    assert held == (None, 0, None, 0)
    assert cluster.remote(C, A) == 1
    assert cluster.log(A).hw == 1
    assert cluster.outcome(request) is not None


def test_the_current_leader_epoch_fences_what_the_last_one_cannot() -> None:
    """TR5: a fetch with the right position and last epoch is still rejected by the leader epoch it names."""
    cluster = Cluster(A)
    cluster.push(A, image(A, 2, isr=(A, C)))
    cluster.produce(node=A)
    result = cluster.result(cluster.fetch(1, by=C, part=fetch_part(1, epoch=0, lfe=2)))

    assert result is not None and result.refusal is not None
    assert result.refusal.code is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.remote(C, A) is None


def test_the_isr_does_not_grow_before_the_true_high_watermark_is_known() -> None:
    """TR4b, TR6: a new leader whose HW lags rejects a follower below its epoch's start, and returns no log end."""
    cluster = three(rules=JOIN_AT_HW)
    cluster.push(A, image(A, 1, isr=(A, C)))
    cluster.push(C, image(A, 1, isr=(A, C)))
    request = cluster.produce(node=A, payload="m0")
    while cluster.outcome(request) is None:
        for link in [k for k, q in cluster.links.items() if q]:
            cluster.deliver(*link)
    # The answer that carries HW 1 is lost.
    cluster.links.clear()
    cluster.push(C, image(C, 2, isr=(A, C)))
    new_leader = cluster.ends(C), cluster.leader(C).epoch_start_offset, cluster.leader(C).knows_true_hw
    cluster.push(B, image(C, 2, isr=(A, C)))
    cluster.deliver(B, C)
    proposed_at_zero = list(cluster.alters)
    cluster.settle()

    assert cluster.log(A).hw == 1
    assert new_leader == ((1, 0), 1, False)
    assert proposed_at_zero == []
    assert [m.node_id for m in cluster.alters[-1][2].partitions[0].new_isr] == [A, C, B]
    assert records(cluster, B) == [(1, "m0")]


def test_a_question_of_a_newer_epoch_waits() -> None:
    """TR7: a leader that is still in an older epoch cannot return where to truncate; the follower waits, unchanged."""
    cluster = Cluster(A, C)
    cluster.preload(A, history((0, 1, 0)))
    cluster.preload(C, history((0, 1, 0)))
    cluster.push(A, image(A, 0))
    cluster.push(C, image(A, 2))
    cluster.settle()
    cluster.advance(1000, settle=True)
    waiting = str(cluster.follower(C).state), cluster.remote(C, A)
    cluster.push(A, image(B, 1))
    cluster.log(A).truncate(0, [])
    cluster.disks[A][TP].cut(0)
    cluster.push(A, image(A, 2, isr=(A, C)))
    cluster.produce(node=A, payload="m1")
    cluster.advance(2000, settle=True)

    assert waiting == ("truncating", None)
    assert cluster.cuts(C) == [0]
    assert records(cluster, C) == records(cluster, A) == [(2, "m1")]


def test_a_longer_log_of_an_older_epoch_is_not_counted() -> None:
    """TR12: the HW does not pass a record that is confirmed only by the length of a different log."""
    cluster = Cluster(A, B)
    cluster.preload(A, history((4, 10, 0)), hw=8)
    cluster.preload(B, history((4, 14, 0)), hw=8)
    cluster.push(A, partition_image(leader=A, epoch=5, version=2))
    request = cluster.produce(*[batch() for _ in range(4)], node=A, payload="new")
    result = cluster.result(cluster.fetch(14, by=B, node=A, lfe=4))
    held = cluster.ends(A), cluster.outcome(request)
    cluster.push(B, partition_image(leader=A, epoch=5, version=2))
    cluster.settle()

    assert result is not None and result.diverging is not None
    assert tuple(result.diverging) == (4, 10)
    assert held == ((14, 8), None)
    assert cluster.cuts(B) == [10]
    assert cluster.log(A).hw == 14
    assert records(cluster, A) == records(cluster, B)


def test_no_reader_of_a_follower_sees_what_will_be_cut() -> None:
    """TR13: while a follower's log diverges its HW does not rise over the part that will be truncated."""
    cluster = Cluster(A, B, rules=Rules(truncation=Truncation.FETCH))
    cluster.preload(A, history((4, 10, 0), (5, 2, 10)), hw=12)
    cluster.preload(B, history((4, 14, 0)), hw=8)
    cluster.push(A, partition_image(leader=A, epoch=6, version=2, isr=(A,)))
    cluster.push(B, partition_image(leader=A, epoch=6, version=2, isr=(A,)))
    seen = []
    for _ in range(20):
        for link in [k for k, q in cluster.links.items() if q]:
            cluster.deliver(*link)
            shown = cluster.result(cluster.fetch(8, by=None, node=B, at_follower=True))
            assert shown is not None
            end = shown.read.end if shown.read else 8
            seen.append([r[1:2] for r in cluster.disks[B][TP].records(8, end)])
    cluster.settle()

    assert all(found[2:] in ([], [(5,)], [(5,), (5,)]) for found in seen)
    assert records(cluster, A) == records(cluster, B)


def test_a_duplicate_of_a_record_that_is_cut_is_never_acknowledged_twice() -> None:
    """TR20: a duplicate waits like its first append; after a leader change the batch is appended once more."""
    cluster = three()
    cluster.push_all(image(A, 0))
    for sequence in range(5):
        cluster.produce(batch(producer=7, sequence=sequence), node=A, payload=sequence)
    cluster.settle()
    cluster.advance(1000, settle=True)
    first = cluster.produce(batch(producer=7, sequence=5), node=A, payload=5)
    again = cluster.produce(batch(producer=7, sequence=5), node=A, payload=5)
    waiting = cluster.outcome(first), cluster.outcome(again)
    for link in [k for k in cluster.links if A in k]:
        cluster.links[link].clear()
    for node in (B, C):
        cluster.push(node, image(B, 1, isr=(B, C)))
    elsewhere = cluster.produce(batch(producer=7, sequence=5), node=B, payload=5)
    cluster.settle()
    cluster.push(A, image(B, 1, isr=(B, C)))
    reported = cluster.outcome(first), cluster.outcome(again)
    cluster.advance(2000, settle=True)
    answered = cluster.outcome(elsewhere)

    assert waiting == (None, None)
    assert [r.outcome for r in reported if r] == [Outcome.MAY_APPEAR] * 2
    assert answered is not None and answered.refusal is None and answered.base_offset == 5
    assert cluster.cuts(A) == [5]
    assert [p for _, p in records(cluster, A)] == [0, 1, 2, 3, 4, 5]


def test_a_single_replica_that_lost_its_tail_writes_it_in_a_new_epoch() -> None:
    """TR21 with one replica: a record lost by power loss is written again in another epoch, never in the same."""
    cluster = Cluster(A, hold_flushes=True)
    cluster.preload(A, history((4, 10, 0)), hw=10)
    cluster.push(A, partition_image(epoch=5, isr=(A,), replicas=(A,)))
    request = cluster.produce(batch(), batch(), batch(), payload="lost")
    before = cluster.ends(A), request in cluster.produced
    cluster.restart(A)
    cluster.push(A, partition_image(epoch=6, version=2, isr=(A,), replicas=(A,)))
    cluster.produce(batch(), payload="new")
    cluster.flush(A)

    assert before == ((13, 10), False)
    assert records(cluster, A)[10:] == [(6, "new")]
    assert cluster.ends(A) == (11, 11)


def test_a_leader_cut_off_commits_nothing_alone() -> None:
    """I3, I4: a zombie that keeps appending acknowledges nothing, and its lone records are truncated on its return."""
    cluster = three()
    cluster.push_all(image(A, 0, min_isr=2))
    cluster.produce(node=A, payload="both")
    cluster.settle()
    cluster.advance(1000, settle=True)
    for node in (B, C):
        cluster.push(node, image(B, 1, isr=(B, C), min_isr=2))
    for link in [k for k in cluster.links if A in k]:
        cluster.links[link].clear()
    alone = [cluster.produce(node=A, payload="zombie", timeout=500) for _ in range(3)]
    real = cluster.produce(node=B, payload="real")
    cluster.advance(1000, settle=True)
    refused = [cluster.outcome(r) for r in alone]
    cluster.push(A, image(B, 1, isr=(B, C), min_isr=2))
    cluster.advance(2000, settle=True)
    acknowledged = cluster.outcome(real)

    assert [r.outcome for r in refused if r] == [Outcome.MAY_APPEAR] * 3
    assert acknowledged is not None and acknowledged.refusal is None
    assert cluster.cuts(A) == [1]
    assert [records(cluster, n) for n in (A, B, C)] == [[(0, "both"), (1, "real")]] * 3
