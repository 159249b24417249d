"""The health of etcd's members, and the reaction when they have no space."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import structlog

from strandline.core.control.state import ClusterState
from strandline.core.errors import ControllerHint, ErrorCode, Refusal
from strandline.core.messages import Endpoint
from strandline.core.reigns.effects import Why
from strandline.core.reigns.events import Head
from strandline.etcd.errors import EtcdError
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd import EtcdHealth, EtcdStore
from strandline.metadata.etcd_layout import Presence
from strandline.metadata.store import StoreFailed, StoreWentBack
from strandline.rpc.channels import target

# ---- reign_refusal
# Explains why one of several controllers decides nothing at the moment, and which one is active: a message and a hint.


class Undecided(NamedTuple):
    """What a controller knows while it decides nothing."""

    why: Why
    since_s: float | None
    """How long it has decided nothing, in seconds; None if unknown."""
    health: EtcdHealth | None

    @property
    def no_decisions(self) -> str:
        """The first words of a message: for how long nothing has been decided."""
        return "no decisions" if self.since_s is None else f"no decisions for {self.since_s:.0f} s"

    @property
    def store_unreachable(self) -> str:
        """The message for a store without a majority, with the number of members that last answered."""
        known = f", {self.health.answering} of {self.health.members} members answer" if self.health is not None else ""
        return f"{self.no_decisions}: store unreachable{known}; bring back a majority of etcd"


def refused(why: Why, sentence: str) -> Refusal:
    """NOT_CONTROLLER, without the name of another controller."""
    return Refusal(ErrorCode.NOT_CONTROLLER, sentence, hint=ControllerHint(why))


def undecided(known: Undecided, *, is_active: bool, other: Presence | None, state: ClusterState | None) -> Refusal:
    """NOT_CONTROLLER. ``is_active``: this controller holds the key; ``other``: the one known to be active, or None."""
    why = known.why
    if why is Why.STORE_AWAY:
        return refused(why, known.store_unreachable)
    if why is Why.STORE_FULL:
        return refused(why, f"{known.no_decisions}: etcd has no space; compact, defragment, disarm the alarm")
    if is_active:
        # It holds the key, but its reign has not begun, or waits for the store.
        return refused(why, "this controller is about to decide; ask again")
    if other is None:
        return refused(why, "no controller is known to decide; ask again")
    client = target(other.client)
    epoch = state.header.controller_epoch if state is not None else 0
    return Refusal(
        ErrorCode.NOT_CONTROLLER,
        f"controller {other.controller_id} at {client} decides",
        hint=ControllerHint(why, other.controller_id, client, target(other.internal), epoch),
    )


# ---- store_space
# The three commands with which an operator ends etcd's NOSPACE alarm, with their values filled in.
#
# Nothing here runs them: etcd may be shared, a member does not answer while it is defragmented (etcd #20115), and an
# alarm that is disarmed while there is no space comes back (etcd #9992).


def remedy(members_leader_last: Sequence[Endpoint], revision: int) -> tuple[str, str, str]:
    """Commands to compact, to defragment one member after the other, and to disarm; TLS options are not included."""
    everywhere = ",".join(target(member) for member in members_leader_last)
    return (
        f"etcdctl --endpoints={everywhere} compact {revision}",
        f"etcdctl --endpoints={everywhere} --command-timeout=60s defrag",
        f"etcdctl --endpoints={everywhere} alarm disarm",
    )


_LOOK_S = 30.0
_LOOK_CLOSED_S = 1.0

_log = structlog.get_logger("strandline.reign")


class StoreHealth:
    """Checks the health of the store, independently of the reign."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self.last: EtcdHealth | None = None
        """The members' health at the last check; None before the first."""

    async def look(self) -> None:
        """Check now. If the store does not answer, the last result stays."""
        try:
            self.last = await self._store.health()
        except EtcdError as error:
            _log.debug("etcd was not looked at", reason=str(error))

    async def look_forever(self, is_closed: Callable[[], bool]) -> None:
        """Check the store every 30 s for the metrics, and every second while ``is_closed``, until cancelled."""
        while True:
            await self.look()
            for _ in range(round(_LOOK_S / _LOOK_CLOSED_S)):
                await asyncio.sleep(_LOOK_CLOSED_S)
                if is_closed():
                    break

    async def make_room(self, token: int) -> None:
        """Delete values that are no longer needed, and log the commands that an operator must run (C29)."""
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


# ---- seen_position
# The store's position when this controller last looked; a store with a lower position was restored (C40).
#
# Invariant: the file is replaced atomically and durably, and its position in the same etcd never goes back.

FILE_NAME = "seen-position.json"


@dataclass(frozen=True, slots=True)
class StorePosition:
    """The position that was seen."""

    directory_id: str = ""
    """The data directory's id, by which a controller recognizes an earlier process of its own."""
    cluster_id: str = ""
    """The id of the Strandline cluster."""
    etcd_cluster_id: int = 0
    revision: int = 0
    reign_id: str = ""
    offset: int = 0


class SeenPosition:
    """The seen position of one controller, in a file in its data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME
        # It is written from a thread during a reign, and on the event loop at its end.
        self._lock = threading.Lock()
        self.position = self._read()
        if not self.position.directory_id:
            fresh = replace(self.position, directory_id=uuid.uuid4().hex)
            self._write(fresh)
            self.position = fresh

    def revision_of(self, etcd_cluster_id: int) -> int:
        """The highest revision seen of this etcd; 0 for another one, whose revisions are unrelated."""
        return self.position.revision if self.position.etcd_cluster_id == etcd_cluster_id else 0

    def check(self, cluster_id: str, etcd_cluster_id: int, revision: int, head: Head | None) -> None:
        """Compare the store's present position with the seen one.

        Raises:
            StoreFailed: the store belongs to another cluster.
            StoreWentBack: its position is lower than before.
        """
        seen = self.position
        if seen.cluster_id and seen.cluster_id != cluster_id:
            raise StoreFailed(
                f"etcd_prefix is of cluster {cluster_id}, but this data directory is of {seen.cluster_id}; give the "
                f"prefix or the data_dir that belongs to it"
            )
        if revision < self.revision_of(etcd_cluster_id) or (head.offset if head is not None else 0) < seen.offset:
            raise StoreWentBack(
                f"etcd is at revision {revision} and {head}, and was at {seen.revision} and offset {seen.offset}: it "
                f"was restored from an older snapshot; run `strandline controller recover` with the nodes' directories"
            )
        self.position = replace(seen, cluster_id=cluster_id)

    def note(self, etcd_cluster_id: int, revision: int, head: Head | None) -> None:
        """Save the store's position durably.

        Raises:
            StoreFailed: the file cannot be written.
        """
        with self._lock:
            self._note(etcd_cluster_id, revision, head)

    def _note(self, etcd_cluster_id: int, revision: int, head: Head | None) -> None:
        fresh = StorePosition(
            directory_id=self.position.directory_id,
            cluster_id=self.position.cluster_id,
            etcd_cluster_id=etcd_cluster_id,
            revision=max(revision, self.revision_of(etcd_cluster_id)),
            reign_id=head.reign_id if head is not None else self.position.reign_id,
            offset=max(head.offset if head is not None else 0, self.position.offset),
        )
        if fresh != self.position:
            self._write(fresh)
            self.position = fresh

    def _read(self) -> StorePosition:
        try:
            return StorePosition(**json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return StorePosition()
        except (ValueError, TypeError, OSError) as error:
            raise StoreFailed(f"{self._path} cannot be read: {error}; delete it if it is damaged") from error

    def _write(self, position: StorePosition) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(json.dumps(asdict(position)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise StoreFailed(f"{self._path} cannot be written: {error.strerror}; look at the disk") from error
