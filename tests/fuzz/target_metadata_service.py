"""Target 12: MetadataService is given any messages of its contract, while the state of the cluster changes.

Invariant: a stream ends by a documented refusal only; whatever is sent can be read and believed by a client that holds
what it says it holds, in order; a subscriber to all topics has the state of the cluster in the end (C61, C63).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from draws import Draws, drawn
from target_store import TOPICS, states

from strandline.client.cluster.view import ClusterView, UpdateTaken
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import NodeId
from strandline.rpc.convert.subscription import read_current_metadata, read_update
from strandline.subscriptions.feed import MetadataFeed
from strandline.subscriptions.servicer import MetadataServicer
from strandline.v1 import metadata_service_pb2 as pb

REFUSALS = {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
_TURNS = 60
"""Of the event loop, after the last message: nothing here waits for anything else."""
_OURS = states()[0].header.cluster_id
_WORDS: dict[str, Any] = {
    "cluster_id": (_OURS, _OURS, _OURS, "other", ""),
    "name": ("topic-0", "topic-1", "topic-2", "", "missing"),
    "topic_id": ("", "", TOPICS[0], TOPICS[1], "missing"),
    "controller_epoch": (1, 1, 0, 2),
    "reign_id": ("", "missing"),
    "metadata_offset": (1, 5, 9, 10, 0, 99),
}


class _Context:
    """The part of gRPC's context that a stream uses; the state changes as its messages are read."""

    def __init__(self, requests: list[Any], feed: MetadataFeed) -> None:
        self.requests = requests
        self.written: list[bytes] = []
        self._feed = feed
        self._next = 3

    async def read(self) -> Any:
        if self._next < len(states()):
            change(self._feed, self._next)
            self._next += 1
        if not self.requests:
            await asyncio.Event().wait()
        return self.requests.pop(0)

    async def write(self, message: bytes) -> None:
        self.written.append(message)
        await asyncio.sleep(0)


def change(feed: MetadataFeed, number: int) -> None:
    """The next state, whole, as a watch that was opened again brings it."""
    feed.take(states()[number].snapshot())
    feed.catch_up()


def check(data: bytes) -> None:
    """The oracle."""
    asyncio.run(_check(Draws(data)))


async def _check(draws: Draws) -> None:
    feed = MetadataFeed(age_ms=lambda: 0, controllers=lambda: (), clock=lambda: 0, node_id=NodeId(7))
    for number in (1, 2):
        change(feed, number)
    servicer = MetadataServicer(feed)
    await _look_once(draws, servicer)
    kind = pb.SubscribeRequest.DESCRIPTOR
    requests = [_mostly_sound(draws, cast(Any, drawn(draws, kind, _WORDS))) for _ in range(draws.integer(1, 4))]
    context = _Context(list(requests), feed)
    refused = await _subscribe(servicer, context)
    feed.close()
    holds_nothing = not requests[0].HasField("since")
    view = _believed(context.written, holds_nothing=holds_nothing)
    if not refused and holds_nothing and any(request.all_topics for request in requests):
        assert view.image is not None
        assert {topic.name for topic in view.image.topics} == {t.name for t in feed.history.topics.values()}


def _mostly_sound(draws: Draws, request: pb.SubscribeRequest) -> pb.SubscribeRequest:
    """Its topics by name or by id, not both, in most cases: anything else is refused before it is looked at."""
    for ref in () if draws.one_in(8) else (*request.add_topics, *request.remove_topics):
        if ref.topic_id:
            ref.name = ""
        else:
            ref.name = ref.name or "topic-0"
    if draws.one_in(2):
        request.ClearField("since")
    return request


async def _look_once(draws: Draws, servicer: MetadataServicer) -> None:
    asked = cast(Any, drawn(draws, pb.MetadataServiceGetMetadataRequest.DESCRIPTOR, _WORDS))
    described = cast(Any, drawn(draws, pb.DescribeClusterRequest.DESCRIPTOR, _WORDS))
    context = cast(Any, None)
    try:
        found = await servicer.GetMetadata(asked, context)
        read_current_metadata(pb.MetadataServiceGetMetadataResponse.FromString(found))
        await servicer.DescribeCluster(described, context)
    except Refused as error:
        if error.refusal.code not in REFUSALS:
            raise


async def _subscribe(servicer: MetadataServicer, context: _Context) -> bool:
    """Serve a stream until nothing more comes; whether it was refused."""
    stream = asyncio.create_task(servicer.Subscribe(None, cast(Any, context)))
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    assert stream.done() or not context.requests, "the stream is not read any further"
    stream.cancel()
    try:
        await stream
    except asyncio.CancelledError:
        return False
    except Refused as error:
        refused: tuple[BaseException, ...] = (error,)
    except BaseExceptionGroup as group:
        refused = group.exceptions
    else:
        raise AssertionError("the stream ended by itself")
    for each in refused:
        assert isinstance(each, Refused) and each.refusal.code in REFUSALS, each
    return True


def _believed(written: list[bytes], *, holds_nothing: bool) -> ClusterView:
    view = ClusterView()
    for message in written:
        taken = view.apply(read_update(pb.SubscribeResponse.FromString(message)))
        assert taken is not UpdateTaken.UNUSABLE or not holds_nothing, message
        assert taken is not UpdateTaken.OLDER, message
    return view
