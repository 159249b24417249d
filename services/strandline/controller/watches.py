"""Decides who hears of metadata changes, and what becomes of a watcher that cannot keep up.

Invariant: a watcher gets one snapshot and then every change behind it, in order and without a gap, each
addressed to its own node epoch (TR15), or its stream ends and says why; nobody's slowness holds others up.
"""

from __future__ import annotations

import asyncio
from collections import deque

from strandline.core.controller_effects import OpenWatch, Publish
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import NodeEpoch, NodeId
from strandline.rpc.convert_metadata import write_image, write_watch_answer
from strandline.v1 import controller_service_pb2 as pb


class Watch:
    """One watcher's queue of messages, bounded."""

    def __init__(self, opened: OpenWatch, backlog: int) -> None:
        self.node_id: NodeId | None = opened.node_id
        self.node_epoch: NodeEpoch | None = opened.node_epoch
        self._backlog = backlog
        self._waiting: deque[pb.WatchMetadataResponse] = deque()
        self._news = asyncio.Event()
        self.refusal: Refusal | None = None
        self.put(write_watch_answer(opened.snapshot, opened.node_epoch))

    def put(self, message: pb.WatchMetadataResponse) -> None:
        """Add a message; one too many ends the watch, and the watcher comes back for a snapshot."""
        if len(self._waiting) >= self._backlog:
            behind = f"the watcher is {self._backlog} changes behind; reconnect for a snapshot"
            self.end(Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, behind))
            return
        self._waiting.append(message)
        self._news.set()

    def end(self, refusal: Refusal) -> None:
        """End the stream with a reason, ahead of whatever still waits."""
        if self.refusal is None:
            self.refusal = refusal
        self._news.set()

    async def next_message(self, alive_every_ms: int) -> pb.WatchMetadataResponse:
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
                return write_watch_answer(None, self.node_epoch)
        raise Refused.of(self.refusal)


class Watches:
    """Every open watch."""

    def __init__(self, backlog: int) -> None:
        self._backlog = backlog
        self._open: set[Watch] = set()

    def open(self, opened: OpenWatch) -> Watch:
        """Begin a watch with its snapshot."""
        watch = Watch(opened, self._backlog)
        self._open.add(watch)
        return watch

    def close(self, watch: Watch) -> None:
        """The watcher is gone."""
        self._open.discard(watch)

    def publish(self, change: Publish) -> None:
        """Send a change to everybody, encoded once; end the watches of superseded processes."""
        current = {node.node_id: node.node_epoch for node in change.image.nodes}
        metadata = write_image(change.image)
        for watch in self._open:
            if watch.node_id in change.image.removed_node_ids:
                watch.end(Refusal(ErrorCode.STALE_BROKER_EPOCH, f"node {watch.node_id} was removed from the cluster"))
                continue
            if watch.node_id in current and watch.node_epoch != current[watch.node_id]:
                watch.end(Refusal(ErrorCode.STALE_BROKER_EPOCH, f"a newer process registered as node {watch.node_id}"))
                continue
            position = change.position_for(watch.node_id, watch.node_epoch)
            message = pb.WatchMetadataResponse(
                node_epoch=watch.node_epoch, metadata=metadata, position_mac=position.mac if position else None
            )
            watch.put(message)

    def end_all(self, refusal: Refusal) -> None:
        """End every watch."""
        for watch in self._open:
            watch.end(refusal)

    def __len__(self) -> int:
        return len(self._open)
