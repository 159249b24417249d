"""One of several controllers: the production core of reigns, which runs the production controller and its driver.

Invariant: this performs what `core.reign` asks for and decides nothing; a paused process does nothing until it
resumes, and before anything else the core then looks at the time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from strandline.core.control.messages import ControllerRequest, WatchMetadata
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.reigns import effects, events
from strandline.core.reigns.reign import State
from strandline.metadata import etcd_layout
from strandline.metadata.documents import DamagedDocument, pack, whole
from strandline_sim.checks.committed import Broken
from strandline_sim.control.one_reign import ADDRESSES, Candidate, Host, Reign
from strandline_sim.control.store import STORE, Answer
from strandline_sim.control.stored_values import KEYS, StoreCopy, StoredValue, StoredValues
from strandline_sim.world.network import CONTROLLER, Stream

_REIGN_TICK_MS = 50
_READ_DEADLINE_US = 1_000_000
_WRITE_DEADLINE_US = 2_000_000
_WRITES = ("Campaign", "Append", "TakeKey", "Resign", "GrantLease")
_REMEMBER_TICKS = 100
"""A controller saves what it has seen of the store to its disk every 5 s, and before it reigns (C40)."""


def _was_done(answer: Answer | None) -> bool:
    """Whether the store reports a write without any other answer as done."""
    return answer is not None and not answer


def _address_of(holder: events.Holder | None) -> int:
    """The address of the holder of the key."""
    return CONTROLLER if holder is None else ADDRESSES.get(holder.controller_id, CONTROLLER)


class ReignProcess(Candidate):
    """One process of a controller machine."""

    reign: Reign | None = None

    def __init__(self, machine: Host, life: int) -> None:
        super().__init__(machine, life)
        self._events: deque[events.ReignEvent] = deque()
        self._is_stepping = False
        self._copy = StoreCopy()
        self._following: asyncio.Task[None] | None = None
        self._untaken: deque[Answer] = deque()
        """Events of the watch that wait until the one before them is applied."""
        self._is_between = False
        """Whether parts of a transaction are stored, and the entry that names them is not known to be stored."""
        self._since_snapshot = 0
        self._is_snapshotting = False
        self._watch: Stream | None = None
        self._peer: tuple[int, Stream] | None = None
        self._hint: events.Holder | None = None
        self._naming: asyncio.Task[None] | None = None
        self._was_named: str | None = None
        """The successor that the watch showed last."""
        self._ticks = 0

    def start(self) -> None:
        """Begin to follow the store."""
        self.hand(lambda: self.own(self._tick_forever()))

    async def _tick_forever(self) -> None:
        while True:
            self.take(events.Ticked(self.clock.ms()))
            self._keep_watching()
            self._keep_peer()
            self._ticks += 1
            if self._ticks % _REMEMBER_TICKS == 0:
                self.machine.seen_revision = self.core.revision
            await asyncio.sleep(_REIGN_TICK_MS / 1_000)

    def end(self) -> None:
        """End the process."""
        self.alive = False
        if self._is_between:
            self.world.coverage.saw("killed between parts and transaction")
        self._running.shut()

    # Events in, effects out.

    def take(self, event: events.ReignEvent) -> None:
        """Step the core with an event, and with all that follows from it at once."""
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        while self._events:
            before = self.core.state
            self.world.events += 1
            for effect in self.core.step(self._events.popleft()):
                self._perform(effect)
            if self.core.state is not before:
                self.world.coverage.saw(f"reign: {before.value} to {self.core.state.value}")
                self.world.note("ctl", f"{self.name}: {before.value} to {self.core.state.value}")
        self._is_stepping = False

    def _perform(self, effect: Any) -> None:
        now_ms, store = self.clock.ms(), self.machine.group.store
        match effect:
            case effects.AppendSettled():
                if self.reign is not None:
                    self.reign.settled(effect)
            case effects.StartCore():
                self._start_core(effect)
            case effects.OpenDoors():
                assert self.reign is not None
                self.reign.open_doors(effect.closed_ms)
            case effects.CloseDoors(why=effects.Why.STORE_FULL):
                assert self.reign is not None
                token = self.reign.token
                self._call(effect, lambda: store.make_room(token), 0)
            case effects.FinishCore():
                assert self.reign is not None
                self.own(self._finish(self.reign))
            case effects.DropCore():
                self._drop()
                self._events.append(events.CoreDropped(now_ms))
            case effects.TellHint():
                self._hint = effect.holder
            case effects.NameSuccessor():
                assert self.reign is not None
                self._naming = self.own(self._name_successor(self.reign.token, effect.controller_id))
            case effects.Resign():
                self.own(self._resign(effect, self._naming))
            case effects.Stop():
                self.world.note("ctl", f"{self.name} stops: {effect.reason}")
                if effect.reason is not None and store.is_old:
                    self.world.coverage.saw("restored store noticed by a controller")
                    self.machine.group.recover_soon()
                elif effect.reason is not None:
                    raise Broken("I0", f"a sound store is not believed: {effect.reason}")
            case effects.LookAtActive():
                self._look(effect)
            case effects.ReadLog():
                self.own(self._read_log(effect))
            case effects.Append():
                assert self.reign is not None and self.reign.batch is not None
                self.own(self._append(effect, self.reign.batch))
            case effects.RevokeLease():
                self._call(effect, lambda: self._revoke(effect), 0)
            case _ if hasattr(effect, "question"):
                self._ask(effect)

    async def _name_successor(self, token: int, controller_id: str) -> None:
        await self._asked(lambda: self.machine.group.store.name_successor(token, controller_id), _WRITE_DEADLINE_US)

    async def _resign(self, effect: effects.Resign, naming: asyncio.Task[None] | None) -> None:
        """Resign when the successor's name is written, or that write has no answer."""
        if naming is not None:
            await asyncio.wait({naming})
        self._ask(effect)

    def _revoke(self, effect: effects.RevokeLease) -> tuple[Any, ...]:
        self.machine.group.store.end_lease(effect.lease_id)
        return ()

    def _ask(self, effect: Any) -> None:
        store = self.machine.group.store
        self._call(effect, partial(store.perform, effect, self.name, self.incarnation), effect.question)

    async def _asked(self, work: Callable[[], Answer], deadline_us: int) -> Answer | None:
        """Ask the store, and wait for the answer; None if no answer came."""
        answered: asyncio.Future[Answer | None] = self.loop.create_future()

        def done(answer: Answer | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        store = self.machine.group.store
        self.world.network.call(self, STORE, partial(store.serve, work), done, deadline_us=deadline_us)
        return await answered

    async def _append(self, effect: effects.Append, batch: etcd_layout.TransactionBatch) -> None:
        """Perform the writes of an append, each as one call of the store."""
        store, reign_id = self.machine.group.store, effect.head.reign_id

        async def write(each: etcd_layout.TransactionPart | etcd_layout.AppendBatch) -> Answer | None:
            if isinstance(each, etcd_layout.TransactionPart):
                put = partial(store.put_part, self.name, effect.token, reign_id, *each)
                self._is_between = True
            else:
                put = partial(store.perform, effect, self.name, self.incarnation, each.batch)
            answer = await self._asked(put, _WRITE_DEADLINE_US)
            if answer is None and self._is_between:
                is_part = isinstance(each, etcd_layout.TransactionPart)
                self.world.coverage.saw(f"no answer: {'part' if is_part else 'transaction behind its parts'}")
            return answer

        answer = await etcd_layout.write_in_order(etcd_layout.append_writes(batch), write, _was_done)
        self._is_between = False
        self._answered(effect, effect.question, answer)

    def _call(self, effect: Any, work: Callable[[], tuple[Any, ...]], question: int) -> None:
        store = self.machine.group.store
        deadline_us = _WRITE_DEADLINE_US if type(effect).__name__ in _WRITES else _READ_DEADLINE_US
        self.world.network.call(
            self, STORE, partial(store.serve, work), partial(self._answered, effect, question), deadline_us=deadline_us
        )

    def _answered(self, effect: Any, question: int, answer: tuple[Any, ...] | None) -> None:
        if not question:
            return
        now_ms = self.clock.ms()
        if answer is None:
            self.world.coverage.saw(f"no answer: {type(effect).__name__}")
            self.take(events.Unanswered(now_ms, question))
        else:
            kind, *given = answer
            if kind is events.StoreRead and given[1] is None and given[3] not in (None, self._was_named):
                self.world.coverage.saw("store read: successor named before the watch shows it")
            self.take(kind(now_ms, question, *given))

    def _look(self, effect: effects.LookAtActive) -> None:
        address = _address_of(self.core.holder)

        def looked(answer: Any) -> None:
            party = self.world.network.parties.get(address)
            is_there = party is not None and party.alive
            ways_open = self.world.network.is_open(self.party_id, address)
            look = (
                events.ActiveProbe.REACHED
                if answer
                else events.ActiveProbe.REFUSED
                if not is_there and ways_open
                else events.ActiveProbe.SILENT
            )
            self.world.coverage.saw(f"look: {look.value}")
            self.take(events.Looked(self.clock.ms(), effect.question, look))

        self.world.network.call(
            self, address, lambda call: self.world.network.reply(call, "here"), looked, deadline_us=300_000
        )

    async def _read_log(self, effect: effects.ReadLog) -> None:
        """Read what the copy lacks up to a head, from a snapshot if the log no longer has it."""
        store, copy, question = self.machine.group.store, self._copy, effect.question
        begin, end = KEYS.log(copy.offset + 1), KEYS.log(effect.head.offset + 1)
        values = await self._asked(lambda: store.values.range(begin, end), _READ_DEADLINE_US)
        if values is None:
            self.take(events.Unanswered(self.clock.ms(), question))
            return
        if not await self._apply(copy, values) or copy.offset < effect.head.offset:
            stored = await self._asked(lambda: (store.values.copy(),), _READ_DEADLINE_US)
            if stored is None:
                self.take(events.Unanswered(self.clock.ms(), question))
                return
            self._begin(copy, stored[0])
        if copy.head is not None and copy is self._copy:
            self.take(events.LogRead(self.clock.ms(), question, copy.head))

    # The copy of the state.

    def _keep_watching(self) -> None:
        if (self._watch is not None and self._watch.open_at_opener) or self.core.state is State.STOPPED:
            return
        store = self.machine.group.store
        self._stop_following()
        self._watch = self.world.network.open_stream(
            self,
            STORE,
            on_up=store.watched,
            on_down=self._news,
            on_end_at_opener=lambda _: self.world.coverage.saw("watch of the store broke"),
            on_end_at_server=store.unwatched,
        )
        if self._watch is not None:
            self.world.network.send_up(self._watch, "watch")

    def _news(self, stream: Stream, news: Answer) -> None:
        if stream is not self._watch:
            return
        self._untaken.append(news)
        if self._following is None or self._following.done():
            self._following = self.own(self._follow())

    async def _follow(self) -> None:
        """Apply the events of the watch, one after the other."""
        while self._untaken:
            kind, revision, *given = self._untaken.popleft()
            copy, may_apply = self._copy, self.reign is None
            if kind == "begin":
                key, successor, stored = given
                self._was_named = successor
                if may_apply:
                    self._begin(copy, stored)
                    self.take(events.TransactionsCame(self.clock.ms(), copy.head))
                self.take(events.KeyChanged(self.clock.ms(), revision, key, successor))
            elif kind is events.SuccessorNamed:
                (self._was_named,) = given
                if self.core.holder is not None:
                    self.take(events.SuccessorNamed(self.clock.ms(), self.core.holder.token, *given))
            elif kind == "log":
                values = tuple((key, StoredValue(value, revision)) for key, value in given[0])
                if may_apply and not await self._apply(copy, values):
                    self.world.coverage.saw("watch begun again behind a gap")
                    self._close_watch()
                    return
                if may_apply and copy is self._copy and self.reign is None:
                    self.take(events.TransactionsCame(self.clock.ms(), copy.head))
            else:
                self.take(events.KeyChanged(self.clock.ms(), revision, *given))

    def _begin(self, copy: StoreCopy, stored: StoredValues) -> None:
        """Read everything as of one revision."""
        had = copy.head is not None
        try:
            needed_snapshot = copy.begin(stored)
        except DamagedDocument as error:
            raise Broken("I0", f"{self.name} cannot read a sound store: {error}") from error
        if needed_snapshot:
            self.world.coverage.saw("began again from a snapshot" if had else "began from a snapshot")

    async def _apply(self, copy: StoreCopy, values: Sequence[tuple[bytes, StoredValue]]) -> bool:
        """Apply log values; False if a part of them, or something before them, is no longer stored."""
        store = self.machine.group.store
        try:
            for key, each in values:
                place = copy.place(key)
                if place is etcd_layout.LogPlace.BEYOND:
                    return False
                if place is etcd_layout.LogPlace.KNOWN:
                    continue
                taken = copy.taken(key, each)
                parts: Answer | None = ()
                if taken.parts:
                    parts = await self._asked(partial(store.parts, taken), _READ_DEADLINE_US)
                if parts is None:
                    return False
                # Another task may have applied it while its parts were read.
                if copy.place(key) is etcd_layout.LogPlace.NEXT and not copy.apply(taken, parts):
                    self.world.coverage.saw("parts that were no longer whole")
                    return False
        except DamagedDocument as error:
            raise Broken("I0", f"{self.name} cannot read a sound store: {error}") from error
        return True

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
        self._following = None
        self._untaken.clear()

    def _close_watch(self) -> None:
        self._untaken.clear()
        if self._watch is not None and self._watch.open_at_opener:
            self.world.network.close(self._watch, by_opener=True)
        self._watch = None

    def settled(self, batch: etcd_layout.TransactionBatch, head: events.Head) -> None:
        """A batch of this process's reign is stored: take it into the copy, and make a snapshot if one is due."""
        self._copy.settled(batch, head)
        self._since_snapshot += len(batch.transactions)
        limits = self.machine.group.store.limits
        if self._since_snapshot >= limits.snapshot_every and not self._is_snapshotting and self.reign is not None:
            self._is_snapshotting = True
            self.own(self._snapshot(self.reign.token))

    async def _snapshot(self, token: int) -> None:
        store, head, state = self.machine.group.store, self._copy.head, self._copy.state
        assert head is not None and state is not None

        async def write(each: etcd_layout.SnapshotPart | etcd_layout.SnapshotNamed) -> Answer | None:
            if isinstance(each, etcd_layout.SnapshotPart):
                put = partial(store.put_snapshot_part, token, head.offset, *each)
            else:
                put = partial(store.put_snapshot, token, head, each.content)
            return await self._asked(put, _WRITE_DEADLINE_US)

        writes = etcd_layout.snapshot_writes(head, pack(whole(state)), store.limits.snapshot_part_bytes)
        if _was_done(await etcd_layout.write_in_order(writes, write, _was_done)):
            self._since_snapshot = 0
        else:
            self.world.coverage.saw("no snapshot was written")
        self._is_snapshotting = False

    def _keep_peer(self) -> None:
        """Keep a stream to the active controller; its end means that its process may be gone (C19)."""
        holder = self._hint
        if holder is None or holder.controller_id == self.name:
            return
        if self._peer is not None and self._peer[0] == holder.token and self._peer[1].open_at_opener:
            return
        token = holder.token
        stream = self.world.network.open_stream(
            self,
            _address_of(holder),
            on_up=lambda _stream, _message: None,
            on_down=lambda _stream, _message: None,
            on_end_at_opener=lambda _: self.take(events.PeerLost(self.clock.ms(), token)),
            on_end_at_server=lambda _: None,
        )
        if stream is not None:
            self._peer = (token, stream)

    # A reign.

    def _start_core(self, effect: effects.StartCore) -> None:
        store = self.machine.group.store
        self.machine.seen_revision = self.core.revision
        is_its = store.key is not None and store.key.token == effect.token
        state, head = self._copy.state, self._copy.head
        if is_its and state != store.state and not store.is_old:
            raise Broken("I22", f"{self.name} begins from {head}, the log ends at {store.head}")
        self.reign = Reign(self, state, head, effect.token)
        self.reign.start()

    async def _finish(self, reign: Reign) -> None:
        await reign.idle()
        if self.reign is reign:
            self.take(events.CoreFinished(self.clock.ms()))

    def _drop(self) -> None:
        reign, self.reign = self.reign, None
        assert reign is not None
        reign.drop()
        self._copy = StoreCopy()
        self._stop_following()
        self._close_watch()

    def hand_over(self, to: str | None) -> None:
        """An operator asks for a hand-over."""
        self.take(events.HandOverAsked(self.clock.ms(), to))

    def serve(self, request: ControllerRequest, reply: Callable[[Any], None]) -> None:
        """A request arrived."""
        if self.reign is None or not self.core.serves(self.clock.ms()):
            reply(Refusal(ErrorCode.NOT_CONTROLLER, "this controller does not decide"))
            return
        self.reign.serve(request, reply)

    def watch(self, stream: Stream, request: WatchMetadata) -> None:
        """A node opened a watch."""
        if self.reign is None or not self.core.serves(self.clock.ms()):
            refusal = Refusal(ErrorCode.NOT_CONTROLLER, "this controller does not decide")
            self.world.network.send_down(stream, refusal)
            self.world.network.close(stream, by_opener=False)
            return
        self.reign.watch(stream, request)
