"""What the controller answers to administration, and how a refusal in a row becomes an exception.

Invariant: a row with an error never passes for an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from strandline.client.administer.described import DescribedNode, node_of
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.rpc.convert.errors import HasError, read_error
from strandline.rpc.convert.metadata import read_node
from strandline.v1 import controller_service_pb2 as pb


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
