"""AlterPartition as a channel: attempts, retries, whole-request errors, and frozen fields (TR10, TR16)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, batch, node_epoch, node_image, partition_image

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import Halt, RefreshMetadata
from strandline.core.messages import AlterPartitionAnswer
from strandline.core.types import IsrJoin, NodeId, Rules, TopicPartition


def leading(*tps: TopicPartition, **image: object) -> Cluster:
    """Node 1 leads some partitions alone; node 2 is a replica of each."""
    cluster = Cluster(1)
    cluster.push(1, *(partition_image(tp, isr=(1,), **image) for tp in tps or (TP,)))  # type: ignore[arg-type]
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    """Node 1 leads alone, and its proposal to take node 2 in, which has fetched, is under way."""
    cluster = leading()
    cluster.fetch(0, by=2)
    return cluster


def test_a_request_names_who_asks_and_whom() -> None:
    """Cluster, controller epoch, node epoch and a sequence are in every attempt."""
    cluster = leading(epoch=3, version=8)
    cluster.fetch(0, by=2)
    (request,) = cluster.attempts()
    (proposal,) = request.partitions

    assert (request.cluster_id, request.controller_epoch) == ("cluster-of-cores", 1)
    assert (request.node_id, request.node_epoch, request.request_sequence) == (1, node_epoch(1), 1)
    assert (proposal.leader_epoch, proposal.partition_epoch, proposal.recovering) == (3, 8, False)
    assert [(m.node_id, m.node_epoch) for m in proposal.new_isr] == [(1, node_epoch(1)), (2, node_epoch(2))]


def test_one_request_in_flight() -> None:
    """M45: a change proposed while a request is in flight goes with the next one."""
    cluster = leading(TP, TP1)
    cluster.fetch(0, by=2)
    cluster.fetch(0, by=2, tp=TP1)
    before = [[p.tp for p in r.partitions] for r in cluster.attempts()]
    cluster.decide(1, 2, attempt=0)
    after = [[p.tp for p in r.partitions] for r in cluster.attempts()]

    assert before == [[TP]]
    assert after == [[TP], [TP1]]


def test_every_attempt_has_a_higher_sequence(cluster: Cluster) -> None:
    """TR16: a retry is another attempt with the same content."""
    for _ in range(3):
        cluster.lose_attempt()
        cluster.advance(100)

    assert [r.request_sequence for r in cluster.attempts()] == [1, 2, 3, 4]
    assert len({r.partitions for r in cluster.attempts()}) == 1


def test_retries_wait_their_fifty_milliseconds(cluster: Cluster) -> None:
    """M45: an unanswered attempt is followed by the next one after 50 ms, for ever."""
    cluster.lose_attempt()
    cluster.advance(49, tick_ms=1)
    early = len(cluster.attempts())
    cluster.advance(1, tick_ms=1)

    assert (early, len(cluster.attempts())) == (1, 2)


def test_only_the_answer_to_the_latest_attempt_counts(cluster: Cluster) -> None:
    """TR16: "not applied" for an older attempt does not free the leader, because a newer copy may still be applied."""
    cluster.lose_attempt()
    cluster.advance(100)
    cluster.decide(attempt=0, code=ErrorCode.INELIGIBLE_REPLICA)
    still = set(cluster.leader().isr.maximal)
    cluster.produce(batch())
    held = cluster.log(1).hw
    cluster.decide(1, 2, attempt=1)

    assert still == {1, 2}
    assert held == 0
    assert cluster.leader().isr.committed == (1, 2)


def test_a_late_failure_of_an_older_attempt_counts_nothing(cluster: Cluster) -> None:
    """TR16: a failure that is reported for an attempt that is no longer the latest does not start another one."""
    cluster.lose_attempt()
    cluster.advance(100)
    cluster.lose_attempt(0)
    cluster.advance(100)

    assert len(cluster.attempts()) == 2


def test_the_incarnation_is_frozen_with_the_fetch(cluster: Cluster) -> None:
    """TR10: a re-sent proposal names the incarnation that was caught up, not the one that is running now."""
    cluster.push(1, nodes=[node_image(2, life=2)])
    cluster.lose_attempt()
    cluster.advance(100)

    assert [m[NodeId(2)] for m in [dict(r.partitions[0].new_isr) for r in cluster.attempts()]] == [node_epoch(2)] * 2


def test_another_controller_means_new_metadata_and_a_new_attempt(cluster: Cluster) -> None:
    """STALE_CONTROLLER_EPOCH keeps the change pending, requests metadata, and retries."""
    cluster.answer_attempt(AlterPartitionAnswer(refusal=Refusal(ErrorCode.STALE_CONTROLLER_EPOCH)))
    pending = set(cluster.leader().isr.maximal)
    cluster.push(1, partition_image(isr=(1,)), controller_epoch=2)
    cluster.advance(100)

    assert len(cluster.wished(1, RefreshMetadata)) == 1
    assert pending == {1, 2}
    assert [r.controller_epoch for r in cluster.attempts()] == [1, 2]
    assert cluster.attempts()[1].partitions == cluster.attempts()[0].partitions


def test_a_number_that_a_stranger_used_is_skipped_at_once(cluster: Cluster) -> None:
    """F3: a proposal rejected for its sequence is sent again at once, with a sequence above the last one accepted."""
    refused = AlterPartitionAnswer(refusal=Refusal(ErrorCode.INVALID_REQUEST), last_sequence=1_000)
    cluster.answer_attempt(refused)

    assert [request.request_sequence for request in cluster.attempts()] == [1, 1_001]
    assert cluster.attempts()[1].partitions == cluster.attempts()[0].partitions
    assert cluster.leader().isr.maximal == {1, 2}


def test_a_newer_process_of_the_same_node_ends_this_one(cluster: Cluster) -> None:
    """STALE_BROKER_EPOCH stops the process."""
    cluster.answer_attempt(AlterPartitionAnswer(refusal=Refusal(ErrorCode.STALE_BROKER_EPOCH)))

    assert len(cluster.wished(1, Halt)) == 1


def test_newer_metadata_ends_what_is_pending(cluster: Cluster) -> None:
    """A newer partition epoch means the compare-and-set can no longer succeed; its late answer has no effect."""
    cluster.push(1, partition_image(isr=(1,), version=5), nodes=[node_image(2, fenced=True)])
    ended = set(cluster.leader().isr.maximal)
    cluster.decide(1, 2, attempt=0)

    assert ended == {1}
    assert cluster.leader().isr.committed == (1,)
    assert cluster.leader().isr.partition_epoch == 5


def test_a_new_reign_forgets_the_old_ones_proposals(cluster: Cluster) -> None:
    """A proposal of an older leader epoch is neither sent again nor applied in a newer one."""
    cluster.push(1, partition_image(epoch=1, version=2, isr=(1,)))
    cluster.lose_attempt()
    cluster.advance(200)

    assert len(cluster.attempts()) == 1
    assert cluster.leader().isr.maximal == {1}


def test_a_member_restarts_while_another_joins() -> None:
    """Only added members are checked by their epoch, the others carry the epoch that is known now."""
    cluster = Cluster(1, rules=Rules(isr_join=IsrJoin.HW))
    cluster.push(1, partition_image(isr=(1, 2), replicas=(1, 2, 3)))
    cluster.push(1, nodes=[node_image(2, life=2)])
    cluster.fetch(0, by=3)

    assert dict(cluster.attempts()[0].partitions[0].new_isr) == {
        1: node_epoch(1),
        2: node_epoch(2, 2),
        3: node_epoch(3),
    }


def test_an_unclean_leader_stays_recovering_until_a_replica_joins() -> None:
    """M48: a recovering ISR of one is proposed as recovering; with a second member it has recovered."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(isr=(1,), recovering=True))
    cluster.fetch(0, by=2)

    assert cluster.attempts()[0].partitions[0].recovering is False
