"""Refusals on the wire: Kafka's number, one sentence, and for produce its outcome.

Invariant: the number 0, and no other, means that there is no refusal; an unknown number from a newer peer is read as
UNKNOWN_SERVER_ERROR, never as success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import Endpoint, LeaderHint, ReplicaState
from strandline.core.types import NodeEpoch, NodeId, TopicPartition
from strandline.v1 import error_pb2, leader_service_pb2, partition_pb2

_OUTCOME_TO_WIRE = {
    None: leader_service_pb2.PRODUCE_OUTCOME_UNSPECIFIED,
    Outcome.NOT_APPENDED: leader_service_pb2.PRODUCE_OUTCOME_NOT_APPENDED,
    Outcome.MAY_APPEAR: leader_service_pb2.PRODUCE_OUTCOME_MAY_APPEAR,
}
_OUTCOME_OF_WIRE = {number: outcome for outcome, number in _OUTCOME_TO_WIRE.items()}


class HasError(Protocol):
    """Any message with the two error fields."""

    error_code: error_pb2.ErrorCode.ValueType
    error_message: str


def write_error(message: HasError, refusal: Refusal | None) -> None:
    """Set both error fields, or leave both at their defaults."""
    if refusal is not None:
        message.error_code = error_pb2.ErrorCode.ValueType(int(refusal.code))
        message.error_message = str(refusal)


def read_error(message: HasError, outcome: leader_service_pb2.ProduceOutcome.ValueType | None = None) -> Refusal | None:
    """The refusal that the two error fields represent."""
    number = message.error_code
    if number == 0:
        return None
    try:
        code = ErrorCode(number)
    except ValueError:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"error number {number}: {message.error_message}")
    sentence = message.error_message.removeprefix(f"{code.name}: ")
    return Refusal(code, sentence, _OUTCOME_OF_WIRE.get(outcome) if outcome else None)


def outcome_to_wire(outcome: Outcome | None) -> leader_service_pb2.ProduceOutcome.ValueType:
    """The produce outcome's number."""
    return _OUTCOME_TO_WIRE[outcome]


class Addresses(Protocol):
    """The addresses of nodes, for the kind of caller that asks."""

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """The node's advertised address; None if unknown."""
        ...


_HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def wants_leader(refusal: Refusal) -> bool:
    """Whether an answer names the leader: only if its caller should go there (KIP-951)."""
    return refusal.code in _HINTED


def write_leader(target: partition_pb2.CurrentLeader, hint: LeaderHint, addresses: Addresses | None = None) -> None:
    """Set the leader hint of an answer."""
    target.leader_epoch = hint.leader_epoch
    if hint.leader is None:
        return
    target.leader_id = hint.leader
    endpoint = addresses.endpoint_of(hint.leader) if addresses else None
    if endpoint is not None:
        target.endpoint.host, target.endpoint.port = endpoint


# ---- addressing
# Which log a request means: topics are given by name, by id, or by both; and which cluster it is for.
#
# Invariant: past this file a topic is its id (M63); a topic that cannot be resolved is answered under the name and id
# of the request, and never reaches the core.


class Topics(Addresses, Protocol):
    """The names that metadata gives to topic ids, and the cluster they belong to."""

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster, None before the first registration."""
        ...

    def resolve(self, name: str, topic_id: str) -> str | Refusal:
        """The topic's id, or why there is none."""
        ...

    def name_of(self, topic_id: str) -> str:
        """The topic's name, empty if unknown."""
        ...


class Unresolved(NamedTuple):
    """One requested partition that was not found, with its refusal; ``name`` and ``topic_id`` as requested."""

    name: str
    topic_id: str
    partition: int
    refusal: Refusal


_Part = TypeVar("_Part")
_Partition = TypeVar("_Partition")


class Asked(NamedTuple, Generic[_Part]):
    """The parts of a request for the core, and those that are answered without it."""

    parts: tuple[_Part, ...]
    unresolved: tuple[Unresolved, ...]


def gather(
    topics: Iterable[tuple[str, str, Sequence[_Partition]]],
    directory: Topics,
    index_of: Callable[[_Partition], int],
    build: Callable[[TopicPartition, _Partition], _Part],
    *,
    once_each: bool = True,
) -> Asked[_Part]:
    """Resolve topics given as (name, id, partitions) and build one part for each partition.

    Raises:
        Refused: INVALID_REQUEST when a partition is named twice, with ``once_each``.
    """
    parts: list[_Part] = []
    unresolved: list[Unresolved] = []
    seen: set[TopicPartition] = set()
    for name, topic_id, partitions in topics:
        found = directory.resolve(name, topic_id)
        for partition in partitions:
            index = index_of(partition)
            if isinstance(found, Refusal):
                unresolved.append(Unresolved(name, topic_id, index, found))
                continue
            tp = TopicPartition(found, index)
            if once_each and tp in seen:
                raise invalid(f"partition {index} of topic '{name or topic_id}' is named twice; name it once")
            seen.add(tp)
            parts.append(build(tp, partition))
    return Asked(tuple(parts), tuple(unresolved))


def invalid(message: str) -> Refused:
    """The refusal of a malformed request; for a produce the outcome is definite: not appended."""
    return Refused(ErrorCode.INVALID_REQUEST, message, Outcome.NOT_APPENDED)


def check_cluster(given: str | None, directory: Topics, *, required: bool = False) -> None:
    """Refuse a request for another cluster. ``given`` is None when the field is absent.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID, or INVALID_REQUEST if the id is required and absent.
    """
    ours = directory.cluster_id
    if given is None:
        if required:
            raise invalid("cluster_id is absent; a replica must give it")
    elif ours is not None and given != ours:
        raise Refused(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"cluster_id '{given}' is not this cluster's; connect to the cluster the caller belongs to",
            Outcome.NOT_APPENDED,
            "cluster_id",
        )


def read_replica(state: partition_pb2.ReplicaState) -> ReplicaState:
    """The replica that sent a request.

    Raises:
        Refused: INVALID_REQUEST when its id or its epoch is absent.
    """
    if not state.HasField("replica_id") or not state.HasField("replica_epoch"):
        raise invalid("replica_state needs replica_id and replica_epoch; leave it out altogether as a client")
    if state.replica_id < 0:
        raise invalid(f"replica_id {state.replica_id} must be a node's id; leave replica_state out as a client")
    return ReplicaState(NodeId(state.replica_id), NodeEpoch(state.replica_epoch))


def write_replica(target: partition_pb2.ReplicaState, replica: ReplicaState) -> None:
    """Set the replica that sends a request."""
    target.replica_id, target.replica_epoch = replica


_HasTp = TypeVar("_HasTp")


def by_topic(parts: Iterable[_HasTp], tp_of: Callable[[_HasTp], TopicPartition]) -> Iterator[tuple[str, list[_HasTp]]]:
    """Group parts by topic id, in the order in which topics first appear."""
    groups: dict[str, list[_HasTp]] = {}
    for part in parts:
        groups.setdefault(tp_of(part).topic_id, []).append(part)
    return iter(groups.items())


def named(tps: Iterable[TopicPartition], topics: Topics) -> list[partition_pb2.TopicPartitions]:
    """Partitions as messages that list them by topic, with both name and id."""
    return [
        partition_pb2.TopicPartitions(
            topic=topics.name_of(topic_id), topic_id=topic_id, partitions=[tp.partition for tp in of]
        )
        for topic_id, of in by_topic(tps, lambda tp: tp)
    ]


def unresolved_by_topic(parts: Iterable[Unresolved]) -> Iterator[tuple[tuple[str, str], list[Unresolved]]]:
    """Group unresolved partitions by the name and id they were requested under."""
    groups: dict[tuple[str, str], list[Unresolved]] = {}
    for part in parts:
        groups.setdefault((part.name, part.topic_id), []).append(part)
    return iter(groups.items())


def read_forgotten(topics: Iterable[partition_pb2.TopicPartitions], directory: Topics) -> tuple[TopicPartition, ...]:
    """Partitions that a stream no longer fetches; unknown ones, which have no parked fetch, are left out."""
    found: list[TopicPartition] = []
    for topic in topics:
        topic_id = directory.resolve(topic.topic, topic.topic_id)
        if isinstance(topic_id, str):
            found.extend(TopicPartition(topic_id, index) for index in topic.partitions)
    return tuple(found)
