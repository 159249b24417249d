"""Watchers: bounded queues, addresses, and reasons for every end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.controller.watches import Watches
from strandline.core.control.events import OpenWatch, Publish
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import MetadataImage, NodeImage
from strandline.core.positions import prove
from strandline.core.types import NodeEpoch, NodeId, Rules

ALIVE_MS = 20
SECRET = "5a" * 32


def watches_of(backlog: int) -> Watches[MetadataImage]:
    """An empty set of watches; metadata is sent unchanged."""
    return Watches(backlog, lambda image: image)


def image(offset: int, *nodes: NodeImage, is_snapshot: bool = False) -> MetadataImage:
    """A change at an offset."""
    return MetadataImage(
        cluster_id="c",
        controller_epoch=1,
        metadata_offset=offset,
        is_snapshot=is_snapshot,
        rules=Rules(),
        nodes=nodes,
    )


def published(offset: int, *nodes: NodeImage) -> Publish:
    """A change at an offset, as the core publishes it."""
    return Publish(image(offset, *nodes), SECRET)


def node(node_id: int, epoch: int) -> NodeImage:
    """A node of an epoch."""
    return NodeImage(node_id=NodeId(node_id), node_epoch=NodeEpoch(epoch))


def opened(node_id: int | None = None, epoch: int | None = None) -> OpenWatch:
    """A new watch, by a node or by a client."""
    return OpenWatch(
        1,
        image(1, is_snapshot=True),
        None if node_id is None else NodeId(node_id),
        None if epoch is None else NodeEpoch(epoch),
    )


async def test_snapshot_comes_first_then_changes_in_order() -> None:
    """Nothing published after the opening is missed or reordered."""
    watches = watches_of(10)
    watch = watches.open(opened())
    for offset in (2, 3):
        watches.publish(published(offset))

    got = [(await watch.next_news(ALIVE_MS)).metadata.metadata_offset for _ in range(3)]

    assert got == [1, 2, 3]


async def test_a_watcher_may_be_as_far_behind_as_its_queue_is_long() -> None:
    """The message that fills the queue is kept; the next one ends the watch, whose reader comes back for a snapshot."""
    watches = watches_of(2)
    watch = watches.open(opened())
    watches.publish(published(2))
    full = watch.refusal
    watches.publish(published(3))

    assert full is None
    with pytest.raises(Refused, match="reconnect for a snapshot"):
        await watch.next_news(ALIVE_MS)


async def test_each_node_gets_its_own_proof_of_a_change() -> None:
    """A change carries a proof for the process that watches; a client gets none (F5)."""
    watches = watches_of(10)
    node_watch, client_watch = watches.open(opened(1, 5)), watches.open(opened())
    watches.publish(published(2))

    messages = [[await watch.next_news(ALIVE_MS) for _ in range(2)][1] for watch in (node_watch, client_watch)]
    proof = prove(SECRET, node_id=NodeId(1), node_epoch=NodeEpoch(5), controller_epoch=1, metadata_offset=2)

    assert messages[0].position == proof
    assert messages[1].position is None


async def test_slow_watcher_is_cut_off_and_holds_nobody_up() -> None:
    """At its bound a watch ends with RESOURCE_EXHAUSTED; a faster one beside it gets everything."""
    watches = watches_of(3)
    slow, quick = watches.open(opened()), watches.open(opened())
    for offset in range(2, 8):
        watches.publish(published(offset))
        await quick.next_news(ALIVE_MS)

    with pytest.raises(Refused) as caught:
        await slow.next_news(ALIVE_MS)

    assert caught.value.refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "snapshot" in caught.value.refusal.message
    assert (await quick.next_news(ALIVE_MS)).metadata.metadata_offset == 7


async def test_change_that_supersedes_a_watcher_ends_its_watch() -> None:
    """TR15: the old process of a node that registered again gets no further metadata; other nodes do."""
    watches = watches_of(10)
    old, other = watches.open(opened(1, 5)), watches.open(opened(2, 6))
    watches.publish(published(2, node(1, 7)))

    with pytest.raises(Refused) as caught:
        await old.next_news(ALIVE_MS)
    snapshot, change = [await other.next_news(ALIVE_MS) for _ in range(2)]

    assert caught.value.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert (snapshot.node_epoch, change.node_epoch, change.metadata.metadata_offset) == (6, 6, 2)


async def test_removal_of_the_watching_node_ends_its_watch() -> None:
    """The watch of a process whose node was removed ends with that reason, instead of never ending (C85)."""
    watches = watches_of(10)
    watch = watches.open(opened(1, 5))
    watches.publish(Publish(replace(image(2), removed_node_ids=(NodeId(1),)), SECRET))

    with pytest.raises(Refused, match="node 1 was removed") as caught:
        await watch.next_news(ALIVE_MS)
    assert caught.value.refusal.code is ErrorCode.STALE_BROKER_EPOCH


async def test_change_of_the_watching_node_itself_goes_to_it() -> None:
    """A fenced or unfenced state is a message to the node, not the end of its watch."""
    watches = watches_of(10)
    watch = watches.open(opened(1, 5))
    await watch.next_news(ALIVE_MS)
    watches.publish(published(2, node(1, 5)))

    assert (await watch.next_news(ALIVE_MS)).metadata.nodes[0].node_epoch == 5


async def test_silence_is_broken_by_a_sign_of_life() -> None:
    """A message without metadata is addressed as well."""
    watch = watches_of(10).open(opened(1, 5))
    await watch.next_news(ALIVE_MS)

    sign = await watch.next_news(ALIVE_MS)

    assert (sign.metadata, sign.node_epoch) == (None, 5)


async def test_end_of_all_watches_tells_the_first_reason() -> None:
    """A watch that is ended twice keeps its first reason; a closed one is removed."""
    watches = watches_of(10)
    watch, gone = watches.open(opened()), watches.open(opened())
    watches.close(gone)
    watches.end_all(Refusal(ErrorCode.NOT_CONTROLLER, "first"))
    watches.end_all(Refusal(ErrorCode.NETWORK_EXCEPTION, "second"))

    with pytest.raises(Refused, match="first"):
        await watch.next_news(ALIVE_MS)
    assert gone.refusal is None
    assert len(watches) == 1
