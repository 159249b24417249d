"""Short builders for metadata, batches and requests in tests of the core; every default is in the signature."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import count
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from strandline.core import messages
from strandline.core.types import (
    OF_TRANSACTIONS,
    TRANSACTIONAL_BIT,
    BatchHeader,
    EpochEntry,
    LeaderEpoch,
    Marker,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    ProducerStamp,
    Role,
    Rules,
    TopicPartition,
)

_Held = TypeVar("_Held")

TOPIC_ID = "0b6c1c2e-6a52-4d4c-9d0e-5f5a3c1d7e10"
TP = TopicPartition(TOPIC_ID, 0)
TP1 = TopicPartition(TOPIC_ID, 1)
L, F = NodeId(1), NodeId(2)
CLUSTER = "cluster-of-cores"
BATCH_BYTES = 100
"""Size of a batch per record, so that a fetch's min_bytes can be said in records."""


def node_epoch(node: int, life: int = 1) -> NodeEpoch:
    """Epoch of a node's ``life``-th incarnation: 101 is node 1's first, 201 its second."""
    return NodeEpoch(100 * life + node)


def node_image(
    node: int, *, life: int = 1, fenced: bool = False, leaving: bool = False, observer: bool = False
) -> messages.NodeImage:
    """A registered, unfenced node."""
    roles = frozenset({Role.FOLLOWER}) if observer else frozenset({Role.LEADER, Role.FOLLOWER})
    return messages.NodeImage(
        node_id=NodeId(node), node_epoch=node_epoch(node, life), roles=roles, fenced=fenced, shutting_down=leaving
    )


def partition_image(
    tp: TopicPartition = TP,
    *,
    leader: int | None = 1,
    epoch: int = 0,
    version: int = 1,
    isr: Iterable[int] = (1, 2),
    replicas: Iterable[int] = (1, 2),
    min_isr: int = 1,
    elr: Iterable[int] = (),
    observers: Iterable[int] = (),
    unclean: int | None = None,
    recovering: bool = False,
) -> messages.PartitionImage:
    """A partition that node 1 leads for nodes 1 and 2; ``version`` is the partition epoch."""
    return messages.PartitionImage(
        tp=tp,
        replicas=tuple(map(NodeId, replicas)),
        isr=tuple(map(NodeId, isr)),
        elr=tuple(map(NodeId, elr)),
        leader=None if leader is None else NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(version),
        min_isr=min_isr,
        recovering=recovering,
        last_unclean_leader_epoch=None if unclean is None else LeaderEpoch(unclean),
        observers=tuple(map(NodeId, observers)),
    )


_OFFSETS = count()
"""Metadata offsets of the images that say none."""


def metadata(
    to: NodeEpoch,
    *partitions: messages.PartitionImage,
    nodes: Iterable[messages.NodeImage] = (),
    rules: Rules | None = None,
    controller_epoch: int = 1,
    snapshot: bool = False,
    deleted: tuple[str, ...] = (),
    removed: tuple[NodeId, ...] = (),
    offset: int | None = None,
    reigns: tuple[messages.Reign, ...] = (),
    position: messages.PositionProof | None = None,
    name: str = "lines",
) -> messages.MetadataImage:
    """What the controller sends to one incarnation: whole topics, whole nodes; newer than all earlier metadata."""
    topics: dict[str, list[messages.PartitionImage]] = {}
    for image in partitions:
        topics.setdefault(image.tp.topic_id, []).append(image)
    return messages.MetadataImage(
        cluster_id=CLUSTER,
        controller_epoch=controller_epoch,
        metadata_offset=next(_OFFSETS) if offset is None else offset,
        is_snapshot=snapshot,
        rules=rules or Rules(),
        nodes=tuple(nodes),
        topics=tuple(messages.TopicImage(name=name, topic_id=i, partitions=tuple(of)) for i, of in topics.items()),
        deleted_topic_ids=deleted,
        removed_node_ids=removed,
        to_node_epoch=to,
        reigns=reigns,
        position=position,
    )


def batch(
    records: int = 1,
    *,
    base: int = 0,
    epoch: int | None = None,
    producer: int | None = None,
    producer_epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
) -> BatchHeader:
    """A batch of ``records`` records; the leader stamps ``base`` and ``epoch``."""
    return BatchHeader(
        base_offset=Offset(base),
        leader_epoch=None if epoch is None else LeaderEpoch(epoch),
        record_count=records,
        size_bytes=BATCH_BYTES * records,
        max_timestamp_ms=0,
        producer=None if producer is None else ProducerStamp(producer, producer_epoch, sequence),
        attributes=TRANSACTIONAL_BIT if transactional else 0,
    )


def fetched_part(*batches: BatchHeader, tp: TopicPartition = TP, hw: int = 0, **more: Any) -> messages.FetchedPartition:
    """One partition's answer with records, as a follower receives it."""
    return messages.FetchedPartition(tp, high_watermark=Offset(hw), log_start_offset=Offset(0), batches=batches, **more)


def marker(producer: int, producer_epoch: int, *, commit: bool = True, coordinator: int = 1) -> BatchHeader:
    """The control batch that ends the transaction of a producer."""
    header = batch(producer=producer, producer_epoch=producer_epoch)
    return header._replace(attributes=OF_TRANSACTIONS, marker=Marker(commit, coordinator))


def history(*spans: tuple[int, int, int]) -> list[BatchHeader]:
    """A log of one-record batches: ``(epoch, count, start)`` each."""
    return [batch(base=offset, epoch=epoch) for epoch, count, start in spans for offset in range(start, start + count)]


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    """Epoch cache entries (epoch, start offset)."""
    return tuple(EpochEntry(LeaderEpoch(e), Offset(o)) for e, o in pairs)


def produce_part(header: BatchHeader, tp: TopicPartition = TP, payload: object = b"") -> messages.ProducePartition:
    return messages.ProducePartition(tp, header, payload)


def fetch_part(
    offset: int,
    *,
    tp: TopicPartition = TP,
    epoch: int | None = None,
    lfe: int | None = None,
    log_start: int | None = None,
    max_bytes: int = 1 << 20,
) -> messages.FetchPartition:
    """One partition of a fetch request; ``lfe`` is last_fetched_epoch."""
    return messages.FetchPartition(
        tp,
        Offset(offset),
        None if epoch is None else LeaderEpoch(epoch),
        None if lfe is None else LeaderEpoch(lfe),
        None if log_start is None else Offset(log_start),
        max_bytes,
    )


def fetch_request(
    *parts: messages.FetchPartition,
    replica: int | None = None,
    life: int = 1,
    wait: int = 0,
    min_bytes: int = 1,
    committed: bool = False,
) -> messages.FetchRequest:
    """A fetch by ``replica``, or by a consumer if None."""
    asker = None if replica is None else messages.ReplicaState(NodeId(replica), node_epoch(replica, life))
    return messages.FetchRequest(tuple(parts), asker, max_wait_ms=wait, min_bytes=min_bytes, read_committed=committed)


def held(root: object, kind: type[_Held]) -> list[_Held]:
    """All values of a kind that can be reached from ``root``, apart from those of functions, classes and modules."""
    seen: dict[int, object] = {}
    left = [root]
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
            seen[id(one)] = one
            left += gc.get_referents(one)
    return [one for one in seen.values() if isinstance(one, kind)]
