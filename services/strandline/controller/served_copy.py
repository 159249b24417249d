"""The metadata that one of several controllers serves, active or standby: its copy of what is stored (C60).

Invariant: what is served is stored. Its age is 0 while this controller decides, and else counts from the moment at
which a read of the store began whose head the copy has reached (C62).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from strandline.core.controller_state import ClusterState, Transaction
from strandline.core.draft import change_image
from strandline.core.reign_events import Head
from strandline.etcd.errors import EtcdError
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd import EtcdStore
from strandline.metadata.etcd_layout import Presence
from strandline.metadata.store import StoreFailed
from strandline.rpc.convert_metadata import CONTROLLER_ID
from strandline.rpc.convert_subscription import KnownController
from strandline.runtime.clock import Clock
from strandline.subscriptions.feed import MetadataFeed

_LEARN_S = 5.0
"""How often the controllers that are there are read, in seconds."""

_log = structlog.get_logger("strandline.controller")


class ServedCopy:
    """Feeds the subscribers of one controller from its copy of the store."""

    def __init__(self, store: EtcdStore, *, decides: Callable[[], bool], clock: Clock, merge_ms: int) -> None:
        self.feed = MetadataFeed(age_ms=self._age_ms, controllers=self._known, clock=clock, merge_ms=merge_ms)
        self._store = store
        self._decides = decides
        self._clock = clock
        # The copy is read after this, so it is not older.
        self._current_ms = clock()
        self._newest: tuple[int, int] | None = None
        self._present: tuple[Presence, ...] = ()
        store.on_change = self._changed

    def head_read(self, asked_ms: int, head: Head | None) -> None:
        """The store's head, read at ``asked_ms`` or later, is this one."""
        self._advance()
        self._newest = asked_ms, -1 if head is None else head.offset

    async def learn_controllers_forever(self) -> None:
        """Keep what subscribers are sent of the controllers; until cancelled."""
        while True:
            try:
                self._present = await self._store.controllers()
            except (EtcdError, StoreFailed, DamagedDocument) as error:
                _log.debug("the controllers were not read", reason=str(error))
            await asyncio.sleep(_LEARN_S)

    def _changed(self, state: ClusterState, transaction: Transaction | None) -> None:
        self.feed.take(state.snapshot() if transaction is None else change_image(state, transaction))

    def _age_ms(self) -> int:
        if self._decides():
            return 0
        self._advance()
        # Never 0: that says of its sender that it decides.
        return max(1, self._clock() - self._current_ms)

    def _advance(self) -> None:
        applied = self._store.applied
        if self._newest is not None and self._newest[1] <= (-1 if applied is None else applied.offset):
            self._current_ms, self._newest = self._newest[0], None

    def _known(self) -> tuple[KnownController, ...]:
        """The active controller first, if this process knows which one it is."""
        active = self._store.active
        known = {} if active is None else {active.controller_id: active}
        for one in self._present:
            known.setdefault(one.controller_id, one)
        return tuple(KnownController(CONTROLLER_ID, client=one.client, internal=one.internal) for one in known.values())
