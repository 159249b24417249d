"""MetadataService on a real socket, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tests.core.core_builders import held
from tests.core.metadata_images import image, node, partition, topic
from tests.subscriptions.served_metadata import CONTROLLER, Served, served

from strandline.core.control.subscriptions import MetadataHistory
from strandline.core.errors import ErrorCode
from strandline.core.messages import AsOf, TopicImage, Wanted
from strandline.rpc.convert.subscription import MetadataUpdate, read_current_metadata, read_update, write_wanted
from strandline.rpc.status import refusal_of
from strandline.subscriptions import feed as feeds, servicer as servicers
from strandline.v1 import controller_service_pb2 as cpb, metadata_service_pb2 as pb
from strandline.v1.controller_service_pb2_grpc import ControllerServiceStub


async def read(stream: Any) -> MetadataUpdate:
    async with asyncio.timeout(10):
        message = await stream.read()
    assert isinstance(message, pb.SubscribeResponse), "the stream ended"
    return read_update(message)


async def to_the_end(stream: Any) -> None:
    async with asyncio.timeout(10):
        while await stream.read() is not grpc.aio.EOF:
            pass


async def ends(stream: Any) -> grpc.aio.AioRpcError:
    """How a stream failed."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await to_the_end(stream)
    return caught.value


async def test_first_the_state_then_what_changed() -> None:
    """The first message holds the topics that were asked for, whole, and all nodes; the next what changed of them."""
    two = topic("a", partition("a", 0), partition("a", 1))
    moved = topic("a", partition("a", 0), partition("a", 1, epoch=2))
    async with served(image(1, two, topic("b"), nodes=(node(1),))) as cluster:
        stream = await cluster.subscribe("a", "none")
        first = await read(stream)
        cluster.take(image(2, moved, whole=False, nodes=(node(2),)))
        second = await read(stream)

    assert (first.is_snapshot, first.topics, first.missing, first.nodes) == (True, (two,), (("none", ""),), (node(1),))
    assert (first.cluster_id, first.controllers, first.as_of.node_id) == ("c", (CONTROLLER,), 7)
    assert second.changed == (("id-a", (partition("a", 1, epoch=2),)),)
    assert (second.as_of.metadata_offset, second.topics, second.nodes) == (2, (), (node(2),))


async def test_every_message_says_how_old_it_may_be() -> None:
    """The age is the one at the time of sending, also in a sign of life."""
    async with served(image(1)) as cluster:
        stream = await cluster.subscribe()
        first = await read(stream)
        cluster.age_ms = 4_000
        second = await read(stream)

    assert (first.as_of.age_ms, second.as_of.age_ms) == (0, 4_000)
    assert second.is_sign_of_life


async def test_a_position_within_the_kept_changes_gets_only_what_is_behind_it() -> None:
    """A subscriber that comes back with ``since`` is sent no snapshot."""
    async with served(image(1, topic("a")), image(2, topic("a", partition("a", 0, epoch=2)), whole=False)) as cluster:
        stream = await cluster.subscribe("a", since=AsOf(1, 1))
        first, second = await read(stream), await read(stream)

    assert (first.is_sign_of_life, first.as_of.metadata_offset) == (True, 1)
    assert (second.as_of.metadata_offset, second.changed) == (2, (("id-a", (partition("a", 0, epoch=2),)),))


async def test_a_position_that_is_not_known_gets_the_state() -> None:
    """Another reign's position, or one before the kept changes, gets a snapshot."""
    async with served(image(5, topic("a"))) as cluster:
        older = await read(await cluster.subscribe("a", since=AsOf(1, 4)))
        other = await read(await cluster.subscribe("a", since=AsOf(3, 5)))

    assert (older.is_snapshot, other.is_snapshot) == (True, True)


async def test_topics_are_added_while_the_stream_goes_on() -> None:
    """A later message adds topics, which are sent whole; what is removed is sent no more."""
    async with served(image(1, topic("a"), topic("b"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        await stream.write(write_wanted(Wanted(add=(("b", ""),), remove=(("a", ""),)), None))
        added = await read(stream)
        both = [topic(name, partition(name, 0, epoch=2)) for name in "ab"]
        cluster.take(image(2, *both, whole=False))
        changed = await read(stream)

    assert added.topics == (topic("b"),)
    assert changed.changed == (("id-b", (partition("b", 0, epoch=2),)),)


async def test_a_burst_is_one_message() -> None:
    """Changes that follow within 20 ms of the last one come together, as the newest of them."""
    async with served(image(1, topic("a"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        for offset in (2, 3, 4):
            cluster.feed.take(image(offset, topic("a", partition("a", 0, epoch=offset)), whole=False))
        merged = await read(stream)

    assert (merged.as_of.metadata_offset, merged.changed) == (4, (("id-a", (partition("a", 0, epoch=4),)),))


async def test_a_subscriber_that_falls_too_far_behind_is_sent_away() -> None:
    """Behind the kept changes a stream cannot go on: it ends with the way back."""
    async with served(image(1, topic("a")), changes_kept=2) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        # In one go, so that the stream cannot send in between.
        cluster.take(*(image(n, topic("a", partition("a", 0, epoch=n)), whole=False) for n in range(2, 6)))
        error = await ends(stream)

    assert refusal_of(error).code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "subscribe again with since" in (error.details() or "")


async def test_the_state_once() -> None:
    """GetMetadata answers with the state of the topics asked for, of all without any, and with what is missing."""
    async with served(image(3, topic("a"), topic("b"), nodes=(node(1),))) as cluster:
        cluster.age_ms = 9
        everything = await cluster.stub.GetMetadata(pb.MetadataServiceGetMetadataRequest())
        request = pb.MetadataServiceGetMetadataRequest()
        request.topics.add(name="b")
        request.topics.add(name="none")
        some = await cluster.stub.GetMetadata(request)

    as_of, state = read_current_metadata(everything)
    assert (as_of.age_ms, as_of.node_id, as_of.metadata_offset) == (9, 7, 3)
    assert (state.topics, state.nodes, state.is_snapshot) == ((topic("a"), topic("b")), (node(1),), True)
    assert read_current_metadata(some)[1].topics == (topic("b"),)
    assert [missing.name for missing in some.missing_topics] == ["none"]


async def test_who_is_in_the_cluster() -> None:
    """DescribeCluster answers with nodes and controllers, and no topics."""
    async with served(image(3, topic("a"), nodes=(node(1),))) as cluster:
        answer = await cluster.stub.DescribeCluster(pb.DescribeClusterRequest(cluster_id="c"))

    assert (answer.cluster_id, [one.node_id for one in answer.nodes]) == ("c", [1])
    assert [(one.controller_id, one.endpoints.client.port) for one in answer.controllers] == [(0, 9000)]


async def test_another_cluster_is_refused() -> None:
    """A caller that means another cluster is refused as a whole, by each method."""
    async with served(image(1)) as cluster:
        stream = cluster.stub.Subscribe()
        await stream.write(pb.SubscribeRequest(cluster_id="other"))
        errors = [await ends(stream)]
        for method, request in (
            (cluster.stub.GetMetadata, pb.MetadataServiceGetMetadataRequest(cluster_id="other")),
            (cluster.stub.DescribeCluster, pb.DescribeClusterRequest(cluster_id="other")),
            (cluster.stub.DescribeAudit, pb.DescribeAuditRequest(cluster_id="other")),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(request)
            errors.append(caught.value)

    assert [refusal_of(error).code for error in errors] == [ErrorCode.INCONSISTENT_CLUSTER_ID] * 4


async def test_a_process_without_metadata_says_so() -> None:
    """Before the first state there is nothing to serve, and the caller is sent elsewhere instead of kept waiting."""
    async with served() as cluster:
        error = await ends(await cluster.subscribe("a"))

    assert refusal_of(error).code is ErrorCode.LEADER_NOT_AVAILABLE


async def test_bad_requests_end_the_stream_with_the_field() -> None:
    """A topic without a name and an id is refused, in the first message and later."""
    async with served(image(1)) as cluster:
        first = await ends(await cluster.subscribe(""))
        stream = await cluster.subscribe()
        await read(stream)
        await stream.write(write_wanted(Wanted(add=(("", ""),)), None))
        later = await ends(stream)

    for error in (first, later):
        assert refusal_of(error).code is ErrorCode.INVALID_REQUEST
        assert "add_topics" in (error.details() or "")


async def test_a_subscriber_that_left_is_forgotten() -> None:
    """The end of a stream leaves nothing behind."""
    async with served(image(1)) as cluster:
        stream = await cluster.subscribe()
        await read(stream)
        there = cluster.feed.follower_count
        stream.cancel()
        async with asyncio.timeout(10):
            while cluster.feed.follower_count:  # noqa: ASYNC110 - what is waited for is state, not an event
                await asyncio.sleep(0.005)

    assert there == 1


async def test_deleted_topics_are_forgotten() -> None:
    """However many were sent to callers, what is kept of them is bounded by the topics that there are."""
    async with served(image(1, topic("a")), changes_kept=1) as cluster:
        for offset in range(2, 22, 2):
            cluster.take(image(offset, topic(str(offset)), whole=False))
            await cluster.stub.GetMetadata(pb.MetadataServiceGetMetadataRequest())
            cluster.take(image(offset + 1, whole=False, deleted_topic_ids=(f"id-{offset}",)))
        kept = held(cluster.feed, TopicImage)

    assert {each.name for each in kept} <= {"a", "18", "20"}


async def test_a_data_node_names_the_controllers_to_older_clients() -> None:
    """A watch or a change at a data node is refused with one sentence that gives the controllers' addresses."""
    async with served(image(1)) as cluster:
        stub: Any = ControllerServiceStub(cluster.channel)
        watch = await ends(stub.WatchMetadata(cpb.WatchMetadataRequest()))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateTopics(cpb.CreateTopicsRequest())

    for error in (watch, caught.value):
        assert refusal_of(error).code is ErrorCode.NOT_CONTROLLER
        assert "controllers are at 127.0.0.1:9000" in (error.details() or "")


def test_bounds_fit_together() -> None:
    """A stream is ended as too slow before its changes are gone, so that it comes back without a snapshot."""
    assert MetadataHistory()._changes_kept >= 2 * servicers.MOST_BEHIND


# Who is served when: a few subscribers at a time, in turn, and each only as often as it has to be.


def following(cluster: Served, count: int) -> list[int]:
    """So many followers; returns the list to which each adds its number when it is woken."""
    woken: list[int] = []

    def follower(number: int) -> Callable[[], None]:
        return lambda: woken.append(number)

    for number in range(count):
        cluster.feed.follow(follower(number))
    return woken


async def turn() -> None:
    """One turn of the loop."""
    await asyncio.sleep(0)


async def test_a_change_wakes_a_few_subscribers_in_each_turn() -> None:
    """Of 80, 32 are woken at once, 32 in the next turn and 16 in the one behind it."""
    cluster = Served()
    cluster.take(image(1))
    woken = following(cluster, 80)
    counts = []
    cluster.take(image(2))
    for _ in range(4):
        counts.append(len(woken))
        await turn()

    assert counts == [32, 64, 80, 80]
    assert woken == list(range(80))


async def test_a_second_change_takes_no_turn_away() -> None:
    """Those who do not know of the first change yet come before those who do not know of the second only."""
    cluster = Served()
    cluster.take(image(1))
    woken = following(cluster, 40)
    cluster.take(image(2))
    cluster.take(image(3))
    for _ in range(3):
        await turn()

    assert woken == [*range(40), *range(32)]


async def test_a_subscriber_that_left_is_not_woken() -> None:
    """Also if it was about to be."""
    cluster = Served()
    cluster.take(image(1))
    woken = following(cluster, 32)
    gone: list[str] = []
    last = lambda: gone.append("woken")  # noqa: E731  # the follower itself is what leaves
    cluster.feed.follow(last)
    cluster.take(image(2))
    cluster.feed.leave(last)
    await turn()

    assert len(woken) == 32
    assert not gone


async def test_changes_of_other_topics_cost_a_subscriber_no_message_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their positions alone are sent now and then; the next change of its own topic brings the newest."""
    monkeypatch.setattr(servicers, "POSITION_MS", 60_000)
    async with served(image(1, topic("a"), topic("b"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        for offset in (2, 3, 4):
            cluster.take(image(offset, topic("b", partition("b", 0, epoch=offset)), whole=False))
        cluster.take(image(5, topic("a", partition("a", 0, epoch=2)), whole=False))
        update = await read(stream)

    assert (update.as_of.metadata_offset, update.changed) == (5, (("id-a", (partition("a", 0, epoch=2),)),))


async def test_the_position_of_such_changes_is_sent_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next sign of life, so that a subscriber knows how current it is."""
    monkeypatch.setattr(servicers, "SIGN_OF_LIFE_MS", 60_000)
    async with served(image(1, topic("a"), topic("b"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        cluster.take(image(2, topic("b", partition("b", 0, epoch=2)), whole=False))
        update = await read(stream)

    assert (update.as_of.metadata_offset, update.is_sign_of_life) == (2, True)


async def test_a_sign_of_life_names_no_position_that_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a change came in and the stream was not woken yet, the change is sent instead."""
    monkeypatch.setattr(servicers, "SIGN_OF_LIFE_MS", 100)
    monkeypatch.setattr(feeds.MetadataFeed, "_wake_some", lambda _feed: None)
    async with served(image(1, topic("a"))) as cluster:
        stream = await cluster.subscribe("a")
        await read(stream)
        cluster.take(image(2, topic("a", partition("a", 0, epoch=2)), whole=False))
        update = await read(stream)

    assert (update.as_of.metadata_offset, update.is_sign_of_life) == (2, False)
