"""GroupService: turns its calls into requests to coordinators in the core, and their answers into messages.

Invariant: a handler holds no state and decides nothing about groups; only the core decides which partition coordinates
a group, and what its coordinator answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import unquote

import grpc

from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.groups.messages import (
    JOIN_EPOCH,
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    FetchedOffset,
    GroupDeleted,
    GroupDescribed,
    GroupsListed,
    HeartbeatAnswered,
    ListedGroup,
    ListGroups,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
)
from strandline.core.messages import LeaderHint
from strandline.core.permissions import ResourceType
from strandline.node.shard_calls import Context, Create, ShardCalls, wait_ms
from strandline.rpc.convert import groups
from strandline.rpc.convert.errors import check_cluster, write_error
from strandline.rpc.convert.transactions import check_transactional_id
from strandline.rpc.permitted import permitted, refused, sees, subscription_refusal
from strandline.runtime.host import Host
from strandline.v1 import group_service_pb2 as pb, group_service_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["GroupService"].full_name

_Answer = TypeVar("_Answer")


class HasCluster(Protocol):
    """A request that may name its cluster."""

    cluster_id: str

    def HasField(self, field_name: Any) -> bool:
        """Whether a field is set."""
        ...


class GroupServicer:
    """GroupService of one data node."""

    def __init__(
        self,
        host: Host,
        create_topic: Create,
        transactions: ShardCalls,
        *,
        on_commit: Callable[[Iterable[Refusal | None]], None] = lambda _: None,
    ) -> None:
        """``transactions`` finds the coordinators of transactional ids. ``on_commit`` is called after each commit with
        the refusal of each partition, or None."""
        self._host = host
        self._on_commit = on_commit
        self._driver = host.driver
        self.shards = ShardCalls(host, GROUP_STATE, create_topic)
        self._transactions = transactions

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        pb_grpc.add_GroupServiceServicer_to_server(cast(Any, self), server)

    async def FindCoordinator(self, request: pb.FindCoordinatorRequest, context: Context) -> pb.FindCoordinatorResponse:
        """Returns the addresses of coordinators."""
        topics = self._host.topics
        check_cluster(request.cluster_id if request.HasField("cluster_id") else None, topics)
        if request.key_type not in (pb.COORDINATOR_KEY_TYPE_UNSPECIFIED, pb.COORDINATOR_KEY_TYPE_TRANSACTION):
            message = f"key_type {request.key_type} is neither 0, a group, nor 1, a transactional id"
            raise Refused(ErrorCode.INVALID_REQUEST, message, field="key_type")
        is_group = request.key_type == pb.COORDINATOR_KEY_TYPE_UNSPECIFIED
        shards, check, kind = (
            (self.shards, groups.check_group_id, ResourceType.GROUP)
            if is_group
            else (self._transactions, check_transactional_id, ResourceType.TRANSACTIONAL_ID)
        )
        keys = list(request.coordinator_keys)
        if not keys or len(set(keys)) < len(keys):
            message = f"coordinator_keys names {keys}; name at least one key, and each once"
            raise Refused(ErrorCode.INVALID_REQUEST, message, field="coordinator_keys")
        response = pb.FindCoordinatorResponse()
        for key in keys:
            groups.add_coordinator(
                response, key, check(key) or refused(kind, key) or shards.coordinator_of(key), topics
            )
        return response

    async def OffsetCommit(self, request: pb.OffsetCommitRequest, context: Context) -> pb.OffsetCommitResponse:
        """Commits offsets."""
        response = pb.OffsetCommitResponse()
        await self._commit(groups.read_commit(request, permitted(self._host.topics)), context, response)
        return response

    async def TxnOffsetCommit(self, request: pb.TxnOffsetCommitRequest, context: Context) -> pb.TxnOffsetCommitResponse:
        """Commits offsets as part of a transaction."""
        response = pb.TxnOffsetCommitResponse()
        await self._commit(groups.read_txn_commit(request, permitted(self._host.topics)), context, response)
        return response

    async def _commit(self, commit: groups.CommitAsked, context: Context, response: groups.CommitResponse) -> None:
        rows: Sequence[CommittedPartition] = ()
        hint: LeaderHint | None = None
        if commit.request.offsets:
            try:
                answer = await self._ask(commit.request.group_id, commit.request, context, OffsetsCommitted)
                rows = answer.partitions
            except Refused as error:
                rows = groups.refused_commit(commit, _definite(error.refusal))
                hint = self.shards.whereto(commit.request.group_id, error.refusal)
        self._on_commit([*(row.refusal for row in rows), *(one.refusal for one in commit.unresolved)])
        groups.write_commit(response, rows, commit.unresolved, self._host.topics, hint)

    async def OffsetFetch(self, request: pb.OffsetFetchRequest, context: Context) -> pb.OffsetFetchResponse:
        """Returns committed offsets."""
        asked = groups.read_offset_fetch(request, permitted(self._host.topics))
        found = await asyncio.gather(*(self._offsets_of(group, context) for group in asked))
        response = pb.OffsetFetchResponse()
        for group, (offsets, hint) in zip(asked, found, strict=True):
            groups.add_group(response, group, offsets, self._host.topics, hint)
        return response

    async def _offsets_of(
        self, group: groups.GroupFetch, context: Context
    ) -> tuple[Sequence[FetchedOffset] | Refusal, LeaderHint | None]:
        group_id = group.request.group_id
        if refusal := group.refusal or refused(ResourceType.GROUP, group_id):
            return refusal, None
        try:
            answer = await self._ask(group_id, group.request, context, OffsetsFetched)
        except Refused as error:
            return error.refusal, self.shards.whereto(group_id, error.refusal)
        topics = self._host.topics
        return [one for one in answer.partitions if sees(ResourceType.TOPIC, topics.name_of(one.tp.topic_id))], None

    async def ConsumerGroupHeartbeat(
        self, request: pb.ConsumerGroupHeartbeatRequest, context: Context
    ) -> pb.ConsumerGroupHeartbeatResponse:
        """Takes a member's heartbeat."""
        topics = self._host.topics
        # The address is needed only from a member that joins.
        host = _host_of(context.peer()) if request.member_epoch == JOIN_EPOCH else ""
        asked = groups.read_heartbeat(request, topics, host)
        try:
            names, pattern = asked.subscribed_topic_names, asked.subscribed_topic_regex
            # Most heartbeats leave both out.
            if (names or pattern) and (refusal := subscription_refusal(names, pattern)):
                raise Refused.of(refusal)
            tp = self.shards.partition_of(asked.group_id)
            answer = await self.shards.ask_at(tp, asked, wait_ms(context), HeartbeatAnswered)
        except Refused as error:
            response = pb.ConsumerGroupHeartbeatResponse()
            write_error(response, error.refusal)
            self.shards.point(response, asked.group_id, error.refusal)
            return response
        response = groups.heartbeat_response(answer, topics)
        response.coordinator_epoch = self.shards.leader_of(tp).leader_epoch
        return response

    async def OffsetDelete(self, request: pb.OffsetDeleteRequest, context: Context) -> pb.OffsetDeleteResponse:
        """Deletes offsets."""
        asked, unresolved = groups.read_offset_delete(request, permitted(self._host.topics))
        if not asked.partitions:
            return groups.offset_delete_response((), unresolved, self._host.topics)
        try:
            answer = await self._ask(asked.group_id, asked, context, OffsetsDeleted)
        except Refused as error:
            response = pb.OffsetDeleteResponse()
            write_error(response, error.refusal)
            self.shards.point(response, asked.group_id, error.refusal)
            return response
        return groups.offset_delete_response(answer.partitions, unresolved, self._host.topics)

    async def DeleteGroups(self, request: pb.DeleteGroupsRequest, context: Context) -> pb.DeleteGroupsResponse:
        """Deletes groups."""
        names = self._named_once(request, request.groups_names, "groups_names")
        response = pb.DeleteGroupsResponse()
        found = await asyncio.gather(
            *(self._answer_or_error(name, DeleteGroup(group_id=name), context, GroupDeleted) for name in names)
        )
        for name, answer in zip(names, found, strict=True):
            row = response.results.add(group_id=name)
            if isinstance(answer, Refused):
                write_error(row, answer.refusal)
                self.shards.point(row, name, answer.refusal)
        return response

    async def DescribeGroups(self, request: pb.DescribeGroupsRequest, context: Context) -> pb.DescribeGroupsResponse:
        """Describes groups."""
        names = self._named_once(request, request.group_ids, "group_ids")
        response = pb.DescribeGroupsResponse()
        found = await asyncio.gather(
            *(self._answer_or_error(name, DescribeGroup(group_id=name), context, GroupDescribed) for name in names)
        )
        for name, answer in zip(names, found, strict=True):
            if isinstance(answer, Refused):
                row = response.groups.add(group_id=name)
                write_error(row, answer.refusal)
                self.shards.point(row, name, answer.refusal)
            elif refusal := self._hidden(answer):
                write_error(response.groups.add(group_id=name), refusal)
            else:
                groups.add_described(response, answer, self._host.topics)
        return response

    def _hidden(self, found: GroupDescribed) -> Refusal | None:
        """Why a group is not described, because its members use topics that the caller may not see; None if it is."""
        names = {name for member in found.members for name in member.said.topic_names or ()}
        for member in found.members:
            held = (*member.assignment, *member.target_assignment, *member.revoking)
            names.update(self._host.topics.name_of(tp.topic_id) for tp in held)
        names.discard("")
        return next((why for name in sorted(names) if (why := refused(ResourceType.TOPIC, name))), None)

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        """Lists the groups that this node coordinates."""
        check_cluster(request.cluster_id if request.HasField("cluster_id") else None, self._host.topics)
        asked = ListGroups(states=tuple(request.states_filter), types=tuple(request.types_filter))
        response = pb.ListGroupsResponse()
        listed: list[ListedGroup] = []
        for tp in self.shards.here():
            try:
                found = (await self.shards.ask_at(tp, asked, wait_ms(context), GroupsListed)).groups
                listed += (group for group in found if sees(ResourceType.GROUP, group.group_id))
            except Refused as error:
                write_error(response, error.refusal)
        for group in sorted(listed):
            response.groups.add(**group._asdict())
        return response

    def _named_once(self, request: HasCluster, names: Sequence[str], field: str) -> Sequence[str]:
        check_cluster(request.cluster_id if request.HasField("cluster_id") else None, self._host.topics)
        if not names or len(set(names)) < len(names):
            message = f"{field} names {list(names)}; name at least one group, and each once"
            raise Refused(ErrorCode.INVALID_REQUEST, message, field=field)
        return names

    async def _answer_or_error(
        self, group_id: str, request: object, context: Context, answer_type: type[_Answer]
    ) -> _Answer | Refused:
        try:
            if refusal := groups.check_group_id(group_id) or refused(ResourceType.GROUP, group_id):
                raise Refused.of(refusal)
            return await self._ask(group_id, request, context, answer_type)
        except Refused as error:
            return error

    async def _ask(self, group_id: str, request: object, context: Context, answer_type: type[_Answer]) -> _Answer:
        """Ask the coordinator of a group.

        Raises:
            Refused: the request was refused as a whole.
        """
        return await self.shards.ask(group_id, request, wait_ms(context), answer_type)


def _definite(refusal: Refusal) -> Refusal:
    """The refusal with its outcome: one without came before anything was written."""
    return refusal if refusal.outcome is not None else Refusal(refusal.code, refusal.message, Outcome.NOT_APPENDED)


def _host_of(peer: str) -> str:
    """The host in gRPC's name of a peer, for example ``ipv4:127.0.0.1:50123``."""
    _, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]")
