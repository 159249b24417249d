"""MetadataService: one implementation for the controller and for data nodes; read only.

Invariant: a subscriber gets every change after its position, in order, or its stream ends with a reason and it returns
with ``since``; a slow reader delays no other and takes no memory except for its position (C67).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import grpc

from strandline.core.control.subscriptions import Subscription
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import AsOf, Wanted
from strandline.rpc.convert.metadata import write_node
from strandline.rpc.convert.subscription import Recent, read_wanted, write_as_of, write_audit, write_controllers
from strandline.rpc.interceptors import Unread
from strandline.rpc.permitted import CALL
from strandline.subscriptions.feed import MetadataFeed
from strandline.v1 import metadata_service_pb2 as pb, metadata_service_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["MetadataService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]

SIGN_OF_LIFE_MS = 2_000
POSITION_MS = 200
"""How often, at most, a subscriber gets only the position of changes that do not concern it."""
MOST_BEHIND = 256
"""Changes that a subscriber may be behind; with more the stream ends, and the subscriber returns with ``since``."""
MOST_MESSAGES_WAITING = 100
"""Unanswered messages of one subscriber; with more the stream is not read further."""


class MetadataServicer:
    """MetadataService of one process."""

    def __init__(
        self, feed: MetadataFeed, authorization: str = "", audit: Callable[[], Iterable[Recent]] = tuple
    ) -> None:
        """``authorization`` is this process's setting, empty without TLS; ``audit`` returns its newest audit events."""
        self._feed = feed
        self._audit = audit
        self._authorization = authorization

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve on ``server``."""
        # The generated base class types streams as generators; these handlers write bytes as changes come.
        pb_grpc.add_MetadataServiceServicer_to_server(cast(Any, self), server)

    async def Subscribe(self, _: object, context: Context) -> None:
        """Sends the state of topics, then every change."""
        await _Stream(self._feed, context).run()

    async def GetMetadata(self, request: pb.MetadataServiceGetMetadataRequest, context: Context) -> bytes:
        """Returns the state once."""
        feed = self._feed
        feed.catch_up()
        _check(feed, request.cluster_id if request.HasField("cluster_id") else None)
        refs = tuple((topic.name, topic.topic_id) for topic in request.topics)
        subscription = Subscription(feed.history, CALL.get())
        _want(subscription, Wanted(add=refs, all_topics=not refs))
        return feed.encoded.whole_state(feed.as_of(), subscription.snapshot())

    async def DescribeCluster(self, request: pb.DescribeClusterRequest, context: Context) -> pb.DescribeClusterResponse:
        """Returns nodes and controllers."""
        feed = self._feed
        feed.catch_up()
        cluster_id = _check(feed, request.cluster_id if request.HasField("cluster_id") else None)
        controllers = feed.controllers()
        return pb.DescribeClusterResponse(
            as_of=write_as_of(feed.as_of()),
            cluster_id=cluster_id,
            nodes=[write_node(node) for node in feed.history.nodes.values()],
            controllers=write_controllers(controllers),
            active=controllers[0].controller_id if controllers else None,
            authorization=self._authorization,
        )

    async def DescribeAudit(self, request: pb.DescribeAuditRequest, context: Context) -> pb.DescribeAuditResponse:
        """Returns the callers' latest changes and refusals."""
        self._feed.catch_up()
        _check(self._feed, request.cluster_id if request.HasField("cluster_id") else None)
        return pb.DescribeAuditResponse(events=[write_audit(*each) for each in self._audit()])


class _Stream:
    """One subscriber's stream."""

    def __init__(self, feed: MetadataFeed, context: Context) -> None:
        self._feed = feed
        self._context = context
        self._subscription = Subscription(feed.history, CALL.get())
        self._asked: list[Wanted] = []
        self._woken = asyncio.Event()
        self._room = asyncio.Event()
        self._next = 0
        self._sent_s = 0.0
        # Whether changes were skipped because they did not concern this subscriber.
        self._owes_position = False

    async def run(self) -> None:
        """Serve the stream to its end."""
        first = await self._context.read()
        if first is grpc.aio.EOF:
            return
        wanted = _read(first)
        _check(self._feed, first.cluster_id if first.HasField("cluster_id") else None)
        _want(self._subscription, wanted)
        self._feed.follow(self._woken.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read_all())
                try:
                    await self._write_all(wanted)
                finally:
                    reading.cancel()
        finally:
            self._feed.leave(self._woken.set)

    async def _read_all(self) -> None:
        while (message := await self._context.read()) is not grpc.aio.EOF:
            self._asked.append(_read(message))
            self._woken.set()
            while len(self._asked) >= MOST_MESSAGES_WAITING:
                self._room.clear()
                await self._room.wait()

    async def _write_all(self, first: Wanted) -> None:
        await self._write(self._begin(first.since))
        while True:
            message = self._next_message()
            if message is None:
                message = await self._wait()
            if message is not None:
                await self._write(message)

    async def _write(self, message: bytes) -> None:
        await self._context.write(cast(Any, message))
        self._sent_s = asyncio.get_running_loop().time()

    async def _wait(self) -> bytes | None:
        """Wait for something to send; return None, or in time a sign of life, which also tells the position."""
        self._woken.clear()
        due_s = self._sent_s + (POSITION_MS if self._owes_position else SIGN_OF_LIFE_MS) / 1000
        try:
            async with asyncio.timeout_at(due_s):
                await self._woken.wait()
        except TimeoutError:
            # If a change is about to be sent, the stream has not reached the present position.
            if self._next == self._feed.history.next_number:
                self._owes_position = False
                return self._feed.encoded.sign_of_life(self._feed.as_of())
        return None

    def _begin(self, since: AsOf | None) -> bytes:
        feed = self._feed
        number = None if since is None else feed.history.number_after(since)
        if number is None or number <= self._subscription.snapshot_after:
            return self._snapshot()
        self._next = number
        if since is None or number < feed.history.next_number:
            # Later changes come next; only with them is their position reached.
            reached = since or feed.history.as_of
        else:
            reached = feed.history.as_of
        return feed.encoded.resumed(feed.stamped(reached), feed.controllers())

    def _snapshot(self) -> bytes:
        feed = self._feed
        self._next = feed.history.next_number
        return feed.encoded.snapshot(feed.as_of(), self._subscription.snapshot(), feed.controllers())

    def _next_message(self) -> bytes | None:
        history, encoded = self._feed.history, self._feed.encoded
        if self._next <= self._subscription.snapshot_after:
            return self._snapshot()
        if history.next_number - self._next > MOST_BEHIND or self._next < history.first_number:
            behind = f"the subscriber is {history.next_number - self._next} changes behind; subscribe again with since"
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, behind)
        while self._next < history.next_number:
            change = history.change(self._next)
            self._next += 1
            portion = self._subscription.of(change)
            if change.is_for_all or not portion.is_empty:
                self._owes_position = False
                return encoded.change(self._feed.stamped(change.as_of), change, portion)
            self._owes_position = True
        if self._asked:
            return self._answer(self._asked.pop(0))
        return None

    def _answer(self, wanted: Wanted) -> bytes:
        self._room.set()
        _want(self._subscription, wanted)
        # All changes so far were sent, so the new topics begin at the same position as the others.
        portion = self._subscription.snapshot() if wanted.all_topics else self._subscription.added(wanted.add)
        return self._feed.encoded.added(self._feed.as_of(), portion)


def _read(message: pb.SubscribeRequest | Unread) -> Wanted:
    if isinstance(message, Unread):
        raise message
    return read_wanted(message)


def _want(subscription: Subscription, wanted: Wanted) -> None:
    refusal = subscription.want(wanted)
    if refusal is not None:
        raise Refused.of(refusal)


def _check(feed: MetadataFeed, cluster_id: str | None) -> str:
    """The cluster's id, if there is a state to serve and the caller means this cluster.

    Raises:
        Refused: INCONSISTENT_CLUSTER_ID; LEADER_NOT_AVAILABLE while this process has no metadata yet.
    """
    image = feed.history.image
    if image is None:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, "this process has no metadata yet; ask again, or another one")
    if cluster_id not in (None, image.cluster_id):
        raise Refused(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"cluster_id '{cluster_id}' is not this cluster's '{image.cluster_id}'; connect to the one it belongs to",
        )
    return image.cluster_id
