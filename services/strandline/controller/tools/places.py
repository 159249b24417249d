"""The places between which a migration moves a store: a directory with SQLite, keys in etcd, a backup.

Invariant: between `__aenter__` and `__aexit__` no other process writes to the place: this process holds SQLite's lock,
or etcd's election key, which every write to etcd compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
from abc import abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from strandline.controller.tools.etcd_access import EtcdAccess
from strandline.core.control.state import ClusterState
from strandline.core.messages import Endpoint
from strandline.etcd.errors import EtcdError
from strandline.metadata.etcd import EtcdStore, too_old
from strandline.metadata.etcd_layout import Presence
from strandline.metadata.sqlite import FILE_NAME, SqliteStore
from strandline.metadata.store import Mark, StoreFailed, StoreInUse

_FIRST_ANSWER_S = 10.0
_LEASE_MS = 5_000
_RENEW_S = _LEASE_MS / 3_000
_FREE_S = 8.0
"""How long to wait for the election key: longer than the lease of a migration that was killed."""
_LOOK_S = 0.2


class StorePlace(Protocol):
    """A store to which a migration has exclusive access while it is entered."""

    name: str
    """The store's name in the form of `controller migrate`."""
    mark: Mark | None
    """Why the store must not serve, as read on entering or as set since; None if it may serve."""

    async def __aenter__(self) -> Self:
        """Lock the store.

        Raises:
            StoreInUse: a controller uses it.
            StoreFailed: it cannot be opened.
        """
        ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unlock the store."""
        ...

    async def read(self) -> ClusterState | None:
        """The stored state; None if nothing was ever stored. Raises `StoreFailed`."""
        ...

    async def set_mark(self, mark: Mark | None) -> None:
        """Mark the store so that it must not serve, or remove the mark with None. Raises `StoreFailed`."""
        ...

    async def write(self, state: ClusterState) -> None:
        """Replace the whole content by ``state``. Raises `StoreFailed`."""
        ...


class SqlitePlace:
    """The store in a controller's data directory."""

    def __init__(self, directory: Path, *, is_source: bool) -> None:
        # Absolute, so that a mark names the same place whatever directory the command is run in.
        self.name = f"sqlite:{directory.absolute()}"
        self.mark: Mark | None = None
        self._directory = directory
        self._is_source = is_source
        self._store = SqliteStore(directory)

    async def __aenter__(self) -> Self:
        """See `StorePlace`."""
        if self._is_source:
            _must_hold_a_store(self._directory)
        try:
            await self._store.open_marked()
        except BaseException:
            await self._store.close()
            raise
        self.mark = self._store.mark
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `StorePlace`."""
        await self._store.close()

    async def read(self) -> ClusterState | None:
        """See `StorePlace`."""
        return await self._store.read()

    async def set_mark(self, mark: Mark | None) -> None:
        """See `StorePlace`."""
        await self._store.set_mark(mark)
        self.mark = mark

    async def write(self, state: ClusterState) -> None:
        """See `StorePlace`."""
        await self._store.replace(state)


class BackupPlace:
    """A file that `controller backup` wrote. It is read from a copy, so that it is not changed."""

    def __init__(self, file: Path) -> None:
        self.name = f"backup:{file.absolute()}"
        self.mark: Mark | None = None
        self._file = file
        self._folder = tempfile.TemporaryDirectory(prefix="strandline-")
        self._store = SqliteStore(Path(self._folder.name))

    async def __aenter__(self) -> Self:
        """See `StorePlace`."""
        try:
            await asyncio.to_thread(shutil.copyfile, self._file, Path(self._folder.name) / FILE_NAME)
            await self._store.open()
        except OSError as error:
            self._folder.cleanup()
            raise StoreFailed(f"the backup {self._file} cannot be read: {error}") from error
        except StoreFailed as error:
            await self._store.close()
            self._folder.cleanup()
            raise StoreFailed(f"{self._file} is not a backup of a controller's store: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `StorePlace`."""
        await self._store.close()
        self._folder.cleanup()

    async def read(self) -> ClusterState | None:
        """See `StorePlace`."""
        return await self._store.read()

    async def set_mark(self, mark: Mark | None) -> None:
        """Do nothing: a backup can be restored more than once."""

    async def write(self, state: ClusterState) -> None:
        """Refuse: a backup is never written to."""
        raise StoreFailed(f"{self.name} cannot be written; use `strandline controller backup`")


class EtcdPlace:
    """The store in etcd, locked by the election key."""

    def __init__(self, access: EtcdAccess) -> None:
        self._store: EtcdStore = access.store()
        self.name = self._store.place
        self.mark: Mark | None = None
        self._token = 0
        self._lease = 0
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """See `StorePlace`."""
        try:
            await self._store.etcd.until_serving(_FIRST_ANSWER_S)
            if why := too_old((await self._store.health()).versions, floor=False):
                raise StoreFailed(why)
            await self._take_key()
            self.mark = await self._store.mark()
        except EtcdError as error:
            await self._leave()
            raise StoreFailed(f"{error}; is etcd running, and are its addresses right?") from error
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `StorePlace`."""
        await self._leave()

    async def read(self) -> ClusterState | None:
        """See `StorePlace`."""
        return await self._store.read_marked_state()

    async def set_mark(self, mark: Mark | None) -> None:
        """See `StorePlace`."""
        await self._store.set_mark(self._token, mark)
        self.mark = mark

    async def write(self, state: ClusterState) -> None:
        """See `StorePlace`."""
        await self._store.replace(state, secrets.token_hex(16), token=self._token)

    async def _take_key(self) -> None:
        """Wait for the leases of processes that have ended, then hold the key.

        Raises:
            StoreInUse: a controller runs.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _FREE_S
        # No controller has this address, so none is dialled when it looks at who holds the key.
        nowhere = Endpoint("migration.invalid", 1)
        presence = Presence("(migration)", secrets.token_hex(8), nowhere, nowhere)
        self._lease = await self._store.grant(_LEASE_MS)
        self._renewing = loop.create_task(self._renew())
        while True:
            there = [one.controller_id for one in await self._store.controllers()]
            if not there:
                won = await self._store.campaign(self._lease, presence, serves=False)
                if isinstance(won, int):
                    self._token = won
                    return
                there = [won.holder.controller_id] if won.holder is not None else []
            if loop.time() > deadline_s:
                raise StoreInUse(
                    f"the store {self.name} is in use by {', '.join(sorted(there))}; stop every controller, then run "
                    f"it again"
                )
            await asyncio.sleep(_LOOK_S)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            # If the lease has ended, the next write notices it, because it compares the token.
            with contextlib.suppress(EtcdError):
                await self._store.renew(self._lease)

    async def _leave(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        with contextlib.suppress(EtcdError):
            await self._store.resign(self._token, self._lease)
        await self._store.close()


def _must_hold_a_store(directory: Path) -> None:
    if not (directory / FILE_NAME).exists():
        raise StoreFailed(f"{directory} holds no {FILE_NAME}; give the controller's data directory")
