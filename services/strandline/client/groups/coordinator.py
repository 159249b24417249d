"""Where the coordinator of one key is, and how it is asked: again after a pause while it moves or loads (G2, G31).

Invariant: a call that ends with NOT_APPENDED changed nothing in any of its attempts; a coordinator that moves, loads or
is away is an error to the caller only once the deadline has passed.
"""

from __future__ import annotations

import random
import time
from asyncio import gather, sleep
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Protocol, TypeVar

import grpc

from strandline.client.background import countdown, is_connected
from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import ClusterUnreachable
from strandline.client.log import RetryLog
from strandline.core.coordinator.internal_topics import GROUP_STATE, partition_of
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import Endpoint
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline.rpc.channels import Backoff, UnaryMethod
from strandline.rpc.convert.errors import HasError, read_error
from strandline.v1 import group_service_pb2 as pb, partition_pb2
from strandline.v1.group_service_pb2_grpc import GroupServiceStub

if TYPE_CHECKING:
    from strandline.v1.group_service_pb2_grpc import GroupServiceAsyncStub


_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")
_Stub = TypeVar("_Stub")
_List = TypeVar("_List", bound=HasError)

ATTEMPT_MS = 5_000
"""How long one attempt waits for its answer at most."""
_CONNECT_MS = 2_000
_FIND_MS = 1_000
"""How long one node is asked where the coordinator is, before the next one is."""
_MOMENTARY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        # The transaction before is ended, or an offset of one is still open: both pass within its time-out.
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


def passes_by(refusal: Refusal) -> bool:
    """Whether the same question, asked of the coordinator a little later, may be answered."""
    return refusal.code in _MOMENTARY


class RequestVerdict(NamedTuple):
    """What an answer says of its request as a whole."""

    refusal: Refusal | None
    coordinator: partition_pb2.CurrentLeader | None = None
    """The coordinator of the key, as far as the refusing node knows."""


class _SaysCoordinator(HasError, Protocol):
    @property
    def current_coordinator(self) -> partition_pb2.CurrentLeader: ...

    def HasField(self, field_name: Literal["current_coordinator"], /) -> bool: ...  # noqa: N802 - protobuf names it


def verdict_of(answer: _SaysCoordinator) -> RequestVerdict:
    """What an answer, or the one row of an answer, says."""
    hint = answer.current_coordinator if answer.HasField("current_coordinator") else None
    return RequestVerdict(read_error(answer), hint)


class Answered(NamedTuple, Generic[_Answer]):
    """An answer, and whether an earlier attempt may have done the work already."""

    answer: _Answer
    is_repeated: bool


class CoordinatorKind(NamedTuple, Generic[_Stub]):
    """What is coordinated, and by which service."""

    noun: str
    """What a key names."""
    topic: str
    """Where its state lives."""
    key_type: pb.CoordinatorKeyType.ValueType
    stub: Callable[[grpc.aio.Channel], _Stub]


class Coordinator(Generic[_Stub]):
    """The coordinator of one key."""

    def __init__(self, cluster: Cluster, kind: CoordinatorKind[_Stub], key: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self.answered_by: NodeId | None = None
        """The node that answered last; None before."""

    async def ask(
        self,
        method: Callable[[_Stub], UnaryMethod[_Request, _Answer]],
        request: _Request,
        judge: Callable[[_Answer], RequestVerdict],
        *,
        deadline_ms: int,
        before_each: Callable[[], None] = lambda: None,
    ) -> Answered[_Answer]:
        """The coordinator's answer, asked for again with pauses of 50 ms to 1 s until the deadline.

        ``before_each`` is called before each attempt; it may change the request.

        Raises:
            Refused: what the coordinator refused; after the deadline the last reason why there was no answer. Its
                outcome is MAY_APPEAR if any attempt may have been carried out.
        """
        left = countdown(deadline_ms)
        backoff = Backoff()
        retry = RetryLog(f"asking the coordinator of {self._kind.noun} {self._key}")
        may_appear = False
        while True:
            before_each()
            try:
                # Not all of the time for one attempt: a coordinator that hangs may have a successor by then.
                answer = await self.ask_once(method, request, judge, deadline_ms=min(left(), ATTEMPT_MS))
            except Refused as refused:
                refusal = refused.refusal
                # One attempt that may have been carried out makes the whole indefinite, whatever the last says (P2).
                may_appear = may_appear or refusal.outcome is Outcome.MAY_APPEAR
                pause_s = backoff.next_s()
                if not passes_by(refusal) or pause_s * 1000 >= left():
                    outcome = Outcome.MAY_APPEAR if may_appear else refusal.outcome
                    raise Refused.of(replace(refusal, outcome=outcome)) from None
                retry.failed(time.monotonic() * 1000, str(refusal))
                await sleep(pause_s)
            else:
                retry.worked()
                return Answered(answer, may_appear)

    async def ask_once(
        self,
        method: Callable[[_Stub], UnaryMethod[_Request, _Answer]],
        request: _Request,
        judge: Callable[[_Answer], RequestVerdict],
        *,
        deadline_ms: int = ATTEMPT_MS,
    ) -> _Answer:
        """One attempt.

        Raises:
            Refused: as the answer's verdict; NETWORK_EXCEPTION or COORDINATOR_NOT_AVAILABLE without an answer.
        """
        left = countdown(deadline_ms)
        node_id, endpoint = await self._find(left)
        channel = self._cluster.channels.to(endpoint)
        # Connected before the call: if the address refuses, it is certain that nothing was sent.
        if not await is_connected(channel, min(left(), _CONNECT_MS)):
            self._cluster.refresh()
            where = f"{endpoint.host}:{endpoint.port}"
            message = f"the coordinator of {self._kind.noun} '{self._key}' at {where} takes no connection"
            raise Refused(ErrorCode.NETWORK_EXCEPTION, message, Outcome.NOT_APPENDED)
        try:
            answer = await self._cluster.ask_while(
                lambda: self._may_be_at(endpoint), method(self._kind.stub(channel)), request, deadline_ms=left()
            )
        except ClusterUnreachable as error:
            self._cluster.refresh()
            raise Refused(ErrorCode.NETWORK_EXCEPTION, str(error), Outcome.MAY_APPEAR) from error
        refusal, coordinator = judge(answer)
        if refusal is None:
            self.answered_by = node_id
            return answer
        # The hint is often faster than the metadata (KIP-951).
        if coordinator is not None and (tp := self._partition()) is not None:
            self._cluster.note_leader(tp, coordinator)
        raise Refused.of(refusal)

    @property
    def epoch(self) -> LeaderEpoch | None:
        """The coordinator epoch that this client believes in; None while it knows of no coordinator."""
        tp = self._partition()
        leader = self._cluster.view.leader_of(tp) if tp is not None else None
        return None if leader is None else leader.epoch

    def _partition(self) -> TopicPartition | None:
        """The partition whose leader coordinates the key (G2); None until its topic is in the metadata."""
        self._cluster.want(self._kind.topic)
        topic = self._cluster.view.topic(self._kind.topic)
        if topic is None:
            return None
        return TopicPartition(topic.topic_id, partition_of(self._key, len(topic.partitions)))

    def _may_be_at(self, endpoint: Endpoint) -> bool:
        tp = self._partition()
        return tp is None or self._cluster.view.may_be_led_at(endpoint, [tp])

    async def _find(self, left: Callable[[], int]) -> tuple[NodeId, Endpoint]:
        tp = self._partition()
        if tp is None:
            return await self._find_by_asking(left)
        leader = self._cluster.view.leader_of(tp)
        if leader is None:
            self._cluster.refresh()
            message = f"the coordinator of {self._kind.noun} '{self._key}' is being elected; ask again"
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, message, Outcome.NOT_APPENDED)
        return leader.node_id, leader.endpoint

    async def _find_by_asking(self, left: Callable[[], int]) -> tuple[NodeId, Endpoint]:
        """Ask a node, which has the topic of coordinators created if there is none yet (G1)."""
        message = f"no node answered where the coordinator of {self._kind.noun} '{self._key}' is"
        refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        request = pb.FindCoordinatorRequest(
            cluster_id=self._cluster.cluster_id, key_type=self._kind.key_type, coordinator_keys=[self._key]
        )
        nodes = self._cluster.image.nodes
        # In any order, so that a node that hangs does not delay every question.
        for node in random.sample(nodes, len(nodes)):
            if node.fenced or node.client_endpoint is None:
                continue
            stub: GroupServiceAsyncStub = GroupServiceStub(self._cluster.channels.to(node.client_endpoint))
            try:
                answer = await self._cluster.ask(stub.FindCoordinator, request, deadline_ms=min(left(), _FIND_MS))
            except ClusterUnreachable:
                continue
            (found,) = answer.coordinators
            refused = read_error(found)
            if refused is None:
                return NodeId(found.node_id), Endpoint(found.host, found.port)
            refusal = refused
            # Another node would refuse it for the same reason.
            if not passes_by(refused):
                break
        raise Refused.of(replace(refusal, outcome=Outcome.NOT_APPENDED))


# ---- group_coordinator
# Where the coordinator of one group is (G2).

_GROUPS: CoordinatorKind[GroupServiceAsyncStub] = CoordinatorKind(
    "group", GROUP_STATE, pb.COORDINATOR_KEY_TYPE_UNSPECIFIED, GroupServiceStub
)


class GroupCoordinator(Coordinator["GroupServiceAsyncStub"]):
    """The coordinator of one group."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        super().__init__(cluster, _GROUPS, group_id)
        self.group_id = group_id


# ---- lists
# What all coordinators know together: each living node is asked for its own.
#
# Invariant: a list is of the whole cluster, or the nodes that lack something are named with it: never a gap.


async def ask_every_node(
    cluster: Cluster,
    method: Callable[[grpc.aio.Channel], UnaryMethod[_Request, _List]],
    request: _Request,
    *,
    deadline_ms: int,
) -> tuple[list[_List], dict[int, Refusal]]:
    """What nodes list of what they coordinate; and by node why that may not be all."""

    async def ask(endpoint: Endpoint) -> tuple[_List | None, Refusal | None]:
        try:
            answer = await cluster.ask(method(cluster.channels.to(endpoint)), request, deadline_ms=deadline_ms)
        except ClusterUnreachable as error:
            return None, Refusal(ErrorCode.NETWORK_EXCEPTION, str(error))
        except Refused as refused:
            return None, refused.refusal
        # Both: a node that still loads one of its partitions lists what it coordinates by the others.
        return answer, read_error(answer)

    # A fenced node leads nothing, so it coordinates nothing.
    asked = cluster.living
    found = await gather(*map(ask, asked.values()))
    missing = {int(node_id): why for node_id, (_, why) in zip(asked, found, strict=True) if why is not None}
    return [answer for answer, _ in found if answer is not None], missing
