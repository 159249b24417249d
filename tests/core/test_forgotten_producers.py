"""An idempotent producer whose records are deleted, and a leader that never had them (M30, M61, C43)."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import batch, partition_image

from strandline.core.errors import ErrorCode, Outcome
from strandline.core.messages import ProduceResult
from strandline.core.types import BatchHeader


def sent(sequence: int) -> BatchHeader:
    """A batch of one record of producer 7."""
    return batch(producer=7, sequence=sequence)


def late_leader(*, knows_producers: bool = False) -> Cluster:
    """Node 1 appends sequences 0 to 2 and deletes them. Node 2, down meanwhile, restarts its log above and leads.

    It knows the producer if node 1 is of a release that has FetchProducerSnapshot.
    """
    cluster = Cluster(1, 2)
    if not knows_producers:
        cluster.earlier_releases.add(1)
    cluster.push(1, partition_image(isr=(1,)))
    for sequence in range(3):
        cluster.produce(sent(sequence))
    cluster.produce(batch(4))
    cluster.delete_records(3)
    cluster.push(2, partition_image(isr=(1,)))
    cluster.settle()
    cluster.push_all(partition_image(leader=2, epoch=1, isr=(2,), version=1))
    return cluster


def produced(cluster: Cluster, header: BatchHeader) -> ProduceResult:
    """The new leader's answer to a batch."""
    result = cluster.outcome(cluster.produce(header, node=2))
    assert result is not None
    return result


@pytest.mark.parametrize("sequence", [2, 3])
def test_what_may_lie_among_deleted_records_is_not_appended_again(sequence: int) -> None:
    """M61: a leader that cannot distinguish a second copy of a deleted batch from the next one rejects both."""
    cluster = late_leader()
    ends_before = cluster.ends(2)
    result = produced(cluster, sent(sequence))

    assert cluster.log(2).log_start_offset == 3
    assert result.refusal is not None
    assert (result.refusal.code, result.outcome) == (ErrorCode.UNKNOWN_PRODUCER_ID, Outcome.NOT_APPENDED)
    assert cluster.ends(2) == ends_before


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_a_leader_that_asked_recognizes_what_was_deleted(sequence: int) -> None:
    """C43: the copy of a deleted batch is answered as the batch was, the first one included."""
    cluster = late_leader(knows_producers=True)
    ends_before = cluster.ends(2)
    again = produced(cluster, sent(sequence))

    assert (again.refusal, again.base_offset) == (None, sequence)
    assert cluster.ends(2) == ends_before


def test_a_leader_that_asked_takes_the_next_batch() -> None:
    """C43: the producer goes on as if the same leader had stayed."""
    cluster = late_leader(knows_producers=True)
    following = produced(cluster, sent(3))

    assert (following.refusal, following.base_offset) == (None, 7)


def test_a_forgotten_producer_begins_anew() -> None:
    """M61: with the next producer epoch, from sequence 0, a forgotten producer continues."""
    cluster = late_leader()
    first = produced(cluster, batch(producer=7, producer_epoch=1, sequence=0))
    second = produced(cluster, batch(producer=7, producer_epoch=1, sequence=1))

    assert [first.refusal, second.refusal] == [None, None]
    assert [first.base_offset, second.base_offset] == [7, 8]


def test_who_deleted_the_records_still_knows_their_producer() -> None:
    """M61: deleting records removes nothing from a leader's state of their producers."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(isr=(1,)))
    for sequence in range(3):
        cluster.produce(sent(sequence))
    cluster.delete_records(3)
    again, following = (cluster.outcome(cluster.produce(sent(sequence))) for sequence in (2, 3))

    assert again is not None and again.base_offset == 2
    assert following is not None and following.base_offset == 3
