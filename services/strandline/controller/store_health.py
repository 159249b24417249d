"""How etcd's members are, and what is done when they have no space."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from strandline.controller.store_space import remedy
from strandline.etcd.errors import EtcdError
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd import EtcdHealth, EtcdStore

_LOOK_S = 30.0
_LOOK_CLOSED_S = 1.0

_log = structlog.get_logger("strandline.reign")


class StoreHealth:
    """Looks at the store beside the reign."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self.last: EtcdHealth | None = None
        """How the members were when they were asked last."""

    async def look(self) -> None:
        """Ask now. A store that does not answer leaves what was known."""
        try:
            self.last = await self._store.health()
        except EtcdError as error:
            _log.debug("etcd was not looked at", reason=str(error))

    async def look_forever(self, is_closed: Callable[[], bool]) -> None:
        """How large etcd's file is, and who answers: each second while nothing is decided, else for the metrics."""
        while True:
            await self.look()
            for _ in range(round(_LOOK_S / _LOOK_CLOSED_S)):
                await asyncio.sleep(_LOOK_CLOSED_S)
                if is_closed():
                    break

    async def make_room(self, token: int) -> None:
        """Delete what etcd can do without, and print what an operator runs for the rest (C29)."""
        deleted = 0
        try:
            deleted = await self._store.make_room(token)
        except (EtcdError, DamagedDocument) as error:
            _log.warning("no log was deleted", reason=str(error))
        await self.look()
        members = self.last.members_leader_last if self.last is not None else self._store.etcd.endpoints
        _log.error("etcd has no space, so nothing is decided; run these, in this order", deleted_log_values=deleted)
        for step, command in enumerate(remedy(members, self._store.etcd.revision), start=1):
            _log.error("remedy", step=step, run=command)
