"""The controllers' store in etcd: a log of transactions that only the holder of the election key can extend.

Invariant: every write of a reign compares its token, and every append also the revision of `head` (C7); a process's
copy of the state is exactly the log up to `applied`, whether it came from a snapshot, the log or the watch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from strandline.core.control.state import ClusterState, Transaction
from strandline.core.messages import Endpoint
from strandline.core.reigns.events import Head, Holder
from strandline.etcd.client import Etcd
from strandline.etcd.errors import Compacted, EtcdError, EtcdWentBack, LeaseGone, NoSpace, NotPermitted, Unanswered
from strandline.etcd.operations import DELETE, Changes, behind, created_at, delete, found, get, put, watch, written_at
from strandline.etcd.v1.etcd_pb2 import KeyValue, StatusResponse, TxnResponse
from strandline.metadata import etcd_layout, store
from strandline.metadata.documents import WRONG_JSON, DamagedDocument, pack, state_of, unpack, whole

_PAGE = 50
"""Log values read in one request, which bounds the size of its answer."""
_TAIL = 1_000
"""Log values before a snapshot that are kept for followers that lag (C11)."""
_AGAIN_S = 0.1
_BEYOND_EVERY_OFFSET = 1 << 62
OLDEST = (3, 4)
FLOORS = ((3, 5, 13), (3, 4, 1_000))
"""Releases of a line below these, which is all of 3.4, may lose data on a crash or revoke leases in use.

etcd #13766, #14685, #15271, #15247."""


class StoreView(NamedTuple):
    """``active``, ``head`` and ``handover`` at one revision; becomes a `core.reigns.events.StoreRead`."""

    revision: int
    holder: Holder | None
    head: Head | None
    successor: str | None = None
    """The controller id that the last holder named, until the next one takes the key; only `EtcdStore.read` sets it."""


class EtcdHealth(NamedTuple):
    """The health of the members that answered."""

    answering: int
    members: int
    versions: tuple[str, ...]
    alarms: tuple[str, ...]
    db_bytes: int
    quota_bytes: int
    """0 if no member reports it; releases before 3.6 do not."""
    members_leader_last: tuple[Endpoint, ...]
    """All members, in the order in which they may be defragmented."""


class EtcdStore:
    """One controller's access to the store. Each method is one request; `core.reigns` decides when to make which."""

    def __init__(self, etcd: Etcd, prefix: str, *, part_bytes: int = 1 << 20, snapshot_every: int = 1_000) -> None:
        self.etcd = etcd
        self.keys = etcd_layout.Keys(prefix)
        self.part_bytes = part_bytes
        self.snapshot_every = snapshot_every
        self.state: ClusterState | None = None
        """This process's copy of the stored state, up to `applied`."""
        self.applied: Head | None = None
        self.active: etcd_layout.Presence | None = None
        """The holder of the key, as it describes itself."""
        self._since_snapshot = 0
        self._bytes_since_snapshot = 0
        self._trusts_head = True
        self.takes_log = True
        """Whether `follow` applies the log; during a reign `settled` applies what this process appends."""
        self.on_change: Callable[[ClusterState, Transaction | None], None] = lambda _state, _transaction: None
        """Called with the copy's new state, and the transaction that led to it or None for a snapshot."""

    # Opening.

    async def open(self, new_cluster_id: str) -> str:
        """Open the store and return its cluster's id; an empty store becomes the one of ``new_cluster_id``.

        Raises:
            StoreMarked: the store is half migrated, or was moved.
            StoreFailed: etcd does not answer, is too old, refuses this user, or holds something else.
        """
        value = _format_value(new_cluster_id)
        await self._refuse_marked()
        try:
            kept = await self.etcd.get(self.keys.format)
            if kept is None:
                answer = await self.etcd.txn(
                    [created_at(self.keys.format, 0)], [put(self.keys.format, value)], [get(self.keys.format)]
                )
                kept = None if answer.succeeded else found(answer, 0)
        except EtcdError as error:
            raise _failure(error) from error
        try:
            content = json.loads(kept.value if kept is not None else value)
            known, cluster_id = int(content["format"]), str(content["cluster_id"])
        except WRONG_JSON as error:
            raise store.StoreDamaged(
                f"etcd key {self.keys.format.decode()} is not of a controller: {error!r}"
            ) from error
        if known != etcd_layout.FORMAT:
            raise store.StoreFailed(f"the store in etcd has format {known}; this release reads {etcd_layout.FORMAT}")
        return cluster_id

    async def health(self) -> EtcdHealth:
        """Ask every member for its health."""
        answers = await asyncio.gather(*(self.etcd.status(m) for m in self.etcd.endpoints), return_exceptions=True)
        good = [answer for answer in answers if not isinstance(answer, BaseException)]
        return EtcdHealth(
            answering=len(good),
            members=len(answers),
            versions=tuple(answer.version for answer in good),
            alarms=tuple(sorted({error for answer in good for error in answer.errors})),
            db_bytes=max((answer.db_size for answer in good), default=0),
            quota_bytes=max((answer.db_size_quota for answer in good), default=0),
            members_leader_last=tuple(
                member
                for is_leader in (False, True)
                for member, answer in zip(self.etcd.endpoints, answers, strict=True)
                if _leads(answer) is is_leader
            ),
        )

    # The key (C12 to C20).

    async def grant(self, ttl_ms: int) -> int:
        """Take a lease and return its id. Raises `Unanswered`, `NoSpace`, `StoreFailed`."""
        return await self.etcd.grant(max(1, round(ttl_ms / 1000)))

    async def renew(self, lease_id: int) -> bool:
        """Renew a lease; return False if it has ended. Raises `Unanswered`, `StoreFailed`."""
        try:
            await self.etcd.renew(lease_id)
        except LeaseGone:
            return False
        return True

    async def revoke(self, lease_id: int) -> None:
        """End a lease. A failure is ignored, because the lease expires anyway."""
        try:
            await self.etcd.revoke(lease_id)
        except EtcdError:
            return

    async def campaign(self, lease_id: int, presence: etcd_layout.Presence, *, serves: bool = True) -> int | StoreView:
        """Take the key if it is free; return the token, or a view with the holder. A migration can take marked stores.

        Raises:
            StoreMarked: the store was moved after it was opened.
            Unanswered, NoSpace, StoreFailed: see `append`.
        """
        active, moved = self.keys.active, self.keys.moved
        answer = await self.etcd.txn(
            [created_at(active, 0), *([created_at(moved, 0)] if serves else [])],
            [put(active, etcd_layout.presence_value(presence), lease_id), delete(self.keys.successor)],
            [get(active), get(self.keys.head), get(moved)],
        )
        if answer.succeeded:
            self.active = presence
            return answer.header.revision
        if serves and (mark := found(answer, 2)) is not None:
            raise store.StoreMarked(store.read_mark(mark.value).sentence(self.place))
        return self._view(answer.header.revision, found(answer, 0), found(answer, 1))

    async def read(self) -> StoreView:
        """Read the three keys of the view, linearizably. Raises `Unanswered`, `StoreDamaged`, `StoreFailed`."""
        answer = await self.etcd.look(get(self.keys.active), get(self.keys.head), get(self.keys.successor))
        return self._view(answer.header.revision, *(found(answer, place) for place in range(3)))

    async def has_alarm(self) -> bool:
        """Whether a member has no space, or is corrupt (C16). Raises `Unanswered` if no member answers."""
        health = await self.health()
        if not health.answering:
            raise Unanswered("no member of etcd says how it is")
        return any("alarm" in error for error in health.alarms)

    async def take_key(self, token: int) -> tuple[int, bool]:
        """Delete the key of a dead controller; return the revision, and whether the key was there."""
        active = self.keys.active
        answer = await self.etcd.txn([created_at(active, token)], [delete(active)])
        return answer.header.revision, answer.succeeded

    async def resign(self, token: int, lease_id: int | None) -> None:
        """Give up the key, then the lease. Raises `Unanswered`, `StoreFailed`."""
        await self.take_key(token)
        if lease_id is not None:
            await self.revoke(lease_id)

    # The log (C6 to C9).

    async def append(self, token: int, after: int, batch: etcd_layout.TransactionBatch) -> int | StoreView:
        """Append a batch once: return the head's new revision, or a view of what the store holds instead.

        Raises:
            Unanswered: the batch may have been appended, or may still be.
            NoSpace, StoreFailed: it was not appended.
        """
        keys = self.keys
        ours = created_at(keys.active, token)
        look = (get(keys.active), get(keys.head))

        async def write(each: etcd_layout.TransactionPart | etcd_layout.AppendBatch) -> TxnResponse:
            if isinstance(each, etcd_layout.TransactionPart):
                key = keys.part(batch.head.reign_id, each.offset, each.number)
                return await self.etcd.txn([ours], [put(key, each.content)], look)
            values = [put(keys.log(piece.offset), piece.value) for piece in each.batch.pieces]
            last = put(keys.head, etcd_layout.head_value(each.batch.head))
            return await self.etcd.txn([ours, written_at(keys.head, after)], [*values, last], look)

        answer = await etcd_layout.write_in_order(etcd_layout.append_writes(batch), write, _succeeded)
        if answer.succeeded:
            return answer.header.revision
        return self._view(answer.header.revision, found(answer, 0), found(answer, 1))

    def settled(self, batch: etcd_layout.TransactionBatch, head: Head) -> None:
        """Apply a batch that this process has appended to the log to the copy of the state."""
        known = self.applied.offset if self.applied is not None else -1
        for transaction in batch.transactions:
            if transaction.header.metadata_offset > known:
                self._apply(transaction)
        self.applied = head
        self._since_snapshot += len(batch.transactions)
        self._bytes_since_snapshot += batch.size

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log has grown enough for another snapshot (C11)."""
        return self._since_snapshot >= self.snapshot_every or self._bytes_since_snapshot >= 4 << 20

    async def snapshot(self, token: int) -> bool:
        """Write a snapshot of the copy and trim the log before it; return False if the reign of the token is over.

        Raises `Unanswered`, `NoSpace`, `StoreFailed`.
        """
        state, head, keys = self.state, self.applied, self.keys
        if state is None or head is None:
            return True
        ours = created_at(keys.active, token)
        packed = await asyncio.to_thread(lambda: pack(whole(state)))

        async def write(each: etcd_layout.SnapshotPart | etcd_layout.SnapshotNamed) -> TxnResponse:
            if isinstance(each, etcd_layout.SnapshotPart):
                return await self.etcd.txn([ours], [put(keys.snapshot_part(head.offset, each.number), each.content)])
            replaced = [delete(begin, end) for begin, end in keys.replaced_by_snapshot(head, _TAIL)]
            return await self.etcd.txn([ours], [put(keys.current_snapshot, each.content), *replaced])

        done = await etcd_layout.write_in_order(etcd_layout.snapshot_writes(head, packed), write, _succeeded)
        if done.succeeded:
            self._since_snapshot = self._bytes_since_snapshot = 0
        return done.succeeded

    async def make_room(self, token: int) -> int:
        """Delete the log values that the snapshot covers; return how many. etcd needs no space for this (C29).

        Followers that lag read the snapshot instead. Raises `Unanswered`, `StoreFailed`.
        """
        kept = await self.etcd.get(self.keys.current_snapshot)
        if kept is None:
            return 0
        offset = etcd_layout.read_snapshot(kept.value).head.offset
        answer = await self.etcd.txn(
            [created_at(self.keys.active, token)],
            [delete(begin, end) for begin, end in self.keys.held_by_snapshot(offset)],
        )
        return sum(each.response_delete_range.deleted for each in answer.responses) if answer.succeeded else 0

    async def replace(self, state: ClusterState, reign_id: str, *, token: int = 0) -> None:
        """Replace the whole content by ``state``, if no controller holds the key (recovery, TR18), or with ``token``.

        Raises:
            StoreInUse: a controller holds the key.
            StoreFailed: the outcome is unknown; the old content may still be there. Run it again.
        """
        keys = self.keys
        packed = await asyncio.to_thread(lambda: pack(whole(state)))
        head = Head(reign_id, state.header.metadata_offset, etcd_layout.digest(packed))
        own = keys.snapshot_parts(head.offset)

        async def write(each: etcd_layout.SnapshotPart | etcd_layout.SnapshotNamed) -> TxnResponse:
            if isinstance(each, etcd_layout.SnapshotPart):
                return await self.etcd.txn([], [put(keys.snapshot_part(head.offset, each.number), each.content)])
            return await self.etcd.txn(
                [created_at(keys.active, token)],
                [
                    put(keys.format, _format_value(state.header.cluster_id)),
                    put(keys.current_snapshot, each.content),
                    put(keys.head, etcd_layout.head_value(head)),
                    delete(keys.logs, behind(keys.logs)),
                    delete(*keys.all_parts),
                    delete(keys.successor),
                    delete(keys.first_snapshot, own),
                    delete(behind(own), keys.current_snapshot),
                ],
            )

        try:
            done = await etcd_layout.write_in_order(etcd_layout.snapshot_writes(head, packed), write, _succeeded)
        except EtcdError as error:
            raise _failure(error) from error
        if not done.succeeded:
            raise store.StoreInUse("a controller holds the store in etcd; stop every controller first")

    async def read_state(self) -> ClusterState | None:
        """Read the whole state; None if nothing was ever stored.

        Raises:
            StoreMarked: the store is half migrated, or was moved.
            StoreFailed: etcd does not answer, or its content is damaged.
        """
        await self._refuse_marked()
        return await self.read_marked_state()

    async def read_marked_state(self) -> ClusterState | None:
        """As `read_state`, but also for a store that must not serve, with which a migration may continue."""
        self.forget()
        try:
            await self._read_from_snapshot(0)
        except EtcdError as error:
            raise _failure(error) from error
        except DamagedDocument as error:
            raise store.StoreDamaged(f"the store in etcd is damaged: {error}") from error
        return self.state

    async def read_for_recovery(self) -> ClusterState | None:
        """As `read_state`, but if ``head`` is damaged, read snapshot and log as far as possible.

        A recovery continues above everything that its nodes have seen, so positions lost here are not used twice.
        """
        await self._refuse_marked()
        try:
            answer = await self.etcd.look(get(self.keys.head))
        except EtcdError as error:
            raise _failure(error) from error
        try:
            self._view(answer.header.revision, None, found(answer, 0))
        except store.StoreDamaged:
            self._trusts_head = False
        return await self.read_marked_state()

    # Moving to another store, and from one (C44).

    @property
    def place(self) -> str:
        """The store's name in the form of `controller migrate`."""
        members = ",".join(f"{member.host}:{member.port}" for member in self.etcd.endpoints)
        return f"etcd:{members}{self.keys.prefix}"

    async def mark(self) -> store.Mark | None:
        """Why the store must not serve; None if it may.

        Raises:
            StoreFailed: etcd does not answer, or the mark cannot be read.
        """
        try:
            kept = await self.etcd.get(self.keys.moved)
            return None if kept is None else store.read_mark(kept.value)
        except EtcdError as error:
            raise _failure(error) from error
        except DamagedDocument as error:
            raise store.StoreDamaged(f"the store in etcd is damaged: {error}") from error

    async def set_mark(self, token: int, mark: store.Mark | None) -> None:
        """Mark the store so that it must not serve, or remove the mark with None.

        Raises:
            StoreInUse: another process holds the key.
            StoreFailed: the outcome is unknown.
        """
        moved = self.keys.moved
        change = delete(moved) if mark is None else put(moved, store.mark_value(mark).encode())
        try:
            done = await self.etcd.txn([created_at(self.keys.active, token)], [change])
        except EtcdError as error:
            raise _failure(error) from error
        if not done.succeeded:
            raise store.StoreInUse(f"a controller took the store {self.place}; stop every controller and run it again")

    async def _refuse_marked(self) -> None:
        mark = await self.mark()
        if mark is not None:
            raise store.StoreMarked(mark.sentence(self.place))

    # Following (C17).

    def forget(self) -> None:
        """Drop the copy of the state; `follow` reads it again."""
        self.state = self.applied = self.active = None

    async def name_successor(self, token: int, controller_id: str) -> None:
        """Name the controller that shall reign next. Raises `Unanswered`, `NoSpace`, `StoreFailed`."""
        await self.etcd.txn([created_at(self.keys.active, token)], [put(self.keys.successor, controller_id.encode())])

    async def follow(
        self,
        on_applied: Callable[[Head | None], None],
        on_key: Callable[[int, Holder | None, str | None], None],
        on_successor: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read everything, then apply every change as it arrives, until cancelled.

        Raises:
            StoreDamaged, StoreWentBack, StoreFailed: the store cannot be followed.
        """
        while True:
            try:
                revision = await self._read_whole(on_applied, on_key)
                async for changes in self._watch_from(revision + 1):
                    if not await self._take(changes, on_applied, on_key, on_successor):
                        break
            except (Unanswered, Compacted):
                await asyncio.sleep(_AGAIN_S)
            except EtcdError as error:
                raise _failure(error) from error
            except DamagedDocument as error:
                raise store.StoreDamaged(f"the store in etcd is damaged: {error}") from error

    async def read_log(self, head: Head) -> Head:
        """Apply the log up to ``head``; return the head of the copy. Raises `Unanswered`, `StoreFailed`."""
        try:
            if self.applied is None or not await self._read_log_behind(self.applied.offset, head.offset, 0):
                await self._read_from_snapshot(0)
        except DamagedDocument as error:
            raise store.StoreDamaged(f"the store in etcd is damaged: {error}") from error
        if self.applied is None or self.applied.offset < head.offset:
            raise store.StoreDamaged(f"the log in etcd ends at {self.applied}, its head says {head}")
        return self.applied

    async def _watch_from(self, revision: int) -> AsyncIterator[Changes]:
        since = revision
        while True:
            try:
                async for changes in watch(self.etcd, *self.keys.followed, since=since):
                    yield changes
                    since = changes.revision + 1
            except Unanswered:
                await asyncio.sleep(_AGAIN_S)

    async def _read_whole(
        self, on_applied: Callable[[Head | None], None], on_key: Callable[[int, Holder | None, str | None], None]
    ) -> int:
        revision = await self._read_from_snapshot(0)
        on_applied(self.applied)
        view = await self.read()
        on_key(view.revision, view.holder, view.successor)
        return revision

    async def _read_from_snapshot(self, at: int) -> int:
        """Read everything as of one revision; return the revision."""
        answer = await self.etcd.look(get(self.keys.current_snapshot), get(self.keys.head))
        revision = at or answer.header.revision
        current, newest = found(answer, 0), found(answer, 1)
        state, applied = None, None
        if current is not None:
            snapshot = etcd_layout.read_snapshot(current.value)
            prefix = self.keys.snapshot_parts(snapshot.head.offset)
            parts = await self._values(prefix, behind(prefix), revision)
            packed = etcd_layout.joined(parts[: snapshot.parts], snapshot.checksum)
            if packed is None:
                raise store.StoreDamaged(f"the snapshot of offset {snapshot.head.offset} in etcd is not whole")
            state, applied = state_of(await asyncio.to_thread(unpack, packed)), snapshot.head
        if self.applied is None or (applied is not None and applied.offset > self.applied.offset):
            self.state, self.applied = state, applied
            if state is not None:
                self.on_change(state, None)
        begin = self.applied.offset if self.applied is not None else None
        if not self._trusts_head:
            await self._read_log_behind(begin, _BEYOND_EVERY_OFFSET, revision)
            return revision
        head = None if newest is None else etcd_layout.read_head(newest.value, newest.mod_revision)
        if head is not None and not await self._read_log_behind(begin, head.offset, revision):
            raise store.StoreDamaged(f"the log in etcd has a gap between {self.applied} and {head}")
        return revision

    async def _read_log_behind(self, offset: int | None, end: int, revision: int) -> bool:
        """Apply the log after ``offset`` up to ``end``; return False if some of it has been deleted."""
        keys = self.keys
        begin = keys.log(0 if offset is None else offset + 1)
        while True:
            page = await self._page(begin, keys.log(end + 1), revision)
            for key, value, written in page:
                # Parts are read as of the same revision, because the next snapshot deletes those of earlier reigns.
                if not await self._take_log_value(key, value, written, revision):
                    return False
            if len(page) < _PAGE:
                return self.applied is not None and self.applied.offset >= end
            begin = page[-1][0] + b"\0"

    async def _take(
        self,
        changes: Changes,
        on_applied: Callable[[Head | None], None],
        on_key: Callable[[int, Holder | None, str | None], None],
        on_successor: Callable[[str], None],
    ) -> bool:
        """Apply the changes of one revision; return False if everything must be read again."""
        before = self.applied
        for event in changes.events:
            key = event.kv.key
            if key == self.keys.active:
                on_key(changes.revision, None if event.type == DELETE else self._holder(event.kv), None)
            elif key == self.keys.successor and event.type != DELETE:
                on_successor(event.kv.value.decode())
            elif (
                self.takes_log
                and key.startswith(self.keys.logs)
                and event.type != DELETE
                and not await self._take_log_value(key, event.kv.value, event.kv.mod_revision)
            ):
                return False
        if self.applied is not None and self.applied != before:
            on_applied(self.applied)
        return True

    async def _take_log_value(self, key: bytes, value: bytes, revision: int, at: int = 0) -> bool:
        """Apply one value of the log if it is new; return False on a gap. Its parts are read as of revision ``at``."""
        offset = self.keys.offset_of(key)
        place = etcd_layout.place_of(offset, self.applied)
        if place is not etcd_layout.LogPlace.NEXT:
            return place is etcd_layout.LogPlace.KNOWN
        taken = etcd_layout.read_log_value(value, offset=offset, revision=revision)
        packed = await self._packed(taken, at)
        if packed is None:
            return False
        # Another task may have applied it while its parts were read.
        if self.applied is None or self.applied.offset < offset:
            self._apply(unpack(packed))
            self.applied = taken.head
        return True

    async def _packed(self, taken: etcd_layout.LogValue, at: int) -> bytes | None:
        if not taken.parts:
            return taken.packed(())
        prefix = self.keys.parts_of(taken.head.reign_id, taken.head.offset)
        return taken.packed(await self._values(prefix, behind(prefix), at))

    async def _values(self, begin: bytes, end: bytes, revision: int) -> list[bytes]:
        values: list[bytes] = []
        while True:
            page = await self._page(begin, end, revision)
            values += [value for _, value, _ in page]
            if len(page) < _PAGE:
                return values
            begin = page[-1][0] + b"\0"

    async def _page(self, begin: bytes, end: bytes, revision: int) -> list[tuple[bytes, bytes, int]]:
        return [(kv.key, kv.value, kv.mod_revision) for kv in await self.etcd.page(begin, end, revision, _PAGE)]

    def _apply(self, transaction: Transaction) -> None:
        before = self.state
        self.state = state_of(transaction) if before is None else before.apply(transaction)
        self.on_change(self.state, None if before is None else transaction)

    def _view(
        self, revision: int, active: KeyValue | None, head: KeyValue | None, successor: KeyValue | None = None
    ) -> StoreView:
        try:
            known = None if head is None else etcd_layout.read_head(head.value, head.mod_revision)
            named = None if successor is None else successor.value.decode()
            return StoreView(revision, self._holder(active), known, named)
        except DamagedDocument as error:
            raise store.StoreDamaged(f"the store in etcd is damaged: {error}") from error

    def _holder(self, kv: KeyValue | None) -> Holder | None:
        if kv is None:
            self.active = None
            return None
        self.active = etcd_layout.read_presence(kv.value)
        return Holder(
            kv.create_revision,
            self.active.controller_id,
            self.active.incarnation_id,
            kv.lease,
        )

    # The running controllers.

    async def announce(self, presence: etcd_layout.Presence, lease_id: int) -> None:
        """Write this controller's addresses and position. Raises `Unanswered`, `NoSpace`, `StoreFailed`."""
        await self.etcd.put(
            self.keys.controller(presence.controller_id), etcd_layout.presence_value(presence), lease_id
        )

    async def controllers(self) -> tuple[etcd_layout.Presence, ...]:
        """All running controllers. Raises `Unanswered`, `StoreFailed`."""
        values = await self._values(self.keys.controllers, behind(self.keys.controllers), 0)
        try:
            return tuple(etcd_layout.read_presence(value) for value in values)
        except DamagedDocument as error:
            raise store.StoreDamaged(f"the store in etcd is damaged: {error}") from error

    async def close(self) -> None:
        """Close every connection."""
        await self.etcd.close()


def _succeeded(answer: TxnResponse) -> bool:
    return answer.succeeded


def _format_value(cluster_id: str) -> bytes:
    return json.dumps({"format": etcd_layout.FORMAT, "cluster_id": cluster_id}).encode()


def _leads(answer: StatusResponse | BaseException) -> bool:
    """Whether a member reports that it is etcd's leader."""
    return isinstance(answer, StatusResponse) and bool(answer.leader) and answer.leader == answer.header.member_id


def too_old(versions: Sequence[str], *, floor: bool) -> str | None:
    """Why a member's release is refused, or with ``floor`` causes a warning; None if all releases are good."""
    for version in versions:
        numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:3] if part.isdecimal())
        if not floor and numbers < OLDEST:
            return f"etcd {version} is too old; run 3.5.13 or newer"
        line = next((least for least in FLOORS if least[:2] == numbers[:2]), None)
        if floor and line is not None and numbers < line:
            return (
                f"etcd {version} may lose data on a crash or revoke leases in use (etcd #13766, #14685, #15271, "
                f"#15247); run 3.5.13 or newer"
            )
    return None


def _failure(error: EtcdError) -> store.StoreFailed:
    if isinstance(error, Unanswered):
        return store.StoreAway(f"{error}; is etcd running, and are etcd_endpoints right?")
    if isinstance(error, NoSpace):
        return store.StoreFull(f"{error}; compact, defragment one member at a time, then disarm the alarm")
    if isinstance(error, EtcdWentBack):
        return store.StoreWentBack(f"{error}; run `strandline controller recover` with the nodes' data directories")
    if isinstance(error, NotPermitted):
        return store.StoreFailed(f"{error}; check etcd_user, etcd_password_file, etcd_cert and the role on etcd_prefix")
    return store.StoreFailed(str(error))
