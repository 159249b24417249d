"""How etcd's members are, and what is done when they have no space."""

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
# Why a controller among several decides nothing at this moment, and which one does: a sentence with a hint.


class Undecided(NamedTuple):
    """What a controller knows while it decides nothing."""

    why: Why
    since_s: float | None
    """For how long, in seconds, if that is known."""
    health: EtcdHealth | None

    @property
    def no_decisions(self) -> str:
        """The beginning of a sentence."""
        return "no decisions" if self.since_s is None else f"no decisions for {self.since_s:.0f} s"

    @property
    def store_unreachable(self) -> str:
        """With how many members answered last."""
        known = f", {self.health.answering} of {self.health.members} members answer" if self.health is not None else ""
        return f"{self.no_decisions}: store unreachable{known}; bring back a majority of etcd"


def refused(why: Why, sentence: str) -> Refusal:
    """NOT_CONTROLLER that names no other controller."""
    return Refusal(ErrorCode.NOT_CONTROLLER, sentence, hint=ControllerHint(why))


def undecided(known: Undecided, *, is_active: bool, other: Presence | None, state: ClusterState | None) -> Refusal:
    """NOT_CONTROLLER. ``is_active``: this one has the key; ``other``: the controller that is known to decide."""
    why = known.why
    if why is Why.STORE_AWAY:
        return refused(why, known.store_unreachable)
    if why is Why.STORE_FULL:
        return refused(why, f"{known.no_decisions}: etcd has no space; compact, defragment, disarm the alarm")
    if is_active:
        # It has the key, and has not begun, or waits for the store.
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
# What frees etcd of NOSPACE: the three commands that an operator runs, with their values filled in.
#
# Nothing here runs them: etcd may be shared, a member answers nothing while it is defragmented (etcd #20115), and an
# alarm that is disarmed without space comes back (etcd #9992).


def remedy(members_leader_last: Sequence[Endpoint], revision: int) -> tuple[str, str, str]:
    """Compact, defragment one member after the other, disarm; options for TLS or a user are the operator's to add."""
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


# ---- seen_position
# How far the store had come when this controller last looked: a store that has less was restored (C40).
#
# Invariant: the file is replaced whole and durably, and never says less than it did about the same etcd.

FILE_NAME = "seen-position.json"


@dataclass(frozen=True, slots=True)
class StorePosition:
    """What was seen."""

    directory_id: str = ""
    """Of the data directory, so that a controller knows an earlier process of its own."""
    cluster_id: str = ""
    """Of our cluster."""
    etcd_cluster_id: int = 0
    revision: int = 0
    reign_id: str = ""
    offset: int = 0


class SeenPosition:
    """The file of one controller, in its data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME
        # Noted from a thread while a reign lasts, and on the loop when it ends.
        self._lock = threading.Lock()
        self.position = self._read()
        if not self.position.directory_id:
            fresh = replace(self.position, directory_id=uuid.uuid4().hex)
            self._write(fresh)
            self.position = fresh

    def revision_of(self, etcd_cluster_id: int) -> int:
        """The highest revision seen of this etcd; 0 for another one, whose numbers are its own."""
        return self.position.revision if self.position.etcd_cluster_id == etcd_cluster_id else 0

    def check(self, cluster_id: str, etcd_cluster_id: int, revision: int, head: Head | None) -> None:
        """Compare what the store says now.

        Raises:
            StoreFailed: it is the store of another cluster.
            StoreWentBack: it has less than it had.
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
        """Remember durably how far the store has come.

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
