"""A hand-made cluster state: three nodes, and partitions in any state that a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from strandline.console.picture import ControllerLook, HeldReplica, LedPartition, NodeLook, Picture, RemoteReplica
from strandline.core.messages import Endpoint, MetadataImage, NodeImage, PartitionImage, TopicImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, Offset, PartitionEpoch, Role, Rules, TopicPartition

NOW_MS = 100_000


def node(node_id: int, **changed: Any) -> NodeImage:
    """A node that serves."""
    image = NodeImage(
        node_id=NodeId(node_id),
        node_epoch=NodeEpoch(node_id),
        roles=frozenset({Role.LEADER, Role.FOLLOWER}),
        client_endpoint=Endpoint("127.0.0.1", 9000 + node_id),
        fenced=False,
    )
    return replace(image, **changed)


def tp(index: int = 0, topic: str = "tides") -> TopicPartition:
    """A partition's key; the topic's id is its name and a mark."""
    return TopicPartition(f"id-{topic}", index)


def partition(index: int = 0, *, topic: str = "tides", **changed: Any) -> PartitionImage:
    """A partition with three replicas in sync, led by the first, min ISR 2."""
    image = PartitionImage(
        tp=tp(index, topic),
        replicas=(NodeId(1), NodeId(2), NodeId(3)),
        isr=(NodeId(1), NodeId(2), NodeId(3)),
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(4),
        partition_epoch=PartitionEpoch(7),
        min_isr=2,
    )
    return replace(image, **changed)


def topic_of(*partitions: PartitionImage, name: str = "tides", configs: Mapping[str, str] | None = None) -> TopicImage:
    """A topic."""
    return TopicImage(
        name=name, topic_id=f"id-{name}", partitions=partitions, configs=tuple((configs or {}).items())
    )  # fmt: skip


def image(
    *topics: TopicImage, nodes: Sequence[NodeImage] = (node(1), node(2), node(3)), offset: int = 1
) -> MetadataImage:
    """The metadata that the controller sends."""
    return MetadataImage(
        cluster_id="cluster", controller_epoch=2, metadata_offset=offset, is_snapshot=True, rules=Rules(),
        nodes=tuple(nodes), topics=topics,
    )  # fmt: skip


def led(leos: Mapping[int, int | None], *, hw: int, epoch: int = 4, log_start: int = 0) -> LedPartition:
    """A leader's measurement: LEO by replica, its own the highest."""
    most = max(leo for leo in leos.values() if leo is not None)
    remotes = tuple(
        RemoteReplica(
            NodeId(node_id), None if leo is None else Offset(leo), None if leo is None else most - leo,
            None if leo is None else 100 * (most - leo), 50, 50,
        )
        for node_id, leo in leos.items()
    )  # fmt: skip
    return LedPartition(LeaderEpoch(epoch), Offset(most), Offset(hw), Offset(log_start), 1_000, remotes)


def held(leo: int, hw: int, state: str = "fetching", reason: str = "") -> HeldReplica:
    """A replica's own report."""
    return HeldReplica(Offset(leo), Offset(hw), state, reason)


def picture(
    *topics: TopicImage,
    nodes: Sequence[NodeImage] = (node(1), node(2), node(3)),
    looks: Mapping[int, NodeLook] | None = None,
    **changed: Any,
) -> Picture:
    """A picture in which controller and nodes answered 200 ms ago."""
    answers = {NodeId(each.node_id): NodeLook(answered_ms=NOW_MS - 200) for each in nodes}
    answers |= {NodeId(node_id): look for node_id, look in (looks or {}).items()}
    made = Picture(
        now_ms=NOW_MS,
        bootstrap="127.0.0.1:9092",
        image=image(*topics, nodes=nodes),
        controller=ControllerLook(heard_ms=NOW_MS - 200),
        looks=answers,
    )
    return replace(made, **changed)
