"""Performs what `core.reign` decides: asks etcd and the active controller, runs the controller's core while it reigns.

Invariant: every question ends in exactly one event; nothing enters the controller's core unless the reign serves at
that moment; a batch that is not known to be stored is neither answered nor published (C9).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NoReturn, Protocol

import grpc
import structlog
from grpc_health.v1 import health_pb2

from strandline.controller.driver import ControllerDriver
from strandline.controller.seen_position import SeenPosition
from strandline.controller.store_space import remedy
from strandline.core import reign_effects as effects
from strandline.core import reign_events as events
from strandline.core.controller_events import ControllerTicked, DoorsOpened
from strandline.core.controller_state import ClusterState, Transaction
from strandline.core.errors import ControllerHint, ErrorCode, Refusal, Refused
from strandline.core.lease import ReignTimings
from strandline.core.messages import Endpoint
from strandline.core.reign import FOLLOWING, REIGNING, ReignCore, State
from strandline.core.reign_effects import Settled, Why
from strandline.core.reign_events import Head, Holder, Look, ReignEvent
from strandline.core.state_events import StateEvent
from strandline.etcd import client as etcd_client
from strandline.etcd.errors import EtcdError, EtcdWentBack, NoSpace, Unanswered
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd import EtcdHealth, EtcdStore, StoreView
from strandline.metadata.etcd_layout import Batch, Presence, batches
from strandline.metadata.store import StoreAway, StoreDamaged, StoreDeposed, StoreFailed, StoreWentBack
from strandline.observe.reigns import ReignReports
from strandline.rpc.channels import Channels, target
from strandline.rpc.convert_controllers import ControllerDescribed
from strandline.runtime.clock import Clock

_TICK_S = 0.05
_ANNOUNCE_S = 1.0
_SEEN_S = 5.0
_HEALTH_S = 30.0
_HEALTH_CLOSED_S = 1.0
_READ_S = etcd_client.READ_S + 0.25
_WRITE_S = etcd_client.WRITE_S + 0.25
"""A little longer than one member may take: who hangs is passed over before the question ends, not by its end."""
_LOOK_S = 0.5
_ALIVE_S = 0.1
"""How long a connection that was accepted must stay open, if nothing is said on it."""
_LOG_S = 30.0
"""How long a take-over may read the log that its watch has not brought."""
_STREAM_AGAIN_S = 0.2
_FOLLOW_AGAIN_S = 1.0
_HAND_OVER_S = 3.0
_MOST_WAITING = 1_000
"""Transactions that may wait for the store before changes are refused at the door."""

_log = structlog.get_logger("strandline.reign")


class Reigns(Protocol):
    """What the process does at the borders of a reign."""

    def start_core(self, state: ClusterState | None) -> ControllerDriver:
        """Make core and driver over ``state``, and step its start."""
        ...

    def doors_opened(self, *, first: bool) -> None:
        """Calls are served from now on; ``first``: for the first time in this reign."""
        ...

    def doors_closed(self) -> None:
        """Calls are refused from now on."""
        ...

    def core_dropped(self) -> None:
        """The driver is gone."""
        ...

    def tell(self, event: StateEvent) -> None:
        """Something of this process's reign leaves it as data."""
        ...


class ReignStore:
    """The store as the driver of one reign sees it."""

    def __init__(self, reigning: Reigning, reign_id: str) -> None:
        self._reigning = reigning
        self._reign_id = reign_id

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Append transactions, in as many batches as it takes.

        Raises:
            StoreDeposed: the reign is over, and nothing of this is stored.
            StoreAway: the reign is over, and some of it may be stored.
        """
        done = False
        for batch in batches(self._reign_id, transactions, part_bytes=self._reigning.store.part_bytes):
            settled = await self._reigning.append(batch)
            if settled is Settled.REFUSED and not done:
                raise StoreDeposed("another controller decides now, and this change was not stored; ask again")
            if settled is not Settled.DONE:
                raise StoreAway("the controller was replaced while it stored this change; look whether it was done")
            done = True


class Reigning:
    """One controller among several."""

    def __init__(
        self,
        core: ReignCore,
        store: EtcdStore,
        presence: Presence,
        timings: ReignTimings,
        *,
        process: Reigns,
        seen: SeenPosition,
        channels: Channels,
        clock: Clock,
        fail: Callable[[BaseException], NoReturn],
        tick_ms: int,
    ) -> None:
        self.core = core
        self.store = store
        self.presence = presence
        self.driver: ControllerDriver | None = None
        """The driver of this process's reign, if it has one."""
        self.stopped: asyncio.Event = asyncio.Event()
        """Set when this controller will decide no more."""
        self.reason: str | None = None
        """Why it stopped, if nobody asked for it."""
        self.reigns_begun = 0
        self.last_offset = 0
        """Of the store's head, as it was read last."""
        self.is_store_up = True
        """Whether the last reading of the store had an answer."""
        self.on_head_read: Callable[[int, Head | None], None] = lambda _asked_ms, _head: None
        """The store's head was read, by a read that began at that time."""
        self.health: EtcdHealth | None = None
        """How etcd's members were when they were asked last."""
        self._timings = timings
        self._process = process
        self._seen = seen
        self._channels = channels
        self._clock = clock
        self._fail = fail
        self._tick_s = tick_ms / 1000
        self._why = Why.STANDBY
        self._lease: int | None = None
        self._reign_id = ""
        self._token = 0
        self._batch: tuple[Batch, asyncio.Future[Settled]] | None = None
        self._first_opening = False
        self._closed_s: float | None = None
        self._unanswered_s: float | None = None
        self._reports = ReignReports(presence.controller_id)
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._performing: asyncio.Task[None] | None = None
        self._streaming: tuple[int, asyncio.Task[None]] | None = None
        self._moved = asyncio.Event()
        self._naming: asyncio.Task[None] | None = None
        self._snapshotting = False
        self._perform: dict[type[Any], Callable[[Any], None]] = {
            effects.GrantLease: self._grant,
            effects.RenewLease: self._renew,
            effects.RevokeLease: self._revoke,
            effects.Campaign: self._campaign,
            effects.ReadStore: self._read_store,
            effects.ReadLog: self._read_log,
            effects.ReadAlarm: self._read_alarm,
            effects.TakeKey: self._take_key,
            effects.LookAtActive: self._look_at_active,
            effects.Append: self._append,
            effects.AppendSettled: self._append_settled,
            effects.Resign: self._resign,
            effects.StartCore: self._start_core,
            effects.FinishCore: self._finish_core,
            effects.DropCore: self._drop_core,
            effects.OpenDoors: self._open_doors,
            effects.CloseDoors: self._close_doors,
            effects.TellHint: self._tell_hint,
            effects.NameSuccessor: self._name_successor,
            effects.Stop: self._stop,
        }

    def begin(self) -> None:
        """Follow the store, ask for a lease, and decide when it is this controller's turn."""
        self._follow()
        self._own(self._tick_forever())
        self._own(self._tick_core_forever())
        self._own(self._announce_forever())
        self._own(self._note_position_forever())
        self._own(self._look_at_store_forever())

    async def hand_over(self, *, to: str | None = None, then_stop: bool = False) -> None:
        """Decide no more, as soon as what is under way is stored; with ``then_stop``, return when that is so."""
        self._reports.hand_over_asked()
        self.step(events.HandOverAsked(self._clock(), to, then_stop))
        if then_stop:
            await self.stopped.wait()

    async def describe(self) -> tuple[ControllerDescribed, ...]:
        """See `Among.describe`."""
        try:
            present = await self.store.controllers()
            view = await self.store.read()
        except (EtcdError, StoreFailed) as error:
            await self._look_at_store()
            raise Refused(ErrorCode.NOT_CONTROLLER, self._store_unreachable()) from error
        active = view.holder.incarnation_id if view.holder is not None else None
        last = max((one.offset for one in present), default=0)
        return tuple(
            ControllerDescribed(
                one.controller_id, one.client, one.internal, one.incarnation_id == active, one.offset, last - one.offset
            )
            for one in present
        )

    async def confirm(self) -> None:
        """See `Among.confirm`: the holder of the key at a read that begins now has every change answered before.

        A lease does not show that: this process may have been stopped since it looked at its clock (C12).
        """
        self.deciding()
        token = self._token
        try:
            async with asyncio.timeout(_READ_S):
                view = await self.store.read()
        except (EtcdError, StoreFailed, TimeoutError) as error:
            away = Refusal(ErrorCode.NOT_CONTROLLER, self._store_unreachable(), hint=_hint(Why.STORE_AWAY))
            raise Refused.of(away) from error
        if view.holder is None or view.holder.token != token:
            changed = "this controller decides no more, or another one does; ask again"
            raise Refused.of(Refusal(ErrorCode.NOT_CONTROLLER, changed, hint=_hint(Why.STANDBY)))

    async def hand_over_to(self, to: str | None) -> str:
        """See `Among.hand_over_to`."""
        self.deciding()
        others = [one.controller_id for one in await self.describe() if not one.is_active]
        if not others or (to is not None and to not in others):
            known = ", ".join(others) or "none; start another controller first"
            raise Refused(ErrorCode.INVALID_REQUEST, f"no standby is called '{to or ''}'; there are: {known}")
        self._reports.hand_over_asked()
        self.step(events.HandOverAsked(self._clock(), to, False))
        try:
            async with asyncio.timeout(_HAND_OVER_S):
                while self.core.state in REIGNING:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError as error:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the hand-over has not ended yet; look again") from error
        return self.presence.controller_id

    def store_is_older(self, reason: str) -> None:
        """A node has proven that the store forgot something: nothing is decided from it any more (TR18)."""
        self.step(events.StoreBroken(self._clock(), reason))

    async def close(self) -> None:
        """End everything that runs."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    def step(self, event: ReignEvent) -> None:
        """Let an event happen, and perform what follows from it."""
        before = self.core.state
        try:
            wanted = self.core.step(event)
        except AssertionError as error:
            self._fail(error)
        if self.core.state is not before:
            self._moved.set()
            _log.info("reign", state=self.core.state.value, was=before.value, token=self.core.token)
        for effect in wanted:
            self._perform[type(effect)](effect)

    def deciding(self) -> ControllerDriver:
        """The driver that decides now.

        Raises:
            Refused: NOT_CONTROLLER, with a hint where another one is known to decide.
        """
        driver = self.driver
        if driver is None or not self.core.serves(self._clock()):
            raise Refused.of(self.refusal())
        if len(driver.calls) > _MOST_WAITING:
            # The store has not answered for a while, and may not before the reign is unsure (C26).
            waiting = f"{len(driver.calls)} calls wait for the controllers' store; ask again"
            raise Refused.of(Refusal(ErrorCode.NOT_CONTROLLER, waiting, hint=_hint(Why.STORE_AWAY)))
        return driver

    def refusal(self) -> Refusal:
        """Why this controller decides nothing, and who does."""
        if self.reason is not None:
            return Refusal(ErrorCode.NOT_CONTROLLER, self.reason)
        why = self._why
        if why is Why.STANDBY and self.core.state is State.ACTIVE:
            # It has the key, and has not begun, or waits for the store.
            return Refusal(ErrorCode.NOT_CONTROLLER, "this controller is about to decide; ask again", hint=_hint(why))
        active = self.store.active
        if why is not Why.STANDBY or active is None or active.incarnation_id == self.presence.incarnation_id:
            sentence = {
                Why.STANDBY: "no controller is known to decide; ask again",
                Why.STORE_AWAY: self._store_unreachable(),
                Why.STORE_FULL: f"{self._no_decisions()}: etcd has no space; compact, defragment, disarm the alarm",
            }[why]
            return Refusal(ErrorCode.NOT_CONTROLLER, sentence, hint=_hint(why))
        state = self.store.state
        epoch = state.header.controller_epoch if state is not None else 0
        client = target(active.client)
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"controller {active.controller_id} at {client} decides",
            hint=ControllerHint(why, active.controller_id, client, target(active.internal), epoch),
        )

    def _no_decisions(self) -> str:
        """Since when nothing is decided, as far as this controller knows."""
        since_s = self._closed_s or self._unanswered_s
        return "no decisions" if since_s is None else f"no decisions for {self._clock() / 1000 - since_s:.0f} s"

    def _store_unreachable(self) -> str:
        health = self.health
        known = f", {health.answering} of {health.members} members answer" if health is not None else ""
        return f"{self._no_decisions()}: store unreachable{known}; bring back a majority of etcd"

    async def append(self, batch: Batch) -> Settled:
        """Append one batch of this reign; returns what became of it, as soon as that is known."""
        assert self._batch is None, "one batch at a time"
        settled: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._batch = batch, settled
        self.step(events.AppendAsked(self._clock(), batch.head))
        return await settled

    # Questions: each is a task that ends in one event.

    def _ask(self, question: int, work: Callable[[], Awaitable[ReignEvent]], within_s: float) -> None:
        self._own(self._answer(question, work, within_s))

    async def _answer(self, question: int, work: Callable[[], Awaitable[ReignEvent]], within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                event = await work()
        except (Unanswered, StoreAway, TimeoutError):
            event = events.Unanswered(self._clock(), question)
        except NoSpace:
            event = events.NoSpace(self._clock(), question)
        except (EtcdWentBack, StoreDamaged, StoreWentBack, DamagedDocument) as error:
            self.step(events.StoreBroken(self._clock(), f"{error}; nothing is decided from it: run recover"))
            event = events.Unanswered(self._clock(), question)
        except (EtcdError, StoreFailed) as error:
            _log.warning("etcd refused", reason=str(error))
            event = events.Unanswered(self._clock(), question)
        self.step(event)

    def _grant(self, effect: effects.GrantLease) -> None:
        async def work() -> ReignEvent:
            self._lease = await self.store.grant(effect.ttl_ms)
            return events.LeaseGranted(self._clock(), effect.question, self._lease)

        self._ask(effect.question, work, _WRITE_S)

    def _renew(self, effect: effects.RenewLease) -> None:
        async def work() -> ReignEvent:
            if await self.store.renew(effect.lease_id):
                return events.LeaseRenewed(self._clock(), effect.question)
            self._lease = None
            return events.LeaseLost(self._clock(), effect.question)

        self._ask(effect.question, work, _READ_S)

    def _revoke(self, effect: effects.RevokeLease) -> None:
        self._own(self.store.revoke(effect.lease_id))

    def _campaign(self, effect: effects.Campaign) -> None:
        async def work() -> ReignEvent:
            won = await self.store.campaign(effect.lease_id, self._present())
            if isinstance(won, int):
                return events.CampaignWon(self._clock(), effect.question, won)
            self._reports.key_taken(False)
            if won.holder is None:
                raise Unanswered("the key came and went")
            return events.CampaignLost(self._clock(), effect.question, won.revision, won.holder)

        self._ask(effect.question, work, _WRITE_S)

    def _read_store(self, effect: effects.ReadStore) -> None:
        async def work() -> ReignEvent:
            asked_ms = self._clock()
            try:
                view = await self.store.read()
            except (EtcdError, asyncio.CancelledError):
                # Cancelled: its time was over.
                self.is_store_up = False
                self._unanswered_s = self._unanswered_s or self._clock() / 1000
                raise
            self.is_store_up, self._unanswered_s = True, None
            self.last_offset = view.head.offset if view.head is not None else 0
            self.on_head_read(asked_ms, view.head)
            return events.StoreRead(self._clock(), effect.question, view.revision, view.holder, view.head)

        self._ask(effect.question, work, _READ_S)

    def _read_log(self, effect: effects.ReadLog) -> None:
        async def work() -> ReignEvent:
            head = await self.store.read_log(effect.head)
            return events.LogRead(self._clock(), effect.question, head)

        self._ask(effect.question, work, _LOG_S)

    def _read_alarm(self, effect: effects.ReadAlarm) -> None:
        async def work() -> ReignEvent:
            return events.AlarmRead(self._clock(), effect.question, await self.store.has_alarm())

        self._ask(effect.question, work, _READ_S)

    def _take_key(self, effect: effects.TakeKey) -> None:
        async def work() -> ReignEvent:
            revision, was_taken = await self.store.take_key(effect.token)
            self._reports.key_taken(was_taken)
            return events.KeyTaken(self._clock(), effect.question, revision, was_taken)

        self._ask(effect.question, work, _WRITE_S)

    def _append(self, effect: effects.Append) -> None:
        assert self._batch is not None
        batch = self._batch[0]

        async def work() -> ReignEvent:
            done = await self.store.append(effect.token, effect.after, batch)
            if isinstance(done, StoreView):
                return events.AppendRefused(self._clock(), effect.question, *done)
            return events.Appended(self._clock(), effect.question, done)

        # A large transaction is several calls, each with its own deadline.
        self._ask(effect.question, work, _WRITE_S * (1 + sum(len(piece.parts) for piece in batch.pieces)))

    def _resign(self, effect: effects.Resign) -> None:
        async def work() -> ReignEvent:
            if self._naming is not None:
                await asyncio.wait({self._naming})
            await self.store.resign(effect.token, effect.lease_id)
            return events.Resigned(self._clock(), effect.question)

        self._lease = None
        self._ask(effect.question, work, _WRITE_S)

    def _look_at_active(self, effect: effects.LookAtActive) -> None:
        async def work() -> ReignEvent:
            active = self.store.active
            addresses = () if active is None else tuple(dict.fromkeys((active.client, active.internal)))
            looks = [await _look(address) for address in addresses]
            return events.Looked(self._clock(), effect.question, _worst(looks))

        self._ask(effect.question, work, 2 * (_LOOK_S + _ALIVE_S) + 0.1)

    # The reign.

    def _append_settled(self, effect: effects.AppendSettled) -> None:
        if self._batch is None or self._batch[0].head != effect.head:
            return
        batch, settled = self._batch
        self._batch = None
        if effect.settled is Settled.DONE:
            self.store.settled(batch, effect.head)
            self._maybe_snapshot()
        if not settled.done():
            settled.set_result(effect.settled)

    def _start_core(self, effect: effects.StartCore) -> None:
        _log.info("this controller takes over", token=effect.token, head=str(effect.head))
        self.store.takes_log = False
        self._token = effect.token
        self._reign_id = secrets.token_hex(16)
        self._first_opening = True
        self._reports.core_started(effect.token, self._reign_id)
        self.reigns_begun += 1
        self.driver = driver = self._process.start_core(self.store.state)
        driver.may_decide = lambda: self.core.serves(self._clock())
        self._performing = self._own(driver.perform_forever())

    @property
    def reign_id(self) -> str:
        """Of the reign that this process begins, 32 hexadecimal digits; empty while it has none."""
        return self._reign_id

    def store_of_reign(self) -> ReignStore:
        """The store for the driver of the reign that begins."""
        return ReignStore(self, self._reign_id)

    def _finish_core(self, _: effects.FinishCore) -> None:
        self._own(self._finish())

    async def _finish(self) -> None:
        if self.driver is not None:
            await self.driver.until_idle()
        self.step(events.CoreFinished(self._clock()))

    def _drop_core(self, _: effects.DropCore) -> None:
        driver, self.driver = self.driver, None
        self._report(self._reports.dropped(is_stopped=self.core.state is State.STOPPED, offset=self._offset()))
        self._closed_s = None
        # On the loop, which has nothing else to do for this controller now.
        self._seen.note(self.store.etcd.cluster_id, self.core.revision, self.store.applied)
        if driver is not None:
            driver.drop(self.refusal())
            if self._performing is not None:
                self._performing.cancel()
            self._process.core_dropped()
        # Not within this step: the core that said so is still in it.
        asyncio.get_running_loop().call_soon(self._begin_anew)

    def _begin_anew(self) -> None:
        self.store.forget()
        self._follow()
        if self.core.state is State.DEPOSED:
            self.step(events.CoreDropped(self._clock()))

    def _open_doors(self, effect: effects.OpenDoors) -> None:
        driver = self.driver
        assert driver is not None
        self._why = Why.STANDBY
        driver.step(DoorsOpened(self._clock(), effect.closed_ms))
        first, self._first_opening = self._first_opening, False
        self._closed_s = None
        self._process.doors_opened(first=first)
        self._report(self._reports.opened(effect.closed_ms, self._offset()))
        if first:
            self._own(self._note_position())

    def _close_doors(self, effect: effects.CloseDoors) -> None:
        self._why = effect.why
        self._process.doors_closed()
        if effect.why is Why.STANDBY:
            return
        self._closed_s = self._clock() / 1000
        self._report(self._reports.closed(effect.why, self._offset()))
        if effect.why is Why.STORE_FULL:
            self._own(self._make_room(self._token))
        self._own(self._look_at_store())

    def _report(self, event: StateEvent | None) -> None:
        if event is not None:
            self._process.tell(event)

    def _offset(self) -> int | None:
        return self.store.applied.offset if self.store.applied is not None else None

    async def _make_room(self, token: int) -> None:
        """Delete what etcd can do without, and print what an operator runs for the rest (C29)."""
        deleted = 0
        try:
            deleted = await self.store.make_room(token)
        except (EtcdError, DamagedDocument) as error:
            _log.warning("no log was deleted", reason=str(error))
        await self._look_at_store()
        members = self.health.members_leader_last if self.health is not None else self.store.etcd.endpoints
        _log.error("etcd has no space, so nothing is decided; run these, in this order", deleted_log_values=deleted)
        for step, command in enumerate(remedy(members, self.store.etcd.revision), start=1):
            _log.error("remedy", step=step, run=command)

    async def _look_at_store(self) -> None:
        try:
            self.health = await self.store.health()
        except EtcdError as error:
            _log.debug("etcd was not looked at", reason=str(error))

    async def _look_at_store_forever(self) -> None:
        """How large etcd's file is, and who answers: often while nothing is decided, else for the metrics alone."""
        while True:
            await self._look_at_store()
            for _ in range(round(_HEALTH_S / _HEALTH_CLOSED_S)):
                await asyncio.sleep(_HEALTH_CLOSED_S)
                if self._closed_s is not None:
                    break

    def _tell_hint(self, effect: effects.TellHint) -> None:
        if effect.holder is None or effect.holder.incarnation_id == self.presence.incarnation_id:
            return
        if self._streaming is not None:
            if self._streaming[0] == effect.holder.token:
                return
            self._streaming[1].cancel()
        self._streaming = effect.holder.token, self._own(self._stream_to(effect.holder))

    def _name_successor(self, effect: effects.NameSuccessor) -> None:
        self._naming = self._own(self._put_successor(self._token, effect.controller_id))

    async def _put_successor(self, token: int, controller_id: str) -> None:
        try:
            await self.store.name_successor(token, controller_id)
        except EtcdError as error:
            _log.warning("the successor is not named", reason=str(error))

    def _stop(self, effect: effects.Stop) -> None:
        self.reason = effect.reason
        if effect.reason is not None:
            self._report(self._reports.went_back(self._offset()))
            _log.error("controller stopped deciding", reason=effect.reason)
        self.stopped.set()

    def _maybe_snapshot(self) -> None:
        token = self.core.token
        if self.store.is_snapshot_due and not self._snapshotting and token is not None:
            self._snapshotting = True
            self._own(self._snapshot(token))

    async def _snapshot(self, token: int) -> None:
        try:
            await self.store.snapshot(token)
        except EtcdError as error:
            _log.warning("no snapshot was written", reason=str(error))
        finally:
            self._snapshotting = False

    # What runs all the time.

    def _follow(self) -> None:
        if self._following is not None:
            self._following.cancel()
        self.store.takes_log = True
        self._following = self._own(self._follow_forever())

    async def _follow_forever(self) -> None:
        while True:
            try:
                await self.store.follow(self._applied, self._key_changed, self._successor_named)
            except (StoreDamaged, StoreWentBack) as error:
                self.step(events.StoreBroken(self._clock(), str(error)))
                return
            except StoreFailed as error:
                _log.warning("the store is not followed", reason=str(error))
                await asyncio.sleep(_FOLLOW_AGAIN_S)

    def _applied(self, head: Head | None) -> None:
        if self.core.state in FOLLOWING:
            self.step(events.TransactionsCame(self._clock(), head))

    def _key_changed(self, revision: int, holder: Holder | None) -> None:
        self.step(events.KeyChanged(self._clock(), revision, holder))

    def _successor_named(self, controller_id: str) -> None:
        if self.core.holder is not None:
            self.step(events.SuccessorNamed(self._clock(), self.core.holder.token, controller_id))

    async def _tick_forever(self) -> None:
        while True:
            self.step(events.Ticked(self._clock()))
            await asyncio.sleep(_TICK_S)

    async def _tick_core_forever(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            driver = self.driver
            if driver is not None and self.core.serves(self._clock()):
                driver.step(ControllerTicked(self._clock()))

    async def _announce_forever(self) -> None:
        while True:
            lease = self._lease
            if lease is not None:
                try:
                    await self.store.announce(self._present(), lease)
                except EtcdError as error:
                    _log.debug("not announced", reason=str(error))
            await asyncio.sleep(_ANNOUNCE_S)

    async def _note_position_forever(self) -> None:
        while True:
            await asyncio.sleep(_SEEN_S)
            await self._note_position()

    async def _note_position(self) -> None:
        await asyncio.to_thread(self._seen.note, self.store.etcd.cluster_id, self.core.revision, self.store.applied)

    async def _stream_to(self, holder: Holder) -> None:
        """Hold a stream to the active controller: that it breaks is the first sign of its end (C19)."""
        while self.core.holder == holder and self.core.state not in REIGNING:
            active = self.store.active
            if active is not None and active.incarnation_id == holder.incarnation_id:
                opened = await self._stream_once(active.internal)
                if opened and self.core.holder == holder:
                    self.step(events.PeerLost(self._clock(), holder.token))
            await asyncio.sleep(_STREAM_AGAIN_S)

    async def _stream_once(self, address: Endpoint) -> bool:
        """Returns, when the stream has broken, whether it was ever open."""
        opened = False
        watch = self._channels.to(address).unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        stream = watch(health_pb2.HealthCheckRequest(service=""))
        try:
            async for _ in stream:
                opened = True
        except grpc.aio.AioRpcError:
            return opened
        finally:
            stream.cancel()
        return opened

    def _present(self) -> Presence:
        applied = self.store.applied
        return self.presence._replace(offset=applied.offset if applied is not None else 0)

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


def _hint(why: Why) -> ControllerHint:
    return ControllerHint(why)


async def _look(address: Endpoint) -> Look:
    """Connect once, and see whether somebody is behind the connection.

    A dying process may still accept, and resets a moment later; that is no life and no refusal (C3).
    """
    try:
        async with asyncio.timeout(_LOOK_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return Look.REFUSED
    except (OSError, TimeoutError):
        return Look.SILENT
    try:
        async with asyncio.timeout(_ALIVE_S):
            # A gRPC server speaks first; with TLS it waits, and so does one that is stopped.
            return Look.REACHED if await reader.read(1) else Look.SILENT
    except TimeoutError:
        return Look.REACHED
    except OSError:
        return Look.SILENT
    finally:
        writer.close()


def _worst(looks: Sequence[Look]) -> Look:
    if Look.REACHED in looks:
        return Look.REACHED
    return Look.REFUSED if looks and all(look is Look.REFUSED for look in looks) else Look.SILENT
