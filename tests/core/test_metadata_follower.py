"""Which metadata a node accepts, which role it then takes, and what it stores for its next start (TR15, TR18)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_of_cores import Cluster
from core_builders import CLUSTER, TP, TP1, batch, history, metadata, node_epoch, node_image, partition_image

from strandline.core.log import effects as want, events
from strandline.core.log.node import NodeCore
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import EpochsSeen, MetadataImage, PartitionImage, Reign
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType, Rule
from strandline.core.quotas import Quota, QuotaKey
from strandline.core.types import Durability, LeaderEpoch, NodeId, Offset, PartitionEpoch, Rules
from strandline.rpc.convert.subscription import ImageWriter, image_from_bytes


def believed(cluster: Cluster) -> PartitionImage:
    """The partition as node 1 knows it."""
    return cluster.cores[1].state.images[TP]


@pytest.fixture
def cluster() -> Cluster:
    """The core of node 1, which has no metadata yet."""
    return Cluster(1)


def test_before_registration_nothing_is_believed() -> None:
    """TR15: a process without a node epoch takes no metadata."""
    core = NodeCore(node_id=NodeId(1), rules=Rules(), timings=NodeTimings())

    assert core.step(events.MetadataArrived(0, metadata(node_epoch(1), partition_image()))) == []


def test_metadata_for_another_incarnation_is_ignored(cluster: Cluster) -> None:
    """TR15: metadata addressed to the previous process makes no node a leader."""
    cluster.push(1, partition_image(leader=2, epoch=10, version=20))
    old = metadata(node_epoch(1, life=0), partition_image(leader=1, epoch=12, version=30))

    assert cluster.step(1, events.MetadataArrived(0, old)) == []
    assert believed(cluster).leader_epoch == 10


def test_an_older_controller_is_ignored(cluster: Cluster) -> None:
    """TR18: metadata from a controller epoch below the highest seen is not accepted."""
    cluster.push(1, partition_image(epoch=3), controller_epoch=5)
    cluster.push(1, partition_image(epoch=4, version=9), controller_epoch=4)

    assert believed(cluster).leader_epoch == 3


def test_an_image_of_a_lower_metadata_offset_is_ignored(cluster: Cluster) -> None:
    """TR18: a controller of a higher epoch on an older store changes nothing, not even unknown partitions."""
    cluster.push(1, partition_image(epoch=3), offset=1_000)
    older = cluster.push(1, partition_image(TP1), controller_epoch=5, offset=999)
    equal = cluster.push(1, partition_image(TP1), controller_epoch=5, offset=1_000)

    assert older == []
    assert want.OpenLog(TP1, "lines") in equal


@pytest.mark.parametrize("effect", [want.SaveMetadata, want.BelieveMetadata], ids=["stored", "handed on"])
def test_metadata_is_stored_and_handed_on_before_it_is_acted_upon(cluster: Cluster, effect: type[want.Effect]) -> None:
    """When a node opens a log, what it has seen is durable, and names and settings of the topic are known."""
    found = [type(e) for e in cluster.push(1, partition_image()) if isinstance(e, effect | want.OpenLog)]

    assert found == [effect, want.OpenLog]


def test_an_image_that_cannot_be_true_is_reported_and_changes_nothing(cluster: Cluster) -> None:
    """A leader outside its ISR: the node keeps its metadata and reports why."""
    assert [type(effect) for effect in cluster.push(1, partition_image(leader=1, isr=(2,)))] == [want.IgnoreMetadata]
    assert TP not in cluster.cores[1].state.images


def test_lower_epochs_are_ignored(cluster: Cluster) -> None:
    """TR18: a store that went back in time is not followed, neither in leader epoch nor in partition epoch."""
    cluster.push(1, partition_image(epoch=9, version=9))
    cluster.push(1, partition_image(epoch=8, version=10, leader=2))
    cluster.push(1, partition_image(epoch=9, version=8, leader=2))

    assert (believed(cluster).leader_epoch, believed(cluster).partition_epoch, believed(cluster).leader) == (9, 9, 1)


def test_another_state_in_a_known_partition_epoch_is_ignored(cluster: Cluster) -> None:
    """A leader that lost a member from its view would count its HW without it, while the member is in the known ISR."""
    cluster.push(1, partition_image(epoch=5, version=1, replicas=(1, 2), isr=(1, 2)))
    leader = cluster.cores[1].state.leaders[TP]
    cluster.push(1, partition_image(epoch=5, version=1, replicas=(1,), isr=(), leader=None))

    assert believed(cluster).replicas == (1, 2)
    assert set(leader.progress) == {2}


def test_what_was_seen_in_an_earlier_life_counts() -> None:
    """TR18: a new process accepts nothing older than what it stored before."""
    seen = metadata(node_epoch(1), partition_image(epoch=9, version=9), controller_epoch=7)
    core = NodeCore(node_id=NodeId(1), rules=Rules(), timings=NodeTimings(), seen=seen)
    core.step(events.Registered(0, CLUSTER, node_epoch(1, 2), 7))
    older = metadata(node_epoch(1, 2), partition_image(epoch=8, version=12), controller_epoch=8)
    first = core.step(events.MetadataArrived(0, older))
    newer = metadata(node_epoch(1, 2), partition_image(epoch=10, version=12), controller_epoch=8)
    second = core.step(events.MetadataArrived(0, newer))

    assert [e for e in first if isinstance(e, want.OpenLog)] == []
    assert [e for e in second if isinstance(e, want.OpenLog)] == [want.OpenLog(TP, "lines")]


def _seen(image: MetadataImage) -> set[EpochsSeen]:
    return {EpochsSeen(p.tp, p.leader_epoch, p.partition_epoch) for t in image.topics for p in t.partitions}


def test_stored_metadata_never_goes_back(cluster: Cluster) -> None:
    """TR18: the stored state of a partition is the newest accepted, also when older metadata arrives."""
    cluster.push(1, partition_image(epoch=9, version=9), partition_image(TP1, epoch=2, version=2))
    cluster.push(1, partition_image(epoch=8, version=8), partition_image(TP1, epoch=3, version=3))
    stored = cluster.wished(1, want.SaveMetadata)[-1].image

    assert stored.is_snapshot
    assert _seen(stored) == {
        EpochsSeen(TP, LeaderEpoch(9), PartitionEpoch(9)),
        EpochsSeen(TP1, LeaderEpoch(3), PartitionEpoch(3)),
    }


def test_a_snapshot_without_a_topic_deletes_it(cluster: Cluster) -> None:
    """A topic that is missing in a snapshot is gone; a change that does not name it means nothing for it."""
    cluster.push(1, partition_image())
    cluster.push(1, nodes=[node_image(2)])
    kept = cluster.wished(1, want.DeleteLog)
    cluster.push(1, snapshot=True)

    assert kept == []
    assert cluster.wished(1, want.DeleteLog) == [want.DeleteLog(TP)]


def test_a_removed_node_is_forgotten_and_stored_as_removed(cluster: Cluster) -> None:
    """Every node stores a removal, so that recovery from its image does not bring the node back (C85, TR18)."""
    everybody = [node_image(n) for n in (1, 2, 3)]
    cluster.push(1, partition_image(), nodes=everybody)
    removal = cluster.push(1, nodes=[], removed=(NodeId(3),))
    back = cluster.push(1, partition_image(version=9), nodes=everybody)
    stored = [effect.image for effect in (*removal, *back) if isinstance(effect, want.SaveMetadata)]
    found = [(sorted(n.node_id for n in image.nodes), image.removed_node_ids) for image in stored]

    assert found == [([1, 2], (3,)), ([1, 2, 3], ())]


def test_a_topic_made_again_is_another_log(cluster: Cluster) -> None:
    """M63: a topic id names the log, so a topic of the same name starts empty, at any epoch."""
    cluster.push(1, partition_image(epoch=7, version=7))
    cluster.produce(batch(3))
    again = TP._replace(topic_id="11111111-2222-3333-4444-555555555555")
    cluster.push(1, partition_image(again, epoch=0, version=0), snapshot=True)

    assert cluster.wished(1, want.DeleteLog) == [want.DeleteLog(TP)]
    assert cluster.ends(1, again) == (0, 0)
    assert TP not in cluster.cores[1].state.logs


def test_a_new_process_begins_where_recovery_ended() -> None:
    """TR17 (core part): what recovery returns is durable, so it counts for the HW and may be fetched at once."""
    cluster = Cluster(1, hold_flushes=True)
    cluster.preload(1, history((3, 5, 0)), hw=2)
    cluster.push(1, partition_image(epoch=4, isr=(1,)))

    assert cluster.log(1).vote == 5
    assert cluster.ends(1) == (5, 5)
    assert cluster.wished(1, want.Flush) == []


def committed_log(records: int, committed: int) -> Cluster:
    """Node 1 leads a log of one-record batches whose HW is ``committed``."""
    cluster = Cluster(1)
    cluster.push(1, partition_image())
    cluster.produce(*[batch() for _ in range(records)])
    cluster.fetch(committed, by=2)
    return cluster


def test_only_the_leader_deletes_records() -> None:
    """M10: a follower takes its log start only from the leader."""
    cluster = committed_log(6, 4)
    cluster.push(1, partition_image(leader=2, epoch=1, version=2))
    cluster.delete_records(2)
    cluster.step(1, events.RetentionFound(0, TP, Offset(2)))

    assert cluster.wished(1, want.AdvanceLogStart) == []


def test_retention_is_asked_for_and_obeys_the_high_watermark() -> None:
    """Retention may delete anything below the HW, and no more."""
    cluster = committed_log(6, 4)
    cluster.advance(300_000, tick_ms=1000)
    asked = cluster.wished(1, want.ApplyRetention)
    cluster.step(1, events.RetentionFound(cluster.now, TP, Offset(5)))

    assert asked[-1] == want.ApplyRetention(TP, Offset(4))
    assert cluster.log(1).log_start_offset == 4


def test_checkpoints_of_the_high_watermark() -> None:
    """M36: the HW is written every five seconds, when it moved, and not durably."""
    cluster = committed_log(6, 4)
    cluster.advance(5_100)
    first = cluster.wished(1, want.SaveHighWatermarks)
    cluster.advance(10_000)

    assert first[-1] == want.SaveHighWatermarks({TP: Offset(4)}, durable=False)
    assert len(cluster.wished(1, want.SaveHighWatermarks)) == len(first)


def stopped(durability: Durability) -> list[want.Effect]:
    """The effects of a node that is about to stop."""
    cluster = Cluster(1, rules=Rules(durability=durability))
    cluster.push(1, partition_image(isr=(1,)))
    cluster.produce(batch(3, producer=7, sequence=0))
    return cluster.step(1, events.StopRequested(0))


def test_a_clean_stop_saves_what_shortens_the_next_start() -> None:
    """StopRequested: producers up to the log end, and the HW durably; a page cache is flushed first."""
    fsync, page_cache = stopped(Durability.FSYNC), stopped(Durability.PAGE_CACHE)

    assert [type(e) for e in fsync] == [want.SaveProducers, want.SaveHighWatermarks]
    assert [type(e) for e in page_cache] == [want.SaveProducers, want.Flush, want.SaveHighWatermarks]
    assert isinstance(fsync[0], want.SaveProducers) and (fsync[0].offset, len(fsync[0].rows)) == (3, 1)
    assert fsync[1] == want.SaveHighWatermarks({TP: Offset(3)}, durable=True)


def test_a_new_segment_saves_the_producers() -> None:
    """M61: when a segment is rolled, the producer state up to the log end is written."""
    assert committed_log(2, 2).step(1, events.LogRolled(0, TP)) == [want.SaveProducers(TP, Offset(2), ())]


R1 = Reign("R1", 1, 1)
R2 = Reign("R2", 2, 105, "R1")


def test_a_reign_that_began_without_what_this_node_knows_is_not_believed(cluster: Cluster) -> None:
    """C36, TR29: its store forgot offset 105, so the node keeps the topic that this snapshot lacks, and reports it."""
    cluster.push(1, partition_image(), offset=105, reigns=(R1,))
    effects = cluster.push(1, snapshot=True, controller_epoch=2, offset=118, reigns=(R1, R2))

    assert believed(cluster) == partition_image()
    (ignored,) = effects
    assert "began at metadata offset 105, but this node was sent offset 105 of reign R1" in ignored.reason


def test_a_reign_that_continues_what_this_node_knows_is_believed(cluster: Cluster) -> None:
    """C36: the check keeps no node from the next reign."""
    cluster.push(1, partition_image(), offset=104, reigns=(R1,))
    cluster.push(1, snapshot=True, controller_epoch=2, offset=118, reigns=(R1, R2))

    assert TP not in cluster.cores[1].state.images


def test_another_reign_of_the_same_controller_epoch_is_not_believed(cluster: Cluster) -> None:
    """C36: a store that lost a whole reign gives its controller epoch again, under another id."""
    cluster.push(1, partition_image(), offset=4, reigns=(R1,))
    cluster.push(1, partition_image(epoch=9, version=9), offset=9, reigns=(Reign("R1b", 1, 5),))

    assert believed(cluster) == partition_image()


def test_a_restarted_node_checks_against_what_its_disk_holds() -> None:
    """C36: a new process of the node begins where the last one ended, and not without a history."""
    seen = metadata(node_epoch(1), partition_image(), offset=105, reigns=(R1,))
    core = NodeCore(node_id=NodeId(1), rules=Rules(), timings=NodeTimings(), seen=seen)
    core.step(events.Registered(0, CLUSTER, node_epoch(1, life=2), 2))
    to = node_epoch(1, life=2)
    forgetful = core.step(
        events.MetadataArrived(0, metadata(to, snapshot=True, controller_epoch=2, offset=118, reigns=(R1, R2)))
    )

    assert [type(effect) for effect in forgetful] == [want.IgnoreMetadata]


def test_rules_and_quotas_are_stored_with_what_else_is_known(cluster: Cluster) -> None:
    """A change that has only these is saved; one that has none keeps them; the next process begins with them."""
    cluster.push(1, partition_image())
    rule = Rule("client/x", Permission.DENY, Operation.ALL, ResourceType.GROUP, Pattern.LITERAL, "g")
    quota = Quota("client/*", QuotaKey.PRODUCER_BYTE_RATE, 0.25)
    sent = replace(metadata(node_epoch(1), rules=cluster.rules), acls=(rule,), quotas=(quota,))
    saved = [e for e in cluster.step(1, events.MetadataArrived(0, sent)) if isinstance(e, want.SaveMetadata)]
    later = [e for e in cluster.push(1, partition_image(TP1)) if isinstance(e, want.SaveMetadata)]

    assert [(effect.image.acls, effect.image.quotas) for effect in (*saved, *later)] == [((rule,), (quota,))] * 2
    assert image_from_bytes(ImageWriter().to_bytes(saved[0].image)) == saved[0].image
