"""GroupService on the wire, for the server.

Invariants: past this file a topic is its id (M63); an offset of an unknown topic is refused on its own and never
reaches a coordinator. A refusal of a whole commit is written to each of its partitions, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.groups import messages
from strandline.core.messages import LeaderHint
from strandline.core.types import LeaderEpoch, Offset, TopicPartition
from strandline.rpc.convert.errors import (
    Asked,
    Topics,
    Unresolved,
    by_topic,
    check_cluster,
    gather,
    invalid,
    named,
    read_forgotten,
    unresolved_by_topic,
    write_error,
    write_leader,
)
from strandline.v1 import group_service_pb2 as pb

MAX_PRODUCER_EPOCH = (1 << 15) - 1
CommitResponse = pb.OffsetCommitResponse | pb.TxnOffsetCommitResponse
MAX_GROUP_ID = 249
"""Most characters of a group id, the same as of a topic's name."""

_OUTCOMES = {
    None: pb.COMMIT_OUTCOME_UNSPECIFIED,
    Outcome.NOT_APPENDED: pb.COMMIT_OUTCOME_NOT_APPENDED,
    Outcome.MAY_APPEAR: pb.COMMIT_OUTCOME_MAY_APPEAR,
}


class CommitAsked(NamedTuple):
    """A commit: the coordinator's request, and the partitions that are answered without it."""

    request: messages.OffsetCommit | messages.TxnOffsetCommit
    unresolved: tuple[Unresolved, ...]


class GroupFetch(NamedTuple):
    """One group of an OffsetFetch, or why it is refused; and the partitions answered without its coordinator."""

    request: messages.OffsetFetch
    unresolved: tuple[Unresolved, ...] = ()
    refusal: Refusal | None = None


def check_group_id(group_id: str) -> Refusal | None:
    """Refuse an id that no group can have."""
    if group_id.strip() and len(group_id) <= MAX_GROUP_ID:
        return None
    return Refusal(
        ErrorCode.INVALID_GROUP_ID,
        f"group_id has {len(group_id)} characters; give 1 to {MAX_GROUP_ID}, not all of them blank",
        Outcome.NOT_APPENDED,
        field="group_id",
    )


def read_commit(message: pb.OffsetCommitRequest, topics: Topics) -> CommitAsked:
    """A commit.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID, INVALID_GROUP_ID, INVALID_REQUEST: no partition is named, or one twice.
    """
    asked = _offsets_of(message, topics)
    epoch = message.generation_id_or_member_epoch if message.HasField("generation_id_or_member_epoch") else None
    request = messages.OffsetCommit(
        group_id=message.group_id,
        offsets=asked.parts,
        member_id=message.member_id,
        member_epoch=epoch,
        instance_id=message.group_instance_id if message.HasField("group_instance_id") else None,
        coordinator_epoch=message.coordinator_epoch if message.HasField("coordinator_epoch") else None,
        sequence=message.sequence if message.HasField("sequence") else None,
    )
    return CommitAsked(request, asked.unresolved)


def read_txn_commit(message: pb.TxnOffsetCommitRequest, topics: Topics) -> CommitAsked:
    """A commit of a transaction.

    Raises:
        Refused: as in `read_commit`; also INVALID_REQUEST for a producer id or epoch that no producer can have.
    """
    asked = _offsets_of(message, topics)
    if message.producer_id < 0:
        raise invalid(f"producer_id {message.producer_id} must not be negative")
    if not 0 <= message.producer_epoch <= MAX_PRODUCER_EPOCH:
        raise invalid(f"producer_epoch must be 0 to {MAX_PRODUCER_EPOCH}")
    request = messages.TxnOffsetCommit(
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        group_id=message.group_id,
        offsets=asked.parts,
        member_id=message.member_id,
        member_epoch=message.generation_id if message.HasField("generation_id") else None,
        instance_id=message.group_instance_id if message.HasField("group_instance_id") else None,
    )
    return CommitAsked(request, asked.unresolved)


def _offsets_of(
    message: pb.OffsetCommitRequest | pb.TxnOffsetCommitRequest, topics: Topics
) -> Asked[messages.OffsetToCommit]:
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    if refusal := check_group_id(message.group_id):
        raise Refused.of(refusal)
    asked: Asked[messages.OffsetToCommit] = gather(
        [(topic.name, topic.topic_id, topic.partitions) for topic in message.topics],
        topics,
        attrgetter("partition_index"),
        _read_offset,
    )
    if not asked.parts and not asked.unresolved:
        raise Refused(ErrorCode.INVALID_REQUEST, "topics names no partition; give at least one", Outcome.NOT_APPENDED)
    return asked


def _read_offset(tp: TopicPartition, partition: pb.OffsetCommitPartition) -> messages.OffsetToCommit:
    epoch = LeaderEpoch(partition.committed_leader_epoch) if partition.HasField("committed_leader_epoch") else None
    return messages.OffsetToCommit(tp, Offset(partition.committed_offset), epoch, partition.committed_metadata)


def write_commit(
    response: CommitResponse,
    committed: Iterable[messages.CommittedPartition],
    unresolved: Iterable[Unresolved],
    topics: Topics,
    hint: LeaderHint | None = None,
) -> None:
    """Write the results of a commit; ``hint`` names the coordinator to a caller refused with NOT_COORDINATOR."""
    for topic_id, parts in by_topic(committed, attrgetter("tp")):
        topic = response.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for part in parts:
            row = topic.partitions.add(partition_index=part.tp.partition)
            write_error(row, part.refusal)
            row.outcome = _OUTCOMES[part.refusal.outcome if part.refusal else None]
    for (name, topic_id), not_found in unresolved_by_topic(unresolved):
        topic = response.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            row = topic.partitions.add(partition_index=lost.partition, outcome=pb.COMMIT_OUTCOME_NOT_APPENDED)
            write_error(row, lost.refusal)
    if hint is not None:
        write_leader(response.current_coordinator, hint, topics)


def refused_commit(commit: CommitAsked, refusal: Refusal) -> tuple[messages.CommittedPartition, ...]:
    """The results of a commit that is refused as a whole: the same refusal for every partition."""
    return tuple(messages.CommittedPartition(offset.tp, refusal) for offset in commit.request.offsets)


def read_offset_fetch(message: pb.OffsetFetchRequest, topics: Topics) -> tuple[GroupFetch, ...]:
    """The groups whose offsets are requested.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST: no group is named, or one twice.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    names = [group.group_id for group in message.groups]
    if not names or len(set(names)) < len(names):
        raise Refused(ErrorCode.INVALID_REQUEST, f"groups names {names}; name at least one group, and each once")
    return tuple(_read_group(group, message.require_stable, topics) for group in message.groups)


def _read_group(group: pb.OffsetFetchGroup, require_stable: bool, topics: Topics) -> GroupFetch:
    asked: Asked[TopicPartition] | None = None
    refusal = check_group_id(group.group_id)
    if group.HasField("topics"):
        named = [(topic.topic, topic.topic_id, topic.partitions) for topic in group.topics.topics]
        try:
            asked = gather(named, topics, int, lambda tp, _: tp)
        except Refused as error:
            refusal = refusal or error.refusal
    request = messages.OffsetFetch(
        group_id=group.group_id,
        partitions=asked.parts if asked is not None else None,
        member_id=group.member_id if group.HasField("member_id") else None,
        member_epoch=group.member_epoch if group.HasField("member_epoch") else None,
        require_stable=require_stable,
    )
    return GroupFetch(request, asked.unresolved if asked is not None else (), refusal)


def add_group(
    response: pb.OffsetFetchResponse,
    asked: GroupFetch,
    found: Sequence[messages.FetchedOffset] | Refusal,
    topics: Topics,
    hint: LeaderHint | None = None,
) -> None:
    """Add one group's offsets to an answer, or why there are none."""
    group = response.groups.add(group_id=asked.request.group_id)
    if isinstance(found, Refusal):
        write_error(group, found)
        if hint is not None:
            write_leader(group.current_coordinator, hint, topics)
        return
    for topic_id, parts in by_topic(found, attrgetter("tp")):
        topic = group.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for part in parts:
            row = topic.partitions.add(
                partition_index=part.tp.partition,
                committed_offset=part.offset,
                committed_leader_epoch=part.leader_epoch,
                metadata=part.metadata,
                commit_timestamp_ms=part.commit_ms,
            )
            write_error(row, part.refusal)
    for (name, topic_id), not_found in unresolved_by_topic(asked.unresolved):
        topic = group.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)


def add_coordinator(
    response: pb.FindCoordinatorResponse, key: str, found: LeaderHint | Refusal, topics: Topics
) -> None:
    """Add the address of one key's coordinator, or why there is none."""
    row = response.coordinators.add(key=key)
    endpoint = None
    if isinstance(found, Refusal):
        write_error(row, found)
        return
    if found.leader is not None:
        endpoint = topics.endpoint_of(found.leader)
    if found.leader is None or endpoint is None:
        message = "the coordinator's partition has no leader that can be reached now; ask again"
        write_error(row, Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
        return
    row.node_id, row.coordinator_epoch = found.leader, found.leader_epoch
    row.host, row.port = endpoint


def read_heartbeat(
    message: pb.ConsumerGroupHeartbeatRequest, topics: Topics, client_host: str
) -> messages.ConsumerGroupHeartbeat:
    """A member's heartbeat, without partitions that it holds of unknown topics: no member can hold those.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    # One ListFields instead of a HasField for each field: most heartbeats leave most fields out.
    given = {field.name: value for field, value in message.ListFields()}.get
    names, held = given("subscribed_topic_names"), given("topic_partitions")
    return messages.ConsumerGroupHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        instance_id=given("instance_id"),
        rack_id=given("rack_id"),
        rebalance_timeout_ms=given("rebalance_timeout_ms"),
        session_timeout_ms=given("session_timeout_ms"),
        subscribed_topic_names=None if names is None else tuple(names.names),
        subscribed_topic_regex=given("subscribed_topic_regex"),
        server_assignor=given("server_assignor"),
        topic_partitions=None if held is None else read_forgotten(held.topics, topics),
        client_id=message.client_id,
        client_host=client_host,
        coordinator_epoch=given("coordinator_epoch"),
        sequence=given("sequence"),
    )


def heartbeat_response(answer: messages.HeartbeatAnswered, topics: Topics) -> pb.ConsumerGroupHeartbeatResponse:
    """The answer to a member's heartbeat."""
    response = pb.ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        session_timeout_ms=answer.session_timeout_ms,
        group_epoch=answer.group_epoch,
    )
    if answer.assignment is not None:
        response.assignment.SetInParent()
        response.assignment.topics.extend(named(answer.assignment, topics))
    return response


def read_offset_delete(
    message: pb.OffsetDeleteRequest, topics: Topics
) -> tuple[messages.OffsetDelete, tuple[Unresolved, ...]]:
    """The offsets to delete, and the partitions that are answered without the coordinator.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID, INVALID_GROUP_ID, INVALID_REQUEST: no partition is named, or one twice.
    """
    check_cluster(message.cluster_id if message.HasField("cluster_id") else None, topics)
    if refusal := check_group_id(message.group_id):
        raise Refused.of(refusal)
    given = [(topic.topic, topic.topic_id, topic.partitions) for topic in message.topics]
    asked: Asked[TopicPartition] = gather(given, topics, int, lambda tp, _: tp)
    if not asked.parts and not asked.unresolved:
        raise Refused(ErrorCode.INVALID_REQUEST, "topics names no partition; give at least one")
    return messages.OffsetDelete(group_id=message.group_id, partitions=asked.parts), asked.unresolved


def offset_delete_response(
    deleted: Iterable[messages.DeletedOffset], unresolved: Iterable[Unresolved], topics: Topics
) -> pb.OffsetDeleteResponse:
    """The result for each offset to delete."""
    response = pb.OffsetDeleteResponse()
    for topic_id, parts in by_topic(deleted, attrgetter("tp")):
        topic = response.topics.add(name=topics.name_of(topic_id), topic_id=topic_id)
        for part in parts:
            write_error(topic.partitions.add(partition_index=part.tp.partition), part.refusal)
    for (name, topic_id), not_found in unresolved_by_topic(unresolved):
        topic = response.topics.add(name=name, topic_id=topic_id)
        for lost in not_found:
            write_error(topic.partitions.add(partition_index=lost.partition), lost.refusal)
    return response


def add_described(response: pb.DescribeGroupsResponse, found: messages.GroupDescribed, topics: Topics) -> None:
    """Add one group with its members."""
    group = response.groups.add(
        group_id=found.group_id,
        group_state=found.group_state,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor_name,
    )
    for member in found.members:
        said = member.said
        group.members.add(
            member_id=member.member_id,
            instance_id=said.instance_id,
            rack_id=said.rack_id,
            member_epoch=member.member_epoch,
            client_id=said.client_id,
            client_host=said.client_host,
            subscribed_topic_names=said.topic_names,
            subscribed_topic_regex=said.topic_regex,
            assignment=named(member.assignment, topics),
            target_assignment=named(member.target_assignment, topics),
            member_state=member.member_state,
            last_heartbeat_age_ms=member.last_heartbeat_age_ms,
            last_commit_age_ms=member.last_commit_age_ms,
            revoking=named(member.revoking, topics),
            session_timeout_ms=said.session_timeout_ms,
            rebalance_timeout_ms=said.rebalance_timeout_ms,
        )
