"""A node logs once for each leader epoch which leader it follows."""

from __future__ import annotations

from strandline.core.messages import MetadataImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, Rules, TopicPartition
from strandline.node.seen import following

TP = TopicPartition("t", 0)
ME = NodeId(2)


def _partition(leader: int | None, epoch: int, *, isr: tuple[int, ...] = (1, 2)) -> PartitionImage:
    return PartitionImage(
        tp=TP,
        replicas=(NodeId(1), NodeId(2)),
        isr=tuple(map(NodeId, isr)),
        leader=None if leader is None else NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(7),
        min_isr=1,
    )


def _image(partition: PartitionImage) -> MetadataImage:
    topic = TopicImage(name="tides", topic_id="t", partitions=(partition,))
    return MetadataImage(
        cluster_id="c", controller_epoch=1, metadata_offset=1, is_snapshot=False, rules=Rules(), topics=(topic,)
    )


def test_a_new_leader_is_named_with_its_epoch() -> None:
    """The line has topic, partition, leader, both epochs, the ISR and whether this node is in it."""
    lines = list(following(ME, {TP: _partition(1, 3)}.get, _image(_partition(1, 4, isr=(1,)))))

    assert lines == [
        {
            "topic": "tides",
            "partition": 0,
            "leader": 1,
            "leader_epoch": 4,
            "partition_epoch": 7,
            "isr": [1],
            "in_isr": False,
        }
    ]


def test_the_same_epoch_is_reported_once() -> None:
    """A change of the ISR, or a repeated image, is not a new role."""
    assert list(following(ME, {TP: _partition(1, 4)}.get, _image(_partition(1, 4, isr=(1,))))) == []


def test_an_older_image_is_not_reported() -> None:
    """Metadata that the node does not accept is not logged."""
    assert list(following(ME, {TP: _partition(1, 4)}.get, _image(_partition(1, 3)))) == []


def test_the_leader_itself_follows_nobody() -> None:
    """A leader follows no node, and its line is logged when its epoch has begun."""
    assert list(following(ME, {}.get, _image(_partition(2, 0)))) == []


def test_a_partition_without_a_leader_is_waited_for() -> None:
    """For a partition without a leader the line names no leader."""
    assert [line["leader"] for line in following(ME, {TP: _partition(1, 3)}.get, _image(_partition(None, 4)))] == [None]
