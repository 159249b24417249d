"""Reassignments as a user sends them and sees them.

Invariant: a request that was perhaps done by an earlier attempt is answered as if it was: a cancel that finds nothing
left to cancel has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from strandline.core.errors import ErrorCode, Refusal
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.errors import read_error
from strandline.v1 import controller_service_pb2 as pb, partition_pb2

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
