"""One subscription to metadata at one server: the topics that it includes, and the updates that it sends.

Invariant: `since` covers exactly the topics whose state at that position is known; every other wanted topic is
requested as a new one, and is sent whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from strandline.client.background import is_connected
from strandline.client.errors import ControllersAway
from strandline.core.messages import AsOf, Endpoint, Wanted
from strandline.rpc.channels import Channels, UnaryMethod, target
from strandline.rpc.convert import subscription
from strandline.rpc.convert.metadata import read_watch_answer
from strandline.v1 import controller_service_pb2 as cpb, metadata_service_pb2 as pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

if TYPE_CHECKING:
    from strandline.v1.controller_service_pb2_grpc import ControllerServiceAsyncStub


class WantedTopics:
    """The topics that one client uses, by name."""

    def __init__(self, *, everything: bool) -> None:
        self.everything = everything
        self.names: dict[str, None] = {}
        # Topics whose state at the newest position is known: received, or found missing.
        self.held: set[str] = set()
        self.news = asyncio.Event()

    def add(self, name: str) -> None:
        """Include this topic from now on."""
        if name not in self.names:
            self.names[name] = None
            self.news.set()

    def took(self, update: subscription.MetadataUpdate) -> None:
        """An update was applied."""
        if update.is_snapshot:
            self.held.clear()
        self.held.update(topic.name for topic in update.topics)
        self.held.update(name for name, _ in update.missing if name)


class SubscribedStream:
    """Subscribe at one server."""

    def __init__(self, channels: Channels, endpoint: Endpoint, wanted: WantedTopics, cluster_id: str | None) -> None:
        self._wanted = wanted
        self._cluster_id = cluster_id
        self._asked: set[str] = set()
        self._call: Any = MetadataServiceStub(channels.to(endpoint)).Subscribe()
        self._writing: asyncio.Task[None] | None = None

    async def begin(self, since: AsOf | None) -> None:
        """Send the wanted topics; ``since``: the position whose state is known."""
        wanted = self._wanted
        names = [name for name in wanted.names if since is None or name in wanted.held]
        self._asked.update(names)
        first = Wanted(add=tuple((name, "") for name in names), all_topics=wanted.everything, since=since)
        await self._call.write(subscription.write_wanted(first, self._cluster_id))
        self._writing = asyncio.get_running_loop().create_task(self._ask_for_more())

    async def _ask_for_more(self) -> None:
        wanted = self._wanted
        try:
            while True:
                # Cleared before the look, so that a topic that is added during the write is seen in the next round.
                wanted.news.clear()
                more = [name for name in wanted.names if name not in self._asked]
                if more:
                    self._asked.update(more)
                    await self._call.write(
                        subscription.write_wanted(Wanted(add=tuple((name, "") for name in more)), None)
                    )
                await wanted.news.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The stream ended; its reader learns why.
            return

    async def read(self) -> subscription.MetadataUpdate | None:
        """The next update; None at the stream's end.

        Raises:
            grpc.aio.AioRpcError: the stream failed.
            Refused: the message is of a later release.
        """
        message = await self._call.read()
        return subscription.read_update(message) if isinstance(message, pb.SubscribeResponse) else None

    def close(self) -> None:
        """End the subscription."""
        if self._writing is not None:
            self._writing.cancel()
        self._call.cancel()


class WatchedStream:
    """WatchMetadata, at a controller of a release without MetadataService: every topic, each change of it whole."""

    def __init__(self, channels: Channels, endpoint: Endpoint, cluster_id: str | None) -> None:
        stub: Any = ControllerServiceStub(channels.to(endpoint))
        self._call: Any = stub.WatchMetadata(cpb.WatchMetadataRequest(cluster_id=cluster_id))

    async def read(self) -> subscription.MetadataUpdate | None:
        """As `SubscribedStream.read`; a sign of life is an update of no position."""
        message = await self._call.read()
        if not isinstance(message, cpb.WatchMetadataResponse):
            return None
        image = read_watch_answer(message)
        return subscription.MetadataUpdate(as_of=AsOf(-1, -1)) if image is None else subscription.update_of_image(image)

    def close(self) -> None:
        """End the watch."""
        self._call.cancel()


MetadataStream = SubscribedStream | WatchedStream


# ---- controllers
# Decides which controller a request goes to, and when the next one is tried instead.
#
# Invariant: a request is sent once. Another address is tried only if not a byte was sent to the previous one; callers
# that may repeat a request use `repeating`.

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

Method = Callable[["ControllerServiceAsyncStub"], UnaryMethod[_Request, _Answer]]

CONNECT_MS = 2_000


class Controllers:
    """The addresses of controllers, the most likely one first."""

    def __init__(self, channels: Channels, bootstrap: list[Endpoint], *, has_certificate: bool = True) -> None:
        """Without ``has_certificate`` the controllers' ports for nodes are not used, because they require one."""
        self._channels = channels
        self._has_certificate = has_certificate
        self._bootstrap = bootstrap
        # A dict, because it keeps the order of insertion.
        self._met: dict[Endpoint, None] = {}
        self._named: tuple[subscription.KnownController, ...] = ()
        self._passed_over: Endpoint | None = None

    def met(self, endpoint: Endpoint) -> None:
        """A controller answered here."""
        self._met.pop(endpoint, None)
        self._met = {endpoint: None, **self._met}
        if endpoint == self._passed_over:
            self._passed_over = None

    def seen(self, endpoint: Endpoint) -> None:
        """An inactive controller answered here; it knows the active one."""
        self._met.setdefault(endpoint, None)

    def passed_over(self, endpoint: Endpoint) -> None:
        """A controller here did not answer, or is inactive and does not know the active one, so the others are tried
        first."""
        self._passed_over = endpoint

    def named(self, controllers: tuple[subscription.KnownController, ...]) -> None:
        """A node reported the controllers' addresses."""
        if controllers:
            self._named = controllers

    @property
    def endpoints(self) -> list[Endpoint]:
        """The addresses to try, in order."""
        named = (one.client or (one.internal if self._has_certificate else None) for one in self._named)
        known = dict.fromkeys([*self._met, *(endpoint for endpoint in named if endpoint is not None)])
        # The bootstrap only if there is nothing better: its addresses may be of nodes, which decide nothing (C60).
        found = list(known) or self._bootstrap
        return sorted(found, key=lambda endpoint: endpoint == self._passed_over)

    def stub(self, endpoint: Endpoint) -> ControllerServiceAsyncStub:
        """The controller at an address."""
        return ControllerServiceStub(self._channels.to(endpoint))

    async def first(self, left: Callable[[], int]) -> Endpoint:
        """An address that accepts a connection; ``left``: the rest of the call's time, in ms.

        Raises:
            ControllersAway: there is none.
        """
        endpoints = self.endpoints
        for endpoint in endpoints:
            if await is_connected(self._channels.to(endpoint), min(CONNECT_MS, left())):
                return endpoint
        raise ControllersAway([target(endpoint) for endpoint in endpoints], "no connection")
