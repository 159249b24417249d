"""The metadata of one process as its subscribers follow it: images in, changes out, at most one in a window.

Invariant: what is served moves forward only, and in windows: images that arrive within ``merge_ms`` of the last change
are one change, so that a burst costs each subscriber one message (C67). The first one after a pause is served at once.
Subscribers are served a few at a time, in turn, so that a thousand of them hold up nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from strandline.core.messages import AsOf, MetadataImage
from strandline.core.metadata_history import MetadataHistory
from strandline.core.types import NodeId
from strandline.rpc.convert_subscription import KnownController
from strandline.runtime.clock import Clock
from strandline.subscriptions.encoded import EncodedMetadata

MERGE_MS = 20
"""The usual window."""
WOKEN_PER_TURN = 32
"""Subscribers that are served in one turn of the loop; the others follow in the next ones, each in its turn."""


class MetadataFeed:
    """The state of the cluster, its changes, and who waits for them."""

    def __init__(
        self,
        *,
        age_ms: Callable[[], int],
        controllers: Callable[[], tuple[KnownController, ...]],
        clock: Clock,
        merge_ms: int = MERGE_MS,
        node_id: NodeId | None = None,
        history: MetadataHistory | None = None,
    ) -> None:
        """``age_ms``: since this process heard of the controller; ``controllers``: the one that decides first."""
        self.history = history or MetadataHistory()
        self.encoded = EncodedMetadata(self.history)
        self.controllers = controllers
        self._age_ms = age_ms
        self._clock = clock
        self._merge_ms = merge_ms
        self._node_id = node_id
        self._waiting: list[MetadataImage] = []
        self._served_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        # A dict, because it keeps the order in which they came.
        self._followers: dict[Callable[[], None], None] = {}
        # Those of them that do not know of the last change, in the order in which they are woken.
        self._unwoken: dict[Callable[[], None], None] = {}
        self._is_waking = False

    @property
    def follower_count(self) -> int:
        """How many subscriptions are open."""
        return len(self._followers)

    def follow(self, woken: Callable[[], None]) -> None:
        """Call ``woken`` after every change, until `leave`."""
        self._followers[woken] = None

    def leave(self, woken: Callable[[], None]) -> None:
        """The subscriber is gone."""
        self._followers.pop(woken, None)
        self._unwoken.pop(woken, None)

    def as_of(self) -> AsOf:
        """The position that is served, and how current it is now."""
        return self.stamped(self.history.as_of)

    def stamped(self, position: AsOf) -> AsOf:
        """A position as this process sends it now."""
        return position._replace(age_ms=self._age_ms(), node_id=self._node_id)

    def take(self, image: MetadataImage) -> None:
        """An image arrived: the state whole, or a change."""
        self._waiting.append(image)
        if self._timer is not None:
            return
        left_ms = 0 if self._served_ms is None else self._served_ms + self._merge_ms - self._clock()
        if left_ms <= 0:
            self.catch_up()
        else:
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self.catch_up)

    def catch_up(self) -> None:
        """Serve what has arrived, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        images, self._waiting = self._waiting, []
        self.history.take(images)
        self.encoded.forget()
        self._served_ms = self._clock()
        # A stream that still waits for an earlier change keeps its turn.
        self._unwoken.update(self._followers)
        if not self._is_waking:
            self._wake_some()

    def _wake_some(self) -> None:
        """Wake some, and the rest when these were served and everything else has had a turn."""
        for woken in list(islice(self._unwoken, WOKEN_PER_TURN)):
            del self._unwoken[woken]
            woken()
        self._is_waking = bool(self._unwoken)
        if self._is_waking:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def close(self) -> None:
        """Serve nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
