"""Well-typed nonsense from peers: a core answers or ignores it, keeps its invariants, and never stops because of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, batch, fetch_part, fetch_request, history, metadata, node_epoch, partition_image

from strandline.core import messages
from strandline.core.log import events
from strandline.core.types import Acks, NodeId, Offset

CONTRADICTIONS = {
    "a leader outside the ISR": partition_image(leader=1, isr=(2,), epoch=6, version=2),
    "an ISR outside the replicas": partition_image(leader=1, isr=(1, 9), epoch=6, version=2),
    "a replica named twice": partition_image(leader=1, isr=(1,), replicas=(1, 1), epoch=6, version=2),
    "an epoch below 0": partition_image(leader=1, epoch=6, version=-1),
    "a second leader in the same epoch": partition_image(leader=2, epoch=5, version=2),
}


@pytest.mark.parametrize("image", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_metadata_that_cannot_be_true_is_ignored(image: messages.PartitionImage) -> None:
    """A node that receives contradictory metadata keeps its previous metadata and continues to lead."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(epoch=5))
    cluster.push(1, image)

    assert cluster.leader(1).image == partition_image(epoch=5)
    assert cluster.outcome(cluster.produce(batch(1), acks=Acks.LEADER)).refusal is None


@pytest.mark.parametrize("change", [{"configs": (("max.message.bytes", "x"),)}, {"name": "../x"}])
def test_topics_that_cannot_be_are_ignored(change: dict[str, Any]) -> None:
    """A setting that is not a number, or a name that leads out of the data directory, does not stop a node."""
    cluster = Cluster(1)
    image = metadata(node_epoch(1), partition_image(epoch=5))
    cluster.step(1, events.MetadataArrived(0, replace(image, topics=(replace(image.topics[0], **change),))))

    assert not cluster.cores[1].state.logs


def test_no_node_leads_in_an_epoch_that_its_log_has_passed() -> None:
    """A node whose log holds a later epoch than the controller assigns does not lead, and does not stop (TR18)."""
    cluster = Cluster(1)
    cluster.preload(1, history((4, 2, 0)))
    cluster.push(1, partition_image(epoch=3))
    assert cluster.cores[1].describe_partition(TP, 0) is None

    cluster.push(1, partition_image(epoch=5, version=2))

    assert cluster.leader(1).image.leader_epoch == 5


@pytest.mark.parametrize("isr", [(2,), (1, 9), (1, 1)])
def test_a_decision_that_cannot_be_is_asked_for_again(isr: tuple[int, ...]) -> None:
    """An ISR without the leader, or with nodes that are not replicas, is not adopted; the proposal is sent again."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(epoch=5, isr=(1,), replicas=(1, 2)))
    cluster.fetch(0, by=2, epoch=5)
    cluster.decide(*isr)
    cluster.advance(31_000, tick_ms=1_000)

    assert cluster.leader(1).isr.committed == (1,)
    assert [attempt.request_sequence for attempt in cluster.attempts()] == [1, 2]


def test_records_of_no_epoch_are_not_appended() -> None:
    """A batch without a leader epoch could never be compared with another log's."""
    cluster = Cluster(2)
    cluster.push(2, partition_image(epoch=5))
    number = cluster.follower(2).outstanding or 0
    wrong = messages.FetchedPartition(TP, high_watermark=Offset(2), batches=(batch(2, base=0),))
    cluster.step(2, events.FetchAnswered(cluster.now, NodeId(1), number, (wrong,)))

    assert cluster.ends(2) == (0, 0)


def test_a_fetch_that_names_a_partition_twice_is_answered_once() -> None:
    """The wire refuses it; a core that is given it all the same keeps nothing of it."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(epoch=5))
    cluster.step(1, events.FetchArrived(0, 77, fetch_request(fetch_part(0), fetch_part(0), replica=None, wait=0)))

    assert [answer.done for answer in cluster.fetched[77]] == [True]
    assert cluster.cores[1].parked[1] == 0
