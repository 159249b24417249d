"""What the controller answers to administration, and how a refusal in a row becomes an exception.

Invariant: a row with an error never passes for an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from strandline.client.administer.described import DescribedNode, node_of
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.errors import HasError, read_error
from strandline.rpc.convert.metadata import read_node
from strandline.v1 import controller_service_pb2 as pb, partition_pb2


class CreatedTopic(NamedTuple):
    """A topic as the controller made it."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int


class ListedNode(NamedTuple):
    """A registered node with its session."""

    node: DescribedNode
    directory_id: str
    last_heartbeat_age_ms: int | None
    metadata_offset: int | None
    feature_min: int = 1
    feature_max: int = 1
    """The feature levels that its process can speak."""


class Election(NamedTuple):
    """What became of one election; ``leader`` is None if the partition has none now."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    refusal: Refusal | None


def read_elections(answer: pb.ElectLeadersResponse) -> list[Election]:
    """One row per partition, won or not."""
    return [
        Election(
            topic.topic,
            row.partition_index,
            row.leader_id if row.HasField("leader_id") else None,
            row.leader_epoch if row.HasField("leader_epoch") else None,
            read_error(row),
        )
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]


def held_before(election: Election) -> Election:
    """The row of a repeat as the first request would have had it: where it finds an election held, that one was."""
    refusal = election.refusal
    is_held = refusal is not None and refusal.code is ErrorCode.ELECTION_NOT_NEEDED and election.leader is not None
    return election._replace(refusal=None) if is_held else election


def read_listed(row: pb.ListedNode) -> ListedNode:
    """One registered node."""
    return ListedNode(
        node_of(read_node(row.node)),
        row.directory_id,
        row.last_heartbeat_age_ms if row.HasField("last_heartbeat_age_ms") else None,
        row.current_metadata_offset if row.HasField("current_metadata_offset") else None,
        row.feature_levels.min_level,
        row.feature_levels.max_level,
    )


def write_assignments(assignments: Mapping[int, Sequence[int]]) -> list[pb.ReplicaAssignment]:
    """Node ids by partition, the preferred leader first."""
    return [
        pb.ReplicaAssignment(partition_index=index, node_ids=node_ids)
        for index, node_ids in sorted(assignments.items())
    ]


def check(row: HasError) -> None:
    """Raise the row's refusal, if it has one."""
    refusal = read_error(row)
    if refusal is not None:
        raise Refused.of(refusal)


_Row = TypeVar("_Row", bound=HasError)


def only(rows: Sequence[_Row]) -> _Row:
    """The one answer to a request about one thing, if it is no refusal."""
    if len(rows) != 1:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller answered {len(rows)} times to one question")
    check(rows[0])
    return rows[0]


# ---- reassignments
# Reassignments as a user sends them and sees them.
#
# Invariant: a request that was perhaps done by an earlier attempt is answered as if it was: a cancel that finds nothing
# left to cancel has happened.

State = Literal["queued", "running"]

Targets = Mapping[tuple[str, int], Sequence[int] | None]
"""By topic and partition the nodes that are to hold it, the preferred leader first; None: cancel."""

_STATE: Mapping[int, State] = {pb.REASSIGNMENT_STATE_QUEUED: "queued", pb.REASSIGNMENT_STATE_RUNNING: "running"}


class Reassigned(NamedTuple):
    """What became of one reassignment; ``state`` is None if it ended at once, or was refused or only checked."""

    topic: str
    partition: int
    state: State | None
    refusal: Refusal | None


class OngoingReassignment(NamedTuple):
    """A reassignment that has not ended."""

    topic: str
    partition: int
    state: State | None
    replicas: tuple[int, ...]
    """The nodes that hold the partition now, added and removed ones included."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    target: tuple[int, ...]
    waiting_for: Mapping[int, str]
    """By node what is waited for there."""
    since_ms: int | None
    """How long it has waited or run, in milliseconds; None: since before the controller decides."""
    throttle_bytes_per_s: int | None = None
    """The rate at which it copies; None: as fast as it can."""


class DrainedNode(NamedTuple):
    """What a drained node still has: replicas, those of queued targets included, and leaderships."""

    remaining_replicas: int
    remaining_leaders: int


def write_targets(
    targets: Targets, planned_from: Mapping[tuple[str, int], Sequence[int]]
) -> list[pb.ReassignableTopic]:
    """The entries of a request, in the order of ``targets``."""
    topics: dict[str, pb.ReassignableTopic] = {}
    for (topic, index), nodes in targets.items():
        entry = topics.setdefault(topic, pb.ReassignableTopic(name=topic)).partitions.add(partition_index=index)
        if nodes is not None:
            entry.target.CopyFrom(pb.ReplicaList(node_ids=nodes))
        if (planned := planned_from.get((topic, index))) is not None:
            entry.planned_from.CopyFrom(pb.ReplicaList(node_ids=planned))
    return list(topics.values())


def read_results(
    answer: pb.AlterPartitionReassignmentsResponse, targets: Targets, *, may_repeat: bool
) -> list[Reassigned]:
    """One row per partition; ``may_repeat``: an earlier attempt may have been taken."""
    rows = []
    for topic in answer.responses:
        for row in topic.partitions:
            refusal = read_error(row)
            was_cancelled = refusal is not None and refusal.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            if may_repeat and was_cancelled and targets.get((topic.name, row.partition_index)) is None:
                refusal = None
            rows.append(Reassigned(topic.name, row.partition_index, _STATE.get(row.state), refusal))
    return rows


def write_partitions(partitions: Iterable[tuple[str, int]]) -> list[partition_pb2.TopicPartitions]:
    """Partitions by topic."""
    topics: dict[str, partition_pb2.TopicPartitions] = {}
    for topic, index in partitions:
        topics.setdefault(topic, partition_pb2.TopicPartitions(topic=topic)).partitions.append(index)
    return list(topics.values())


_ONGOING = ByName(
    OngoingReassignment,
    pb.OngoingPartitionReassignment,
    topic=None,
    partition="partition_index",
    state=As("state", None, _STATE.get),
    adding="adding_replicas",
    removing="removing_replicas",
    target="target_replicas",
    waiting_for=As("waiting_for", None, lambda waits: {wait.node_id: wait.why for wait in waits}),
    throttle_bytes_per_s=As("throttle_bytes_per_s", None, lambda rate: rate or None),
)


def read_ongoing(answer: pb.ListPartitionReassignmentsResponse) -> list[OngoingReassignment]:
    """Every reassignment that has not ended, in the controller's order of topics."""
    return [_ONGOING.read(row, topic=topic.name) for topic in answer.topics for row in topic.partitions]
