"""One subscription to the metadata at one server: which topics it was asked for, and what it sends.

Invariant: `since` goes with exactly the topics whose state at that position is held; every other topic that is wanted
is asked for as one that is new, and comes whole.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from strandline.core.messages import AsOf, Endpoint, Wanted
from strandline.rpc.channels import Channels
from strandline.rpc.convert_metadata import read_watch_answer
from strandline.rpc.convert_subscription import MetadataUpdate, read_update, update_of_image, write_wanted
from strandline.v1 import controller_service_pb2 as cpb
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub


class WantedTopics:
    """The topics that one client uses, by name."""

    def __init__(self, *, everything: bool) -> None:
        self.everything = everything
        self.names: dict[str, None] = {}
        # Those whose state is held as of the newest position: sent, or found missing.
        self.held: set[str] = set()
        self.news = asyncio.Event()

    def add(self, name: str) -> None:
        """This topic is used from now on."""
        if name not in self.names:
            self.names[name] = None
            self.news.set()

    def took(self, update: MetadataUpdate) -> None:
        """An update was believed."""
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
        """Send what is wanted; ``since``: the position whose state is held."""
        wanted = self._wanted
        names = [name for name in wanted.names if since is None or name in wanted.held]
        self._asked.update(names)
        first = Wanted(add=tuple((name, "") for name in names), all_topics=wanted.everything, since=since)
        await self._call.write(write_wanted(first, self._cluster_id))
        self._writing = asyncio.get_running_loop().create_task(self._ask_for_more())

    async def _ask_for_more(self) -> None:
        wanted = self._wanted
        try:
            while True:
                wanted.news.clear()
                more = [name for name in wanted.names if name not in self._asked]
                if more:
                    self._asked.update(more)
                    await self._call.write(write_wanted(Wanted(add=tuple((name, "") for name in more)), None))
                await wanted.news.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The stream ended; its reader learns why.
            return

    async def read(self) -> MetadataUpdate | None:
        """The next update; None at the stream's end.

        Raises:
            grpc.aio.AioRpcError: the stream failed.
            Refused: the message is of a later release.
        """
        message = await self._call.read()
        return read_update(message) if isinstance(message, pb.SubscribeResponse) else None

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

    async def read(self) -> MetadataUpdate | None:
        """As `SubscribedStream.read`; a sign of life is an update of no position."""
        message = await self._call.read()
        if not isinstance(message, cpb.WatchMetadataResponse):
            return None
        image = read_watch_answer(message)
        return MetadataUpdate(as_of=AsOf(-1, -1)) if image is None else update_of_image(image)

    def close(self) -> None:
        """End the watch."""
        self._call.cancel()


MetadataStream = SubscribedStream | WatchedStream
