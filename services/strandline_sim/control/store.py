"""The store of several controllers: a linearizable log with leases, behind a network that loses and delays.

Invariant: an operation takes effect at one moment or never, by the comparisons of `sim.fenced_log`; what a caller
learns of it depends on the network. Each write is checked as it happens: I19, I21, and I22 for a snapshot. Controllers
read only ``values``; the checks compare that with ``log``, from which nothing is ever deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from strandline.core.control.state import ClusterState, Transaction
from strandline.core.reigns import effects, events
from strandline.metadata.documents import DamagedDocument, pack, whole
from strandline.metadata.etcd_layout import LogValue, TransactionBatch, read_snapshot, snapshot_of
from strandline_sim.checks.committed import Broken
from strandline_sim.control import stored_values
from strandline_sim.control.stored_values import KEYS, StoreCopy, StoredValues, draw_limits
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.network import Call, Stream

STORE = -100
_HELD = 64
"""The most operations that wait for a quorum; more are dropped."""

Answer = tuple[Any, ...]
"""An event of `core.reign_events` without its time and question: the class, then the other fields."""


class Entry(NamedTuple):
    """One transaction of the log, and the stored state after it."""

    head: events.Head
    after: ClusterState
    values: StoredValues


class LeasedStore:
    """The store as one machine that always exists; ``is_away`` is the loss of its quorum."""

    def __init__(self, world: Cluster, keep: Callable[[ClusterState], None]) -> None:
        self.party_id = STORE
        self.alive = True
        self.limits = draw_limits(Draw(world.shape.seed, Purpose.STORE, 2))
        self.values = StoredValues()
        self.on_part: Callable[[str], object] = lambda _: None
        """Called when a controller has put a part of a transaction."""
        self.log: list[Entry] = []
        self.base = 0
        """The offset before the first entry: a recovery leaves one entry, at its own offset."""
        self.is_old = False
        """Whether it was restored from a copy, and no recovery has followed yet (C40)."""
        self.restored = 0
        self.key: events.Holder | None = None
        self.successor: str | None = None
        """The controller id that the last holder named, until the next one takes the key."""
        self.revision = 1
        self.is_away = False
        self.is_full = False
        self.loses_answers = False
        self.loses_next_named = False
        """Whether the answer to the next transaction that names parts gets lost."""
        self._is_lost = False
        self.watch_lag_us = 0
        self._world = world
        self._keep = keep
        self._draw = Draw(world.shape.seed, Purpose.STORE, 1)
        self._leases: dict[int, tuple[int, int]] = {}
        self._last_lease = 0
        self._highest = 1
        self._held: list[tuple[Call, Callable[[], Answer]]] = []
        self._watchers: list[Stream] = []
        self._told_us = 0
        self._epochs: dict[int, int] = {}
        self._unnamed: dict[tuple[str, int], int] = {}
        """Parts that no transaction names, by reign and offset, with the writer's token."""
        self.digests: set[str] = set()
        """Digests of all batches that were written."""
        self.refused: set[str] = set()
        """Digests of all batches that a caller learned were not written."""
        world.network.parties[STORE] = self

    def hand(self, action: Callable[..., object], *given: Any) -> None:
        """Run an action now: the store is never paused."""
        action(*given)

    @property
    def head(self) -> events.Head | None:
        """The last transaction."""
        return self.log[-1].head if self.log else None

    @property
    def state(self) -> ClusterState | None:
        """The fold of the log."""
        return self.log[-1].after if self.log else None

    def holds(self, controller_epoch: int, offset: int) -> bool:
        """Whether the transaction of an image is stored (I20)."""
        if not self.base < offset <= self.base + len(self.log):
            return False
        return self.log[offset - self.base - 1].after.header.controller_epoch == controller_epoch

    # Operations.

    def serve(self, work: Callable[[], Answer], call: Call) -> None:
        """Take an operation: it takes effect now, or when there is a quorum again, or never."""
        if self.is_away:
            if len(self._held) < _HELD and self._draw.chance(500):
                self._held.append((call, work))
            return
        answer = work()
        is_lost, self._is_lost = self._is_lost, False
        if is_lost or (self.loses_answers and self._draw.chance(300)):
            self._world.coverage.saw("store: answer lost after taking effect")
            return
        self._world.network.reply(call, answer)

    def comes_back(self) -> None:
        """There is a quorum again: held operations take effect; every lease begins again with the new leader."""
        self.is_away = False
        held, self._held = self._held, []
        for lease_id, (ttl_ms, _) in list(self._leases.items()):
            self._begin_lease(lease_id, ttl_ms)
        for call, work in held:
            self._world.coverage.saw("store: operation took effect late")
            self._world.network.reply(call, work())

    def perform(self, effect: Any, name: str, incarnation: str, batch: TransactionBatch | None = None) -> Answer:
        """Carry out one operation of a controller."""
        match effect:
            case effects.GrantLease():
                return self._grant(effect.ttl_ms)
            case effects.RenewLease():
                if effect.lease_id not in self._leases:
                    return (events.LeaseLost,)
                self._begin_lease(effect.lease_id, self._leases[effect.lease_id][0])
                return (events.LeaseRenewed,)
            case effects.ReadAlarm():
                return events.AlarmRead, self.is_full
            case effects.ReadStore():
                return events.StoreRead, self.revision, self.key, self.head, self.successor
            case effects.Campaign():
                return self._campaign(effect, name, incarnation)
            case effects.TakeKey():
                before = self.key
                self._take(effect.token, events.Holder(effect.token, name, incarnation, 0))
                return events.KeyTaken, self.revision, before is not None and self.key is None
            case effects.Resign():
                self._take(effect.token, events.Holder(effect.token, name, incarnation, 0))
                if effect.lease_id is not None:
                    self.end_lease(effect.lease_id)
                return (events.Resigned,)
            case effects.Append():
                assert batch is not None
                return self._append(effect, batch)
        raise AssertionError(effect)

    def _grant(self, ttl_ms: int) -> Answer:
        if self.is_full:
            return (events.NoSpace,)
        self._last_lease += 1
        self._begin_lease(self._last_lease, ttl_ms)
        return events.LeaseGranted, self._last_lease

    def _begin_lease(self, lease_id: int, ttl_ms: int) -> None:
        turn = self._leases.get(lease_id, (0, 0))[1] + 1
        self._leases[lease_id] = (ttl_ms, turn)
        # A lease ends at its time or a little later, as in etcd.
        late_us = self._draw.between(0, 600_000)
        self._world.timeline.after(ttl_ms * 1_000 + late_us, self._expire, lease_id, turn)

    def _expire(self, lease_id: int, turn: int) -> None:
        if self._leases.get(lease_id, (0, 0))[1] == turn and not self.is_away:
            self.end_lease(lease_id)

    def end_lease(self, lease_id: int) -> None:
        """A lease ends: at its time, revoked, or while it is used (etcd #15247); its key goes with it."""
        if self._leases.pop(lease_id, None) is not None and self.key is not None and self.key.lease_id == lease_id:
            self._put_key(None)

    def _campaign(self, effect: effects.Campaign, name: str, incarnation: str) -> Answer:
        if self.key is not None:
            return events.CampaignLost, self.revision, self.key
        if self.is_full or effect.lease_id not in self._leases:
            return (events.NoSpace,)
        key = stored_values.put_key(self.key, events.Holder(0, name, incarnation, effect.lease_id), self.revision + 1)
        assert key is not None
        self.successor = None
        self._put_key(key)
        return events.CampaignWon, key.token

    def _take(self, token: int, taker: events.Holder) -> None:
        key = stored_values.key_after_taking(self.key, token, taker)
        if key != self.key:
            self._put_key(key)

    def name_successor(self, token: int, controller_id: str) -> Answer:
        """Store which controller is to be next, if ``token`` is still the key's (C22)."""
        if self.key is not None and self.key.token == token:
            self.successor = controller_id
            self.revision += 1
            self._tell((events.SuccessorNamed, self.revision, controller_id))
        return ()

    def _put_key(self, key: events.Holder | None) -> None:
        self.key = key
        self.revision += 1
        self._tell((events.KeyChanged, self.revision, key))

    # Parts and snapshots (C8, C11, C29).

    def put_part(self, name: str, token: int, reign_id: str, offset: int, number: int, part: bytes) -> Answer:
        """Put a part of a transaction that is not stored yet; an empty answer means that it was put."""
        refusal = self._refusal(token)
        if not refusal:
            self.values.put(KEYS.part(reign_id, offset, number), part, self.revision)
            if not any(entry.head.reign_id == reign_id and entry.head.offset == offset for entry in self.log):
                self._unnamed[reign_id, offset] = token
            self.on_part(name)
        return refusal

    def put_snapshot_part(self, token: int, offset: int, number: int, part: bytes) -> Answer:
        """Put a part of a snapshot; an empty answer means that it was put."""
        refusal = self._refusal(token)
        if not refusal:
            self.values.put(KEYS.snapshot_part(offset, number), part, self.revision)
        return refusal

    def put_snapshot(self, token: int, head: events.Head, current: bytes) -> Answer:
        """Name a snapshot whose parts are stored, and delete the log it covers; an empty answer means success."""
        refusal = self._refusal(token)
        if refusal:
            return refusal
        coverage = self._world.coverage
        self.values.put(KEYS.current_snapshot, current, self.revision)
        before = len(self.values.below(KEYS.logs))
        self.values.delete(KEYS.replaced_by_snapshot(head, self.limits.tail))
        coverage.saw("snapshot of the store")
        if len(self.values.below(KEYS.logs)) < before:
            coverage.saw("log deleted behind a snapshot")
        for key in [key for key in self._unnamed if not self.values.below(KEYS.parts_of(*key))]:
            del self._unnamed[key]
            coverage.saw("left-over parts deleted")
        self._check_snapshot(head)
        return ()

    def _check_snapshot(self, head: events.Head) -> None:
        """I22: a controller that begins from the snapshot begins from the fold of the log."""
        copy = StoreCopy()
        try:
            copy.begin(self.values)
        except DamagedDocument as error:
            raise Broken("I22", f"no controller can begin from the snapshot of {head}: {error}") from error
        if copy.state != self.state or copy.head != self.head:
            raise Broken("I22", f"the snapshot of {head} and the log behind it are not the fold of the log")

    def make_room(self, token: int) -> Answer:
        """Delete the log that the snapshot covers; a store without space does that, too."""
        current = self.values.get(KEYS.current_snapshot)
        if current is None or not stored_values.may_write(self.key, token):
            return ()
        self.revision += 1
        if self.values.delete(KEYS.held_by_snapshot(read_snapshot(current).head.offset)):
            self._world.coverage.saw("room made in a full store")
        return ()

    def parts(self, taken: LogValue) -> Answer:
        """The parts of a transaction that are stored now."""
        return self.values.parts(taken)

    def _refusal(self, token: int) -> Answer:
        """Why a write of a reign is refused; an empty answer with a new revision if it is made."""
        if not stored_values.may_write(self.key, token):
            return events.AppendRefused, self.revision, self.key, self.head
        if self.is_full:
            return (events.NoSpace,)
        self.revision += 1
        return ()

    # The log.

    def _append(self, effect: effects.Append, batch: TransactionBatch) -> Answer:
        if not stored_values.may_append(self.key, self.head, effect.token, effect.after):
            return events.AppendRefused, self.revision, self.key, self.head
        if self.is_full:
            return (events.NoSpace,)
        if self.key is None or self.key.token != effect.token:
            raise Broken("I19", f"{effect.head} is written with token {effect.token}, the key is {self.key}")
        if effect.head.digest in self.refused:
            raise Broken("I20", f"{effect.head} was settled as refused, and is written")
        self.revision += 1
        self.digests.add(effect.head.digest)
        news = []
        for piece, transaction in zip(batch.pieces, batch.transactions, strict=True):
            key = KEYS.log(piece.offset)
            self.values.put(key, piece.value, self.revision)
            self._write(transaction, effect)
            news.append((key, piece.value))
            if piece.parts:
                self._world.coverage.saw("append in parts")
                self._is_lost, self.loses_next_named = self.loses_next_named, False
                self._unnamed.pop((effect.head.reign_id, piece.offset), None)
                if any(token != effect.token for token in self._unnamed.values()):
                    self._world.coverage.saw("append in parts beside those of an ended reign")
        self._tell(("log", self.revision, tuple(news)))
        return events.Appended, self.revision

    def _write(self, transaction: Transaction, effect: effects.Append) -> None:
        header = transaction.header
        if header.metadata_offset != self.base + len(self.log) + 1:
            raise Broken("I19", f"offset {header.metadata_offset} is written after {self.base + len(self.log)}")
        if self._epochs.setdefault(header.controller_epoch, effect.token) != effect.token:
            raise Broken("I21", f"controller epoch {header.controller_epoch} in two reigns")
        after = (self.state or ClusterState(header=header)).apply(transaction)
        head = events.Head(effect.head.reign_id, header.metadata_offset, effect.head.digest, self.revision)
        self.log.append(Entry(head, after, self.values.copy()))
        if not self.is_old:
            # A reign on an old copy decides nothing that counts: the checks do not follow it.
            self._keep(after)

    # An older copy, and its repair.

    def restore(self, lost: int) -> None:
        """Become a copy that lacks the last entries: the revision goes back, no controller holds a lease or the key."""
        self._highest = max(self._highest, self.revision)
        self.restored += 1
        del self.log[len(self.log) - lost :]
        self.is_old = True
        self.values = self.log[-1].values.copy()
        self._unnamed.clear()
        self._begin_again(self.log[-1].head.revision)
        kept = self.log[-1].after.header.controller_epoch
        self._epochs = {epoch: token for epoch, token in self._epochs.items() if epoch <= kept}

    def hold(self, state: ClusterState) -> None:
        """Become what a recovery wrote: one state, at a revision that this store never had."""
        self.is_old = False
        self._begin_again(max(self._highest, self.revision) + 1)
        offset = state.header.metadata_offset
        head = events.Head("recovery", offset, f"recovery.{self.restored}", self.revision)
        current, parts = snapshot_of(head, pack(whole(state)), self.limits.snapshot_part_bytes)
        self.values = StoredValues()
        for number, part in enumerate(parts):
            self.values.put(KEYS.snapshot_part(offset, number), part, self.revision)
        self.values.put(KEYS.current_snapshot, current, self.revision)
        self._unnamed.clear()
        self.log, self.base = [Entry(head, state, self.values.copy())], offset - 1
        self._epochs.clear()
        self._keep(state)

    def _begin_again(self, revision: int) -> None:
        self.key, self.successor, self.revision = None, None, revision
        self._leases.clear()
        self._held.clear()
        self.break_watches()

    # Watches.

    def watched(self, stream: Stream, _request: Any) -> None:
        """A controller opened a watch: send what is stored, then every change."""
        if self.is_away:
            self._world.network.close(stream, by_opener=False)
            return
        self._watchers.append(stream)
        self._send(stream, ("begin", self.revision, self.key, self.successor, self.values.copy()))

    def unwatched(self, stream: Stream) -> None:
        """A watch ended."""
        if stream in self._watchers:
            self._watchers.remove(stream)

    def _tell(self, news: Answer) -> None:
        for stream in self._watchers:
            self._send(stream, news)

    def _send(self, stream: Stream, news: Answer) -> None:
        """Send to a watch; watches may lag behind reads, but stay in order."""
        timeline = self._world.timeline
        self._told_us = max(self._told_us, timeline.now_us + self.watch_lag_us)
        timeline.at(self._told_us, self._world.network.send_down, stream, news)

    def break_watches(self) -> None:
        """Every watch breaks, as on a compaction or the loss of a member."""
        for stream in list(self._watchers):
            self._world.network.close(stream, by_opener=False)
        self._watchers.clear()
