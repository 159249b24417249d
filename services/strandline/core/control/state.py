"""The controller's durable state: the cluster, its nodes, topics and partitions; and what one step changes of it.

Invariant: a `ClusterState` is never changed in place. A step yields a `Transaction`, and the state after it is
exactly the state before it with the transaction applied, so a store that keeps transactions keeps the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TypeVar

from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, Position, Reign, TopicImage
from strandline.core.permissions import Rule
from strandline.core.quotas import BURST_MS, Quota
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, Rules, TopicPartition

Row = TypeVar("Row", Rule, Quota)

# ---- epoch_skips
# Decides by how much a partition's epochs rise: by one, and by more at its first change in a reign (C37, M34).
#
# Invariant: a reign never gives an epoch that an earlier one may have given. A store that lost its last transactions
# begins its next reign below them; the skip carries it beyond every epoch that was lost, even if the nodes that know of
# them are silent. Later changes in the reign rise by one.

SKIP = 1_024
"""More changes of one partition than a store can lose at once; an epoch has room for 2**31 / 1,024 reigns."""


def first_epoch_in(controller_epoch: int) -> int:
    """The first leader and partition epoch of a partition that is added to a topic in this reign.

    A reign whose end was lost may have added a partition of the same index, and changed it since.
    """
    return SKIP * (controller_epoch - 1)


class EpochSkips:
    """Which partitions changed, and which held an election, in this reign. Each reign starts with a new instance."""

    def __init__(self) -> None:
        self._changed: set[TopicPartition] = set()
        self._elected: set[TopicPartition] = set()

    def partition_epoch_after(self, before: PartitionImage) -> PartitionEpoch:
        """The partition epoch of the next change of ``before``."""
        return PartitionEpoch(before.partition_epoch + _step(before.tp in self._changed))

    def leader_epoch_after(self, before: PartitionImage) -> LeaderEpoch:
        """The leader epoch after the next election of ``before``."""
        return LeaderEpoch(before.leader_epoch + _step(before.tp in self._elected))

    def follow(self, changed: Iterable[PartitionImage], before: dict[TopicPartition, PartitionImage | None]) -> None:
        """Record what a transaction changed. A partition that it created has no epochs that could have been lost."""
        for partition in changed:
            was = before[partition.tp]
            self._changed.add(partition.tp)
            if was is None or was.leader_epoch != partition.leader_epoch:
                self._elected.add(partition.tp)

    def forget(self, topic: TopicImage) -> None:
        """A topic was deleted; its id never comes again."""
        for known in (self._changed, self._elected):
            known.difference_update(partition.tp for partition in topic.partitions)


def changes_between(before: int, after: int) -> int:
    """How many changes lie between two epochs of one partition, however many reigns began between them."""
    return (after - before) % SKIP


def _step(is_known_of_this_reign: bool) -> int:
    return 1 if is_known_of_this_reign else 1 + SKIP


# ---- reign_history
# Decides whether a position is part of the history that a store holds (C34, C35).
#
# Invariant: two states never share a position. A reign has a random id and assigns each offset once, so a store that
# lost its tail and continued has different positions at the same offsets, and a node that knows a lost position is
# recognized.

KEPT_REIGNS = 10_000
"""How many reigns a store remembers; a position below the first offset of these is old, not unknown."""

SENT_REIGNS = 64
"""How many of them go with a snapshot, so that a recovery can tell which nodes share a history (C38)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReignRecord:
    """What a store keeps of one reign."""

    reign_id: str
    controller_epoch: int
    first_offset: int
    previous_reign_id: str = ""
    last_offset: int | None = None
    """None while the reign lasts."""
    recovered: bool = False
    """Whether a recovery ended it, from what the given nodes knew: it may have gone on beyond ``last_offset``."""


Reigns = dict[str, ReignRecord]
"""By id, in the order of their first offsets."""


class Standing(Enum):
    """What a store knows of a position."""

    KNOWN = auto()
    OLD = auto()
    """Older than everything that is remembered."""
    UNKNOWN = auto()
    """The store never assigned it, or lost it."""
    BEYOND_RECOVERY = auto()
    """After what a recovery could learn of that reign (C39)."""


def standing(reigns: Reigns, head: int, position: Position) -> Standing:
    """What a store whose last offset is ``head`` knows of ``position``."""
    record = reigns.get(position.reign_id)
    if record is None:
        return _of_no_known_reign(reigns, head, position.metadata_offset)
    last = head if record.last_offset is None else record.last_offset
    if record.first_offset <= position.metadata_offset <= last:
        return Standing.KNOWN
    is_beyond = record.recovered and position.metadata_offset > last
    return Standing.BEYOND_RECOVERY if is_beyond else Standing.UNKNOWN


def _of_no_known_reign(reigns: Reigns, head: int, offset: int) -> Standing:
    first = next(iter(reigns.values()), None)
    # Only a history that was cut can have forgotten a reign; otherwise the store never had it.
    if len(reigns) >= KEPT_REIGNS and first is not None and offset < first.first_offset:
        return Standing.OLD
    if any(record.recovered for record in reigns.values()):
        # A recovery continues far above every earlier offset, even those of a reign that no given node knew.
        began = next((each.first_offset for each in reigns.values() if not each.recovered), head + 1)
        if offset < began:
            return Standing.BEYOND_RECOVERY
    return Standing.UNKNOWN


def latest(reigns: Reigns) -> ReignRecord | None:
    """The current reign; None before the first."""
    # Every transaction calls this, and a store may remember thousands of reigns.
    return reigns[next(reversed(reigns))] if reigns else None


def begun(reigns: Reigns, *, reign_id: str, controller_epoch: int, first_offset: int) -> tuple[ReignRecord, ...]:
    """The records that change when a reign begins: the previous one ends, and the new one is added."""
    last = latest(reigns)
    fresh = ReignRecord(
        reign_id=reign_id,
        controller_epoch=controller_epoch,
        first_offset=first_offset,
        previous_reign_id=last.reign_id if last else "",
    )
    if last is None or last.last_offset is not None:
        return (fresh,)
    return (replace(last, last_offset=first_offset - 1), fresh)


def with_changed(reigns: Reigns, changed: tuple[ReignRecord, ...]) -> Reigns:
    """The history after a transaction; beyond `KEPT_REIGNS` the oldest are forgotten."""
    if not changed:
        return reigns
    after = {**reigns, **{record.reign_id: record for record in changed}}
    for reign_id in list(after)[: max(0, len(after) - KEPT_REIGNS)]:
        del after[reign_id]
    return after


def sent(reigns: Reigns) -> tuple[Reign, ...]:
    """The latest reigns as a snapshot carries them, the current one last."""
    return tuple(map(_as_sent, list(reigns.values())[-SENT_REIGNS:]))


def present(reigns: Reigns) -> tuple[Reign, ...]:
    """Only the current reign, as a change carries it; empty before the first."""
    last = latest(reigns)
    return () if last is None else (_as_sent(last),)


def _as_sent(record: ReignRecord) -> Reign:
    return Reign(record.reign_id, record.controller_epoch, record.first_offset, record.previous_reign_id)


PRODUCER_ID_BLOCK = 1_000
"""Producer ids reserved by one transaction (M61)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTimings:
    """Durations in ms and the controller's other limits; the defaults are Kafka's."""

    session_timeout_ms: int = 9_000
    heartbeat_interval_ms: int = 2_000
    auto_leader_rebalance: bool = True
    leader_imbalance_check_interval_ms: int = 30_000
    preferred_elections_per_check: int = 10
    partitions_per_step: int = 600
    """How many partitions one step changes because of nodes that come or go, an election counting as three; the rest
    follows in later steps (`core.step_parts`)."""
    default_partitions: int = 1
    default_replication_factor: int = 3
    """Used with at most as many replicas as there are nodes, when a request names no number."""
    max_partitions_per_topic: int = 10_000
    moves_per_node: int = 5
    """How many running reassignments may add a replica to one node, and how many may take one from it (C73)."""
    internal_replication_factor: int = 3
    """Replicas of the topics that hold coordinators' state (G1)."""
    group_state_partitions: int = 12
    """Partitions of `__group_state`; used once, when it is created."""
    transaction_state_partitions: int = 12
    """Partitions of `__transaction_state`; used once, when it is created."""
    quota_burst_ms: int = BURST_MS
    """How long an idle client may then exceed its quota of topic changes (C102)."""
    unclean_recovery_timeout_ms: int | None = None
    """How long a partition without a proven member waits for reports before an unclean election; None: for ever."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be above 0 and below "
                f"session_timeout_ms ({self.session_timeout_ms}); otherwise every session ends"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHeader:
    """The parts of the state that are one of a kind. Written whole with every transaction."""

    cluster_id: str
    controller_epoch: int = 0
    metadata_offset: int = 0
    rules: Rules = field(default_factory=Rules)
    feature_level: int = 1
    next_node_epoch: int = 1
    next_producer_id: int = 0
    """First producer id that no block reserved yet."""
    secret: str = ""
    """What proofs of positions are made with, in hexadecimal digits; never leaves the store (M72)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A registered node: what all see, and what only the controller needs."""

    image: NodeImage
    incarnation_id: str
    directory_id: str
    feature_min: int = 1
    feature_max: int = 1
    past_incarnations: tuple[str, ...] = ()
    """The latest incarnations before this one, so that a late copy of their registration is recognized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedNode:
    """What is kept for ever of a node that was removed (C85)."""

    node_id: NodeId
    node_epoch: NodeEpoch
    """Its last one: a process of this or an earlier epoch must stop."""
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic without its partitions."""

    name: str
    topic_id: str
    configs: tuple[tuple[str, str], ...] = ()
    created_by: str = ""
    """Id of the request that created it; empty: one without an id (C32)."""
    grown_by: tuple[str, ...] = ()
    """Ids of the latest requests that added partitions, the last one last."""


def record_of(topic: TopicImage) -> TopicRecord:
    """A topic as the store keeps it."""
    return TopicRecord(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=topic.configs,
        created_by=topic.created_by,
        grown_by=topic.grown_by,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Everything one step changes; all of it becomes durable, or nothing."""

    header: ClusterHeader
    removed_nodes: tuple[RemovedNode, ...] = ()
    """Taken away before ``nodes`` are put."""
    nodes: tuple[NodeRecord, ...] = ()
    topics: tuple[TopicRecord, ...] = ()
    partitions: tuple[PartitionImage, ...] = ()
    deleted_topic_ids: tuple[str, ...] = ()
    reigns: tuple[ReignRecord, ...] = ()
    """One that ended and one that began, in that order."""
    removed_acls: tuple[Rule, ...] = ()
    """Taken away before ``acls`` are put."""
    acls: tuple[Rule, ...] = ()
    removed_quotas: tuple[Quota, ...] = ()
    """Taken away before ``quotas`` are put."""
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The controller's durable state. Mappings are replaced, never edited."""

    header: ClusterHeader
    nodes: Mapping[NodeId, NodeRecord] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    """By topic id."""
    deleted_topic_ids: frozenset[str] = frozenset()
    """Kept for ever: they distinguish a deleted topic from one that an old store never knew (TR18)."""
    removed_nodes: Mapping[NodeId, RemovedNode] = field(default_factory=dict)
    """Kept for ever, also when the id has registered again."""
    reigns: Reigns = field(default_factory=dict)
    """The history of this store: which positions are known (C34)."""
    acls: tuple[Rule, ...] = ()
    """Access rules, in order. The same object until a rule changes."""
    quotas: tuple[Quota, ...] = ()
    """Client quotas, in order. The same object until a quota changes."""

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        """The committed state of one partition."""
        topic = self.topics.get(tp.topic_id)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    @property
    def partition_count(self) -> int:
        """How many partitions all topics have."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    def partitions(self) -> Iterator[PartitionImage]:
        """Every partition, by topic in order of creation, then by index."""
        for topic in self.topics.values():
            yield from topic.partitions

    def snapshot(self) -> MetadataImage:
        """Everything a node or client may know, unaddressed."""
        return MetadataImage(
            cluster_id=self.header.cluster_id,
            controller_epoch=self.header.controller_epoch,
            metadata_offset=self.header.metadata_offset,
            is_snapshot=True,
            rules=self.header.rules,
            feature_level=self.header.feature_level,
            nodes=tuple(node.image for node in self.nodes.values()),
            topics=tuple(self.topics.values()),
            removed_node_ids=tuple(sorted(self.removed_nodes.keys() - self.nodes.keys())),
            reigns=sent(self.reigns),
            acls=self.acls,
            quotas=self.quotas,
        )

    def apply(self, transaction: Transaction) -> ClusterState:
        """The state after a transaction. Stores use it too, so replaying equals running."""
        removed = {gone.node_id: gone for gone in transaction.removed_nodes}
        nodes = {node_id: node for node_id, node in self.nodes.items() if node_id not in removed}
        nodes.update((node.image.node_id, node) for node in transaction.nodes)
        return ClusterState(
            header=transaction.header,
            nodes=nodes,
            topics=_topics_after(self.topics, transaction),
            deleted_topic_ids=self.deleted_topic_ids.union(transaction.deleted_topic_ids),
            removed_nodes={**self.removed_nodes, **removed},
            reigns=with_changed(self.reigns, transaction.reigns),
            acls=_changed(self.acls, transaction.removed_acls, transaction.acls),
            quotas=_changed(self.quotas, transaction.removed_quotas, transaction.quotas),
        )


def _changed(before: tuple[Row, ...], removed: tuple[Row, ...], added: tuple[Row, ...]) -> tuple[Row, ...]:
    if not (removed or added):
        return before
    kept: set[Row] = set(before).difference(removed)
    return tuple(sorted(kept.union(added)))


def _topics_after(before: Mapping[str, TopicImage], transaction: Transaction) -> dict[str, TopicImage]:
    topics = dict(before)
    for record in transaction.topics:
        known = topics.get(record.topic_id)
        topics[record.topic_id] = TopicImage(
            name=record.name,
            topic_id=record.topic_id,
            configs=record.configs,
            partitions=known.partitions if known else (),
            created_by=record.created_by,
            grown_by=record.grown_by,
        )
    changed: dict[str, dict[int, PartitionImage]] = {}
    for partition in transaction.partitions:
        changed.setdefault(partition.tp.topic_id, {})[partition.tp.partition] = partition
    for topic_id, by_index in changed.items():
        topics[topic_id] = replace(topics[topic_id], partitions=_merged(topics[topic_id].partitions, by_index))
    for topic_id in transaction.deleted_topic_ids:
        topics.pop(topic_id, None)
    return topics


def _merged(before: tuple[PartitionImage, ...], by_index: Mapping[int, PartitionImage]) -> tuple[PartitionImage, ...]:
    total = max(len(before), max(by_index) + 1)
    merged = tuple(by_index[index] if index in by_index else before[index] for index in range(total))
    assert all(partition.tp.partition == index for index, partition in enumerate(merged))
    return merged
