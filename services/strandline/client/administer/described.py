"""What an admin returns of a cluster: values of the client's own, so that the inside of a node can change.

Invariant: a value says what its sender knew when it answered; it does not change, and nothing in it leads back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from strandline.core import messages
from strandline.core.errors import Refusal
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.describe import ControllerDescribed
from strandline.rpc.convert.errors import read_error
from strandline.v1 import follower_service_pb2, leader_service_pb2

_T = TypeVar("_T")


class Endpoint(NamedTuple):
    """An advertised address."""

    host: str
    port: int


class ConfigSource(Enum):
    """Where the value of a setting comes from."""

    TOPIC = "topic"
    NODE = "node"
    """Each node has the one that it was started with."""
    DEFAULT = "default"


class TopicConfig(NamedTuple):
    """A setting as it is in force; ``value`` is None if each node has its own."""

    name: str
    value: str | None
    source: ConfigSource
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedNode:
    """A registered node."""

    node_id: int
    node_epoch: int
    """Another number for each process of the node."""
    client_endpoint: Endpoint | None = None
    internal_endpoint: Endpoint | None = None
    rack: str | None = None
    roles: frozenset[str] = frozenset({"leader", "follower"})
    is_observer: bool = False
    """It replicates everything and is never elected (M60)."""
    fenced: bool = True
    """Its session is over; nothing is expected of it."""
    shutting_down: bool = False
    disk_nearly_full: bool = False
    """It refuses writes for lack of disk space."""
    draining: bool = False
    """It gets no new replicas, and leads only where no other replica can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """A partition as the controller decided it. Node ids; ``replicas`` has the preferred leader first."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): out of sync, and still with every committed record."""
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    min_isr: int
    """In force: min(min.insync.replicas, replication factor)."""
    recovering: bool = False
    """Its leader was elected uncleanly and is not past its first epoch yet."""
    last_unclean_leader_epoch: int | None = None
    observers: tuple[int, ...] = ()
    unproven: tuple[int, ...] = ()
    """Members of ISR and ELR whose present process no leader has counted yet: their disk may lack records (M64)."""
    adding: tuple[int, ...] = ()
    """Those of ``replicas`` that a running reassignment adds."""
    removing: tuple[int, ...] = ()
    """Those of ``replicas`` that a running reassignment removes."""
    original: tuple[int, ...] = ()
    """The replicas before a running reassignment, to which a cancel returns; empty: none runs."""
    queued_target: tuple[int, ...] = ()
    """The replicas after a reassignment that waits for its turn; empty: none waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopic:
    """A topic, its own settings, and its partitions in the order of their index."""

    name: str
    topic_id: str
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[DescribedPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCluster:
    """The whole state of a cluster at one position of its metadata."""

    cluster_id: str
    controller_epoch: int
    metadata_offset: int
    feature_level: int = 1
    durability: str = "fsync"
    """What an acknowledgement means: "fsync" on every in-sync replica, or in their "page-cache"."""
    loss_warning: str | None = None
    """What the cluster's settings may lose, in a sentence; None: nothing that was acknowledged."""
    nodes: tuple[DescribedNode, ...] = ()
    topics: tuple[DescribedTopic, ...] = ()
    removed_node_ids: tuple[int, ...] = ()
    """Nodes that were removed and have not registered again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedFollower:
    """A replica as the partition's leader knows it."""

    node_id: int
    node_epoch: int | None
    remote_leo: int | None
    """Its log end; None: it has not fetched in this leader epoch."""
    last_fetch_age_ms: int | None
    last_caught_up_age_ms: int | None
    in_isr: bool
    is_observer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedLeader:
    """What a partition's leader measures."""

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    epoch_start_offset: int
    leo: int
    durable_leo: int
    high_watermark: int
    log_start_offset: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    """The ISR and every replica that a pending change would add: all must have a record before it is committed."""
    elr: tuple[int, ...]
    min_isr: int
    replicas: tuple[DescribedFollower, ...] = ()
    last_stable_offset: int | None = None
    """Below it every transaction is decided; None from a release without transactions."""
    oldest_open_producer_id: int | None = None
    """The producer of the longest open transaction; None if none is open."""
    retention_waits_until_ms: int | None = None
    """The future time of a record for which retention by time waits, in ms since 1970; None where it does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A replica as it sees itself."""

    leo: int
    durable_leo: int
    high_watermark: int
    log_start_offset: int
    fetch_state: str
    """`leading`, `truncating`, `fetching`, `waiting` (no leader) or `failed`."""
    reason: str
    """Why the state is `failed`, else empty."""
    leader: int | None
    leader_epoch: int
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch, its first offset) of everything in its log."""


class DescribedReplica(NamedTuple):
    """One replica as its own node sees it; ``view`` is None with a ``refusal``."""

    node_id: int
    topic: str
    partition: int
    size_bytes: int
    view: ReplicaState | None
    refusal: Refusal | None


class DescribedController(NamedTuple):
    """One controller, as any of them describes it."""

    controller_id: str
    client: Endpoint
    internal: Endpoint
    is_active: bool
    """Whether it is the one that decides."""
    offset: int
    """The position of its metadata."""
    lag: int
    """How far that is behind the one that decides."""


def _same(kind: Callable[..., _T], source: object, **given: object) -> _T:
    """A value of fields that another one has by the same names, and of those ``given``."""
    return kind(**{name: getattr(source, name) for name in kind.__annotations__ if name not in given}, **given)


def cluster_of(image: messages.MetadataImage) -> DescribedCluster:
    """The state that came over the wire."""
    return _same(
        DescribedCluster,
        image,
        durability=image.rules.durability.value,
        loss_warning=image.rules.loss_warning,
        nodes=tuple(map(node_of, image.nodes)),
        topics=tuple(map(topic_of, image.topics)),
    )


def node_of(node: messages.NodeImage) -> DescribedNode:
    """A node that came over the wire."""
    return _same(
        DescribedNode,
        node,
        client_endpoint=Endpoint(*node.client_endpoint) if node.client_endpoint is not None else None,
        internal_endpoint=Endpoint(*node.internal_endpoint) if node.internal_endpoint is not None else None,
        roles=frozenset(role.value for role in node.roles),
    )


def topic_of(topic: messages.TopicImage) -> DescribedTopic:
    """A topic that came over the wire."""
    partitions = (
        _same(DescribedPartition, each, topic=topic.name, partition=each.tp.partition) for each in topic.partitions
    )
    return _same(DescribedTopic, topic, configs=dict(topic.configs), partitions=tuple(partitions))


def config_of(config: messages.TopicConfig) -> TopicConfig:
    """A setting that came over the wire."""
    return TopicConfig(config.name, config.value, ConfigSource(config.source.value), config.default)


def controller_of(found: ControllerDescribed) -> DescribedController:
    """A controller that came over the wire."""
    client, internal = Endpoint(*found.client), Endpoint(*found.internal)
    return DescribedController(found.controller_id, client, internal, found.is_active, found.offset, found.lag)


# ---- describing
# A leader's and a replica's own view of a partition, read from the wire.
#
# Invariant: a row with an error becomes a refusal, never a view with zeros in it.

_STATES: dict[int, str] = {
    follower_service_pb2.FETCH_STATE_TRUNCATING: "truncating",
    follower_service_pb2.FETCH_STATE_FETCHING: "fetching",
    follower_service_pb2.FETCH_STATE_FAILED: "failed",
    follower_service_pb2.FETCH_STATE_LEADING: "leading",
    follower_service_pb2.FETCH_STATE_WAITING: "waiting",
}


def fetch_state_of(number: int) -> str:
    """A fetch state in a word; a node of a later release may have states that this client does not know."""
    return _STATES.get(number, "unknown")


_FOLLOWER = ByName(
    DescribedFollower,
    leader_service_pb2.DescribedRemoteReplica,
    node_id="replica_id",
    remote_leo="log_end_offset",
    is_observer="observer",
)
_LEADER = ByName(
    DescribedLeader,
    leader_service_pb2.DescribedPartition,
    topic=None,
    partition="partition_index",
    leo="log_end_offset",
    durable_leo="durable_log_end_offset",
    min_isr="min_insync_replicas",
    replicas=As("replicas", None, _FOLLOWER.read_all),
)
_REPLICA = ByName(
    ReplicaState,
    follower_service_pb2.DescribedReplica,
    leo="log_end_offset",
    durable_leo="durable_log_end_offset",
    fetch_state=As("fetch_state", None, fetch_state_of),
    reason="failed_reason",
    leader="leader_id",
    leader_epoch=None,
    epochs=As("epoch_entries", None, lambda entries: tuple((entry.epoch, entry.start_offset) for entry in entries)),
)


def read_leaders(response: leader_service_pb2.DescribePartitionsResponse) -> list[DescribedLeader]:
    """The partitions the node leads; rows with an error are left out."""
    return [
        _LEADER.read(row, topic=topic.topic)
        for topic in response.topics
        for row in topic.partitions
        # Every node is asked, and refuses what it does not lead.
        if not row.error_code
    ]


def read_replicas(response: follower_service_pb2.DescribeReplicasResponse) -> Iterator[DescribedReplica]:
    """Every replica the node was asked for, with its view or why there is none."""
    for topic in response.topics:
        for row in topic.partitions:
            refusal = read_error(row)
            epoch = row.leader_epoch if row.HasField("leader_epoch") else -1
            view = None if refusal is not None else _REPLICA.read(row, leader_epoch=epoch)
            yield DescribedReplica(
                response.node_id, topic.topic, row.partition_index, row.log_size_bytes, view, refusal
            )
