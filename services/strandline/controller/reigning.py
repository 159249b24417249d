"""Performs the decisions of `core.reigns`: asks etcd and the active controller, and runs the core during a reign.

Invariant: every question ends in exactly one event; nothing enters the controller's core unless the reign serves at
that moment; a batch that is not known to be stored is neither answered nor published (C9).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import structlog

from strandline.controller.driver import ControllerDriver
from strandline.controller.reign_questions import READ_S, ActiveStream, ReignQuestions
from strandline.controller.store_health import SeenPosition, StoreHealth, Undecided, refused, undecided
from strandline.core.control.events import ControllerTicked, DoorsOpened
from strandline.core.control.state import ClusterState, Transaction
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.messages import Endpoint
from strandline.core.reigns import effects, events
from strandline.core.reigns.effects import Settled, Why
from strandline.core.reigns.events import Head, Holder, ReignEvent
from strandline.core.reigns.reign import FOLLOWING, REIGNING, ReignCore, State
from strandline.core.state_events import StateEvent
from strandline.etcd.errors import EtcdError
from strandline.metadata.etcd import EtcdStore
from strandline.metadata.etcd_layout import Presence, TransactionBatch, batches
from strandline.metadata.store import StoreAway, StoreDamaged, StoreDeposed, StoreFailed, StoreWentBack
from strandline.observe.controllers import ReignReports
from strandline.rpc.channels import Channels
from strandline.rpc.convert.describe import ControllerDescribed
from strandline.runtime.clock import Clock
from strandline.runtime.process import OwnTasks

_TICK_S = 0.05
_SEEN_S = 5.0
_FOLLOW_AGAIN_S = 1.0
_HAND_OVER_S = 3.0
_MOST_WAITING = 1_000
"""The number of calls that may wait for the store; with more, changes are refused on arrival."""

_log = structlog.get_logger("strandline.reign")


class Reigns(Protocol):
    """What the process does when a reign begins, pauses or ends."""

    def start_core(self, state: ClusterState | None) -> ControllerDriver:
        """Make a core from ``state`` and its driver, and step the core's start."""
        ...

    def doors_opened(self, *, first: bool) -> None:
        """Note that calls are served from now on; ``first``: for the first time in this reign."""
        ...

    def doors_closed(self) -> None:
        """Note that calls are refused from now on."""
        ...

    def core_dropped(self) -> None:
        """Note that the driver is no longer used."""
        ...

    def tell(self, event: StateEvent) -> None:
        """Export an event about this process's reign."""
        ...


class ReignStore:
    """The store of one reign, for its driver."""

    def __init__(self, reigning: Reigning, reign_id: str) -> None:
        self._reigning = reigning
        self._reign_id = reign_id

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Append transactions, in as many batches as needed.

        Raises:
            StoreDeposed: the reign is over, and none of them is stored.
            StoreAway: the reign is over, and some of them may be stored.
        """
        done = False
        for batch in batches(self._reign_id, transactions, part_bytes=self._reigning.store.part_bytes):
            settled = await self._reigning.append(batch)
            if settled is Settled.REFUSED and not done:
                raise StoreDeposed("another controller decides now, and this change was not stored; ask again")
            if settled is not Settled.DONE:
                raise StoreAway("the controller was replaced while it stored this change; check whether it was done")
            done = True


class Reigning:
    """One controller among several."""

    def __init__(
        self,
        core: ReignCore,
        store: EtcdStore,
        presence: Presence,
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
        """Set when this controller will never decide again."""
        self.reason: str | None = None
        """Why it stopped; None if it was asked to stop, or has not stopped."""
        self.reigns_begun = 0
        self._process = process
        self._seen = seen
        self._clock = clock
        self._fail = fail
        self._tick_s = tick_ms / 1000
        self._why = Why.STANDBY
        self._reign_id, self._token = "", 0
        self._batch: tuple[TransactionBatch, asyncio.Future[Settled]] | None = None
        self._first_opening = self._snapshotting = False
        self._closed_s: float | None = None
        self._following: asyncio.Task[None] | None = None
        self._performing: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._tasks = OwnTasks(fail)
        self._reports = ReignReports(presence.controller_id)
        self.questions = ReignQuestions(store, presence, self._reports, self._tasks, clock=clock, step=self.step)
        self.health = StoreHealth(store)
        self._stream = ActiveStream(
            channels,
            self._tasks,
            address_of=self._address_of,
            is_wanted=lambda holder: self.core.holder == holder and self.core.state not in REIGNING,
            lost=self._stream_lost,
        )
        self._perform: dict[type[Any], Callable[[Any], None]] = {
            **self.questions.performs,
            effects.Append: self._append,
            effects.AppendSettled: self._append_settled,
            effects.StartCore: self._start_core,
            effects.FinishCore: self._finish_core,
            effects.DropCore: self._drop_core,
            effects.OpenDoors: self._open_doors,
            effects.CloseDoors: self._close_doors,
            effects.TellHint: self._follow_active,
            effects.NameSuccessor: self._name_successor,
            effects.Stop: self._stop,
        }

    def begin(self) -> None:
        """Start to follow the store, to hold a lease, and to become active when it is this controller's turn."""
        self._follow()
        self._tasks.own(self._tick_forever())
        self._tasks.own(self._tick_core_forever())
        self._tasks.own(self.questions.announce_forever())
        self._tasks.own(self._note_position_forever())
        self._tasks.own(self.health.look_forever(lambda: self._closed_s is not None))

    async def hand_over(self, *, to: str | None = None, then_stop: bool = False) -> None:
        """Stop deciding once pending transactions are stored; with ``then_stop`` wait for that, and stop for good."""
        self._reports.hand_over_asked()
        self.step(events.HandOverAsked(self._clock(), to, then_stop))
        if then_stop:
            await self.stopped.wait()
            # `close` would cancel it, and the key would be left to its lease.
            await self.questions.resigned()

    async def describe(self) -> tuple[ControllerDescribed, ...]:
        """See `Among.describe`."""
        try:
            present = await self.store.controllers()
            view = await self.store.read()
        except (EtcdError, StoreFailed) as error:
            await self.health.look()
            raise Refused(ErrorCode.NOT_CONTROLLER, self._undecided().store_unreachable) from error
        active = view.holder.incarnation_id if view.holder is not None else None
        last = max((one.offset for one in present), default=0)
        return tuple(
            ControllerDescribed(
                one.controller_id, one.client, one.internal, one.incarnation_id == active, one.offset, last - one.offset
            )
            for one in present
        )

    async def confirm(self) -> None:
        """See `Among.confirm`: the holder of the key at a read that begins now has made every change answered so far.

        A lease cannot prove this: the process may have been paused since it last read its clock (C12).
        """
        self.deciding()
        token = self._token
        try:
            async with asyncio.timeout(READ_S):
                view = await self.store.read()
        except (EtcdError, StoreFailed, TimeoutError) as error:
            raise Refused.of(refused(Why.STORE_AWAY, self._undecided().store_unreachable)) from error
        if view.holder is None or view.holder.token != token:
            changed = "this controller is no longer active; ask again"
            raise Refused.of(refused(Why.STANDBY, changed))

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
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the hand-over has not ended yet; check again") from error
        return self.presence.controller_id

    def store_is_older(self, reason: str) -> None:
        """Stop deciding from this store, because a node has proven that the store lost something (TR18)."""
        self.step(events.StoreBroken(self._clock(), reason))

    async def close(self) -> None:
        """End all tasks and close the store."""
        await self._tasks.close()
        await self.store.close()

    def step(self, event: ReignEvent) -> None:
        """Step an event and perform its effects."""
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
        """The driver of this controller, while it is active.

        Raises:
            Refused: NOT_CONTROLLER, with a hint if another controller is known to be active.
        """
        driver = self.driver
        if driver is None or not self.core.serves(self._clock()):
            raise Refused.of(self.refusal())
        if len(driver.calls) > _MOST_WAITING:
            # The store has not answered for a while, and may not answer before the reign becomes uncertain (C26).
            waiting = f"{len(driver.calls)} calls wait for the controllers' store; ask again"
            raise Refused.of(refused(Why.STORE_AWAY, waiting))
        return driver

    def refusal(self) -> Refusal:
        """Why this controller decides nothing, and which one is active if that is known."""
        if self.reason is not None:
            return Refusal(ErrorCode.NOT_CONTROLLER, self.reason)
        active = self.store.active
        is_other = active is not None and active.incarnation_id != self.presence.incarnation_id
        return undecided(
            self._undecided(),
            is_active=self.core.state is State.ACTIVE,
            other=active if is_other else None,
            state=self.store.state,
        )

    def _undecided(self) -> Undecided:
        began_s = self._closed_s or self.questions.unanswered_s
        since_s = self._clock() / 1000 - began_s if began_s is not None else None
        return Undecided(self._why, since_s, self.health.last)

    async def append(self, batch: TransactionBatch) -> Settled:
        """Append one batch of this reign; return the outcome as soon as it is known."""
        assert self._batch is None, "one batch at a time"
        settled: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._batch = batch, settled
        self.step(events.AppendAsked(self._clock(), batch.head))
        return await settled

    def _append(self, effect: effects.Append) -> None:
        assert self._batch is not None
        self.questions.append(effect, self._batch[0])

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
        self._performing = self._tasks.own(driver.perform_forever())

    @property
    def reign_id(self) -> str:
        """The id of this process's latest reign, 32 hexadecimal digits; empty before its first."""
        return self._reign_id

    def store_of_reign(self) -> ReignStore:
        """The store of the reign that begins, for its driver."""
        return ReignStore(self, self._reign_id)

    def _finish_core(self, _: effects.FinishCore) -> None:
        self._tasks.own(self._finish())

    async def _finish(self) -> None:
        if self.driver is not None:
            await self.driver.until_idle()
        self.step(events.CoreFinished(self._clock()))

    def _drop_core(self, _: effects.DropCore) -> None:
        driver, self.driver = self.driver, None
        self._report(self._reports.dropped(is_stopped=self.core.state is State.STOPPED, offset=self._offset()))
        self._closed_s = None
        # Not in a thread: the event loop has nothing else to do for this controller now.
        self._seen.note(self.store.etcd.cluster_id, self.core.revision, self.store.applied)
        if driver is not None:
            driver.drop(self.refusal())
            if self._performing is not None:
                self._performing.cancel()
            self._process.core_dropped()
        # Not within this step, in which the core still is.
        asyncio.get_running_loop().call_soon(self._begin_again)

    def _begin_again(self) -> None:
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
            self._tasks.own(self._note_position())

    def _close_doors(self, effect: effects.CloseDoors) -> None:
        self._why = effect.why
        self._process.doors_closed()
        if effect.why is Why.STANDBY:
            return
        self._closed_s = self._clock() / 1000
        self._report(self._reports.closed(effect.why, self._offset()))
        if effect.why is Why.STORE_FULL:
            self._tasks.own(self.health.make_room(self._token))
        self._tasks.own(self.health.look())

    def _report(self, event: StateEvent | None) -> None:
        if event is not None:
            self._process.tell(event)

    def _offset(self) -> int | None:
        return self.store.applied.offset if self.store.applied is not None else None

    def _follow_active(self, effect: effects.TellHint) -> None:
        if effect.holder is not None and effect.holder.incarnation_id != self.presence.incarnation_id:
            self._stream.follow(effect.holder)

    def _address_of(self, holder: Holder) -> Endpoint | None:
        active = self.store.active
        return active.internal if active is not None and active.incarnation_id == holder.incarnation_id else None

    def _stream_lost(self, holder: Holder) -> None:
        if self.core.holder == holder:
            self.step(events.PeerLost(self._clock(), holder.token))

    def _name_successor(self, effect: effects.NameSuccessor) -> None:
        self.questions.name_successor(self._token, effect.controller_id)

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
            self._tasks.own(self._snapshot(token))

    async def _snapshot(self, token: int) -> None:
        try:
            await self.store.snapshot(token)
        except EtcdError as error:
            _log.warning("no snapshot was written", reason=str(error))
        finally:
            self._snapshotting = False

    # Background tasks.

    def _follow(self) -> None:
        if self._following is not None:
            self._following.cancel()
        self.store.takes_log = True
        self._following = self._tasks.own(self._follow_forever())

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

    def _key_changed(self, revision: int, holder: Holder | None, successor: str | None) -> None:
        self.step(events.KeyChanged(self._clock(), revision, holder, successor))

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

    async def _note_position_forever(self) -> None:
        while True:
            await asyncio.sleep(_SEEN_S)
            await self._note_position()

    async def _note_position(self) -> None:
        await asyncio.to_thread(self._seen.note, self.store.etcd.cluster_id, self.core.revision, self.store.applied)
