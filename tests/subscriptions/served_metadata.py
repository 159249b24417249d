"""A feed behind a server, whose images, time and age a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from strandline.core.control.messages import InitProducerId, ProducerIdGiven
from strandline.core.control.subscriptions import MetadataHistory
from strandline.core.messages import AsOf, Endpoint, MetadataImage, Wanted
from strandline.core.types import NodeId
from strandline.rpc.channels import open_channel, target
from strandline.rpc.convert.subscription import KnownController, write_wanted
from strandline.rpc.server import ServerSettings, bind, build_server
from strandline.subscriptions import feed as feeds
from strandline.subscriptions.feed import ControllerElsewhere, MetadataFeed
from strandline.subscriptions.servicer import MetadataServicer
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

CONTROLLER = KnownController(0, client=Endpoint("127.0.0.1", 9000))


@dataclass
class Served:
    """A feed behind a server, with time and age as a test sets them."""

    now_ms: int = 0
    age_ms: int = 0
    history: MetadataHistory = field(default_factory=MetadataHistory)

    def __post_init__(self) -> None:
        self.feed = MetadataFeed(
            age_ms=lambda: self.age_ms,
            controllers=lambda: (CONTROLLER,),
            clock=lambda: self.now_ms,
            node_id=NodeId(7),
            history=self.history,
        )
        self.stub: Any = None
        self.channel: Any = None
        self.server: Any = None
        self.address = ""

    def take(self, *images: MetadataImage) -> None:
        for one in images:
            # Far enough from the last change, so that it is served at once.
            self.now_ms += feeds.MERGE_MS
            self.feed.take(one)

    async def give(self, _request: InitProducerId) -> ProducerIdGiven:
        return ProducerIdGiven(producer_id=41, producer_epoch=0)

    async def subscribe(self, *add: str, since: AsOf | None = None) -> Any:
        stream = self.stub.Subscribe()
        await stream.write(write_wanted(Wanted(add=tuple((name, "") for name in add), since=since), None))
        return stream


@asynccontextmanager
async def served(*images: MetadataImage, **kept: int) -> AsyncIterator[Served]:
    made = Served(history=MetadataHistory(**kept))
    made.take(*images)
    server = made.server = build_server(ServerSettings(name="test"))
    MetadataServicer(made.feed).add_to(server)
    ControllerElsewhere(made.feed.controllers, made.give).add_to(server)
    endpoint = bind(server, Endpoint("127.0.0.1", 0))
    await server.start()
    made.address = target(endpoint)
    made.channel = open_channel(endpoint)
    made.stub = MetadataServiceStub(made.channel)
    try:
        yield made
    finally:
        await made.channel.close()
        await server.stop(None)
