"""The watches on metadata: sends each watcher its messages, and ends the watch of one that cannot keep up.

Invariant: a watcher gets one snapshot and then every later change, in order and without a gap, each addressed to its
own node epoch (TR15), or its stream ends with a reason; a slow watcher does not delay any other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from strandline.core.control.events import OpenWatch, Publish
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import MetadataImage, PositionProof
from strandline.core.types import NodeEpoch, NodeId

_Metadata = TypeVar("_Metadata")


class WatchNews(NamedTuple, Generic[_Metadata]):
    """One message to a watcher."""

    metadata: _Metadata | None
    """The snapshot or the change, encoded; None is a sign of life."""
    is_snapshot: bool
    node_epoch: NodeEpoch | None
    position: PositionProof | None


class Watch(Generic[_Metadata]):
    """One watcher's queue of messages, bounded."""

    def __init__(self, opened: OpenWatch, backlog: int, encode: Callable[[MetadataImage], _Metadata]) -> None:
        self.node_id: NodeId | None = opened.node_id
        self.node_epoch: NodeEpoch | None = opened.node_epoch
        self._backlog = backlog
        self._waiting: deque[WatchNews[_Metadata]] = deque()
        self._news = asyncio.Event()
        self.refusal: Refusal | None = None
        snapshot = opened.snapshot
        self.put(WatchNews(encode(snapshot), snapshot.is_snapshot, self.node_epoch, snapshot.position))

    def put(self, message: WatchNews[_Metadata]) -> None:
        """Add a message; if the queue is full, end the watch: the watcher reconnects and gets a snapshot."""
        if len(self._waiting) >= self._backlog:
            behind = f"the watcher is {self._backlog} changes behind; reconnect for a snapshot"
            self.end(Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, behind))
            return
        self._waiting.append(message)
        self._news.set()

    def end(self, refusal: Refusal) -> None:
        """End the stream with a reason, without sending the messages that still wait."""
        if self.refusal is None:
            self.refusal = refusal
        self._news.set()

    async def next_news(self, alive_every_ms: int) -> WatchNews[_Metadata]:
        """The next message; after ``alive_every_ms`` without one, a sign of life.

        Raises:
            Refused: when the watch is ended, with the reason.
        """
        while self.refusal is None:
            if self._waiting:
                return self._waiting.popleft()
            self._news.clear()
            try:
                async with asyncio.timeout(alive_every_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                return WatchNews(None, False, self.node_epoch, None)
        raise Refused.of(self.refusal)


class Watches(Generic[_Metadata]):
    """All open watches. ``encode`` turns metadata into the message that all its watchers get."""

    def __init__(self, backlog: int, encode: Callable[[MetadataImage], _Metadata]) -> None:
        self._backlog = backlog
        self._encode = encode
        # A dict, because it keeps the order in which they were opened.
        self._open: dict[Watch[_Metadata], None] = {}

    def open(self, opened: OpenWatch) -> Watch[_Metadata]:
        """Begin a watch with its snapshot."""
        watch = Watch(opened, self._backlog, self._encode)
        self._open[watch] = None
        return watch

    def close(self, watch: Watch[_Metadata]) -> None:
        """Forget a watch whose watcher is gone."""
        self._open.pop(watch, None)

    def publish(self, change: Publish) -> None:
        """Send a change to every watcher, encoded once; end the watches of superseded processes."""
        image = change.image
        current = {node.node_id: node.node_epoch for node in image.nodes}
        metadata = self._encode(image)
        public = image.for_clients()
        for_clients = metadata if public is image else self._encode(public)
        for watch in self._open:
            if watch.node_id in image.removed_node_ids:
                watch.end(Refusal(ErrorCode.STALE_BROKER_EPOCH, f"node {watch.node_id} was removed from the cluster"))
                continue
            if watch.node_id in current and watch.node_epoch != current[watch.node_id]:
                watch.end(Refusal(ErrorCode.STALE_BROKER_EPOCH, f"a newer process registered as node {watch.node_id}"))
                continue
            position = change.position_for(watch.node_id, watch.node_epoch)
            sent = for_clients if watch.node_id is None else metadata
            watch.put(WatchNews(sent, image.is_snapshot, watch.node_epoch, position))

    def end_all(self, refusal: Refusal) -> None:
        """End every watch."""
        for watch in self._open:
            watch.end(refusal)

    def __len__(self) -> int:
        return len(self._open)
