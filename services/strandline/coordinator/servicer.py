"""GroupService: its calls become requests to coordinators in the core, and their answers messages.

Invariant: a handler holds no state and decides nothing of groups; which partition coordinates a group, and what its
coordinator answers, is the core's alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import grpc

from strandline.coordinator.state_topic import Create, StateTopic
from strandline.core.coordinator.internal_topics import GROUP_STATE
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.events import CoordinatorAsked
from strandline.core.group_messages import FetchedOffset, OffsetsCommitted, OffsetsFetched
from strandline.core.messages import LeaderHint
from strandline.core.types import TopicPartition
from strandline.rpc.addressing import check_cluster
from strandline.rpc.convert_groups import (
    GroupFetch,
    add_coordinator,
    add_group,
    check_group_id,
    commit_response,
    read_commit,
    read_offset_fetch,
    refused_commit,
)
from strandline.runtime.host import Host
from strandline.v1 import group_service_pb2 as pb
from strandline.v1 import group_service_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["GroupService"].full_name
MAX_WAIT_MS = 30_000
"""How long a request waits at most; less where the caller's own deadline comes first."""
_MARGIN_MS = 50
"""What is left of the caller's time for the answer's way back."""

Context = grpc.aio.ServicerContext[Any, Any]
_Answer = TypeVar("_Answer")


class GroupServicer:
    """GroupService of one data node."""

    def __init__(self, host: Host, create_topic: Create) -> None:
        self._host = host
        self._driver = host.driver
        self.state_topic = StateTopic(GROUP_STATE, create_topic, host.driver.clock)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        pb_grpc.add_GroupServiceServicer_to_server(cast(Any, self), server)

    async def FindCoordinator(self, request: pb.FindCoordinatorRequest, context: Context) -> pb.FindCoordinatorResponse:
        """Names coordinators."""
        topics = self._host.topics
        check_cluster(request.cluster_id if request.HasField("cluster_id") else None, topics)
        if request.key_type != pb.COORDINATOR_KEY_TYPE_UNSPECIFIED:
            message = f"key_type {request.key_type} is not 0, a group; this version coordinates nothing else"
            raise Refused(ErrorCode.INVALID_REQUEST, message, field="key_type")
        keys = list(request.coordinator_keys)
        if not keys or len(set(keys)) < len(keys):
            message = f"coordinator_keys names {keys}; name at least one key, and each once"
            raise Refused(ErrorCode.INVALID_REQUEST, message, field="coordinator_keys")
        response = pb.FindCoordinatorResponse()
        for key in keys:
            add_coordinator(response, key, check_group_id(key) or self._found(key), topics)
        return response

    def _found(self, key: str) -> LeaderHint | Refusal:
        tp = self._driver.core.coordinator_partition(GROUP_STATE, key)
        return self.state_topic.want() if tp is None else self._hint(tp)

    def _hint(self, tp: TopicPartition) -> LeaderHint:
        image = self._host.topics.partition(tp)
        assert image is not None, "the directory of names has every topic that the core knows"
        return LeaderHint(image.leader, image.leader_epoch)

    async def OffsetCommit(self, request: pb.OffsetCommitRequest, context: Context) -> pb.OffsetCommitResponse:
        """Commits offsets."""
        topics = self._host.topics
        commit = read_commit(request, topics)
        if not commit.request.offsets:
            return commit_response((), commit.unresolved, topics)
        try:
            answer = await self._ask(commit.request.group_id, commit.request, context, OffsetsCommitted)
        except Refused as error:
            refused = refused_commit(commit, _definite(error.refusal))
            return commit_response(refused, commit.unresolved, topics, self._whereto(commit.request.group_id, error))
        return commit_response(answer.partitions, commit.unresolved, topics)

    async def OffsetFetch(self, request: pb.OffsetFetchRequest, context: Context) -> pb.OffsetFetchResponse:
        """Returns committed offsets."""
        asked = read_offset_fetch(request, self._host.topics)
        found = await asyncio.gather(*(self._offsets_of(group, context) for group in asked))
        response = pb.OffsetFetchResponse()
        for group, (offsets, hint) in zip(asked, found, strict=True):
            add_group(response, group, offsets, self._host.topics, hint)
        return response

    async def _offsets_of(
        self, group: GroupFetch, context: Context
    ) -> tuple[Sequence[FetchedOffset] | Refusal, LeaderHint | None]:
        if group.refusal is not None:
            return group.refusal, None
        group_id = group.request.group_id
        try:
            answer = await self._ask(group_id, group.request, context, OffsetsFetched)
        except Refused as error:
            return error.refusal, self._whereto(group_id, error)
        return answer.partitions, None

    async def _ask(self, group_id: str, request: object, context: Context, answer_type: type[_Answer]) -> _Answer:
        """Ask the coordinator of a group.

        Raises:
            Refused: the request as a whole.
        """
        tp = self._driver.core.coordinator_partition(GROUP_STATE, group_id)
        if tp is None:
            raise Refused.of(self.state_topic.want())
        timeout_ms = _wait_ms(context)
        return await self._driver.ask(
            lambda now, call: CoordinatorAsked(now, call, tp, timeout_ms, request), answer_type
        )

    def _whereto(self, group_id: str, error: Refused) -> LeaderHint | None:
        if error.refusal.code is not ErrorCode.NOT_COORDINATOR:
            return None
        tp = self._driver.core.coordinator_partition(GROUP_STATE, group_id)
        return None if tp is None else self._hint(tp)


def _definite(refusal: Refusal) -> Refusal:
    """A refusal that says nothing of the commit came before anything was written."""
    return refusal if refusal.outcome is not None else Refusal(refusal.code, refusal.message, Outcome.NOT_APPENDED)


def _wait_ms(context: Context) -> int:
    left_s = cast("float | None", context.time_remaining())
    if left_s is None:
        return MAX_WAIT_MS
    return max(1, min(MAX_WAIT_MS, int(left_s * 1000) - _MARGIN_MS))
