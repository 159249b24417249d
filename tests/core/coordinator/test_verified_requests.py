"""Requests that wait for a transaction's coordinator, and markers that a shard takes in its log's place (X9, X16)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, F, L, marker, partition_image
from shard_cells import code

from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import ShardLimits
from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import (
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
    TxnOffsetCommit,
)
from strandline.core.log import effects as want
from strandline.core.log import events
from strandline.core.types import Offset, TopicPartition
from strandline.runtime.patterns import Re2Patterns
from strandline_sim.world.record_codec import IdentityCodec

FOO = TopicPartition("foo", 0)
ONE = partition_image(replicas=(1, 2), isr=(1, 2), min_isr=2)
NO = Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "another producer has this id")


def _cluster(*, hold_reads: bool = False, **limits: int) -> Cluster:
    """Node 1 coordinates groups, node 2 follows; there is a topic to commit offsets of."""
    machines = {GROUP_STATE: lambda _: GroupMachine(Re2Patterns())}
    parts = Coordinators(codec=IdentityCodec(), machines=machines, limits=ShardLimits(**limits))
    cluster = Cluster(1, 2, coordinators=parts, hold_reads=hold_reads)
    cluster.push_all(ONE, name=GROUP_STATE)
    cluster.push_all(partition_image(FOO, replicas=(1, 2), isr=(1, 2)), name="foo")
    cluster.settle()
    cluster.advance(100, settle=True)
    return cluster


def _stage(cluster: Cluster, offset: int = 7, *, epoch: int = 0, timeout: int = 5_000) -> int:
    request = TxnOffsetCommit(
        transactional_id="t",
        producer_id=9,
        producer_epoch=epoch,
        group_id="g",
        offsets=(OffsetToCommit(FOO, Offset(offset)),),
    )
    return cluster.ask_coordinator(request, timeout=timeout)


def _committed(cluster: Cluster) -> Offset | None:
    request = cluster.ask_coordinator(OffsetFetch(group_id="g", partitions=(FOO,)))
    cluster.settle()
    answer = cluster.answered[request]
    assert isinstance(answer, OffsetsFetched)
    return answer.partitions[0].offset


def _refused(cluster: Cluster, request: int) -> str:
    """The code with which a marker was refused; empty if it was taken."""
    result = cluster.outcome(request)
    assert result is not None, "not answered"
    return "" if result.refusal is None else result.refusal.code.name


def _asked(cluster: Cluster) -> list[want.SendAddPartitions]:
    return cluster.wished(L, want.SendAddPartitions)


def test_the_first_request_of_a_transaction_waits_for_its_coordinator() -> None:
    """Its own partition of the group's topic is added; nothing is written before the answer, and later requests of
    the producer wait behind it."""
    cluster = _cluster()
    end = cluster.log(L).leo
    first, second = _stage(cluster), _stage(cluster, 8)

    assert [(ask.transactional_id, ask.producer_id, ask.producer_epoch, ask.tp) for ask in _asked(cluster)] == [
        ("t", 9, 0, TP)
    ]
    assert cluster.log(L).leo == end
    cluster.coordinator_says()
    cluster.settle()
    assert all(isinstance(cluster.answered[request], OffsetsCommitted) for request in (first, second))
    assert len(_asked(cluster)) == 1


def test_a_refusal_answers_all_that_waited() -> None:
    """NOT_APPENDED: nothing was."""
    cluster = _cluster()
    waiting = [_stage(cluster), _stage(cluster, 8)]
    cluster.coordinator_says(NO)

    answers = [cluster.answered[request] for request in waiting]
    assert [code(answer) for answer in answers] == ["INVALID_PRODUCER_ID_MAPPING"] * 2
    assert all(isinstance(answer, Refusal) and answer.outcome is Outcome.NOT_APPENDED for answer in answers)


@pytest.mark.parametrize("refusal", [None, NO])
def test_a_later_transaction_is_asked_about_for_itself(refusal: Refusal | None) -> None:
    """What was answered is about the first one's epoch alone, also if its caller has gone meanwhile."""
    for gone in (False, True):
        cluster = _cluster()
        first = _stage(cluster)
        second = _stage(cluster, 8, epoch=1)
        if gone:
            cluster.step(L, events.CallGone(cluster.now, first))
        cluster.coordinator_says(refusal)

        assert [ask.producer_epoch for ask in _asked(cluster)] == [0, 1], f"gone: {gone}"
        assert second not in cluster.answered


def test_a_marker_that_came_in_between_refuses_the_request() -> None:
    """X10: the consent is late, and the transaction over."""
    cluster = _cluster()
    late = _stage(cluster)
    cluster.produce(marker(9, 1))
    cluster.settle()
    cluster.coordinator_says()
    cluster.settle()

    assert code(cluster.answered[late]) == "INVALID_PRODUCER_EPOCH"
    assert _committed(cluster) is None


def test_without_an_answer_the_request_is_refused_at_its_deadline() -> None:
    """REQUEST_TIMED_OUT, and an answer that comes later changes nothing."""
    cluster = _cluster()
    request = _stage(cluster, timeout=1_000)
    end = cluster.log(L).leo
    cluster.advance(1_000, settle=True)

    answer = cluster.answered[request]
    assert code(answer) == "REQUEST_TIMED_OUT"
    assert isinstance(answer, Refusal)
    assert answer.outcome is Outcome.NOT_APPENDED
    cluster.coordinator_says()
    assert cluster.log(L).leo == end


def test_what_waits_is_refused_when_leadership_is_lost() -> None:
    """NOT_COORDINATOR: the next coordinator asks for itself."""
    cluster = _cluster()
    request = _stage(cluster)
    moved = partition_image(leader=2, epoch=1, version=2, replicas=(1, 2), isr=(1, 2), min_isr=2)
    cluster.push(L, moved, name=GROUP_STATE)

    assert code(cluster.answered[request]) == "NOT_COORDINATOR"
    cluster.coordinator_says()


def test_no_more_than_the_bound_wait() -> None:
    """THROTTLING_QUOTA_EXCEEDED: a coordinator that does not answer fills no memory."""
    cluster = _cluster(max_waiting=1)
    _stage(cluster)

    assert code(cluster.answered[_stage(cluster)]) == "THROTTLING_QUOTA_EXCEEDED"


def test_a_marker_is_the_shards_and_no_batch_of_the_log() -> None:
    """It becomes records of the coordinator, is answered when these are committed, and moves the group's offset."""
    cluster = _cluster()
    _stage(cluster)
    cluster.coordinator_says()
    cluster.settle()
    marked = cluster.produce(marker(9, 1))

    assert cluster.outcome(marked) is None, "a marker was answered that may be undone"
    cluster.settle()
    assert _refused(cluster, marked) == ""
    assert cluster.log(L).producers.transactions.last_marker(9) is None
    assert _committed(cluster) == 7


def test_a_repeated_marker_waits_for_what_the_first_one_wrote() -> None:
    """R86 for groups: the first copy may still be lost with this leader."""
    cluster = _cluster()
    first = cluster.produce(marker(9, 1))
    second = cluster.produce(marker(9, 1))

    assert (cluster.outcome(first), cluster.outcome(second)) == (None, None)
    cluster.settle()
    assert _refused(cluster, second) == ""
    assert _refused(cluster, cluster.produce(marker(9, 1))) == ""


def test_an_old_marker_ends_nothing() -> None:
    """With the numbers of X11: behind a later marker it is done, from an older coordinator refused."""
    cluster = _cluster()
    cluster.produce(marker(9, 5, coordinator=2))
    cluster.settle()
    end = cluster.log(L).leo
    done = cluster.produce(marker(9, 4, coordinator=2))
    cluster.settle()

    assert _refused(cluster, done) == ""
    assert _refused(cluster, cluster.produce(marker(9, 6))) == "TRANSACTION_COORDINATOR_FENCED"
    assert cluster.log(L).leo == end


def test_a_marker_below_min_isr_writes_nothing() -> None:
    """Its sender asks again until replicas are back."""
    cluster = _cluster()
    cluster.push(L, partition_image(version=2, replicas=(1, 2), isr=(1,), min_isr=2), name=GROUP_STATE)

    assert _refused(cluster, cluster.produce(marker(9, 1))) == "COORDINATOR_NOT_AVAILABLE"


def test_a_marker_for_a_coordinator_that_loads_is_refused() -> None:
    """What it would end may not be known yet."""
    cluster = _cluster(hold_reads=True)
    cluster.produce(marker(8, 1))
    cluster.settle()
    moved = partition_image(leader=2, epoch=1, version=2, replicas=(1, 2), isr=(1, 2), min_isr=2)
    cluster.push_all(moved, name=GROUP_STATE)

    assert _refused(cluster, cluster.produce(marker(9, 1), node=F)) == "COORDINATOR_LOAD_IN_PROGRESS"


def test_other_coordinators_take_no_markers() -> None:
    """A partition of coordinators that are not of groups has none to take."""
    machines = {"__another": lambda _: GroupMachine(Re2Patterns())}
    cluster = Cluster(1, coordinators=Coordinators(codec=IdentityCodec(), machines=machines))
    cluster.push(L, partition_image(replicas=(1,), isr=(1,)), name="__another")

    assert _refused(cluster, cluster.produce(marker(9, 1))) == "INVALID_TOPIC_EXCEPTION"
