"""Steps the controller's core and performs its effects in order, a commit always before what follows it.

Invariant: nothing is answered or published before the transactions in front of it are durable. Steps that come
while a commit is under way wait behind it and share the next one, so one fsync serves them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import structlog

from strandline.controller.watches import Watch, Watches
from strandline.core.control import events
from strandline.core.control.messages import ControllerRequest, WatchMetadata
from strandline.core.control.state import ClusterState, Transaction
from strandline.core.errors import ControllerHint, ErrorCode, Refusal, Refused
from strandline.core.log.effects import Emit
from strandline.core.messages import MetadataImage
from strandline.core.permissions import Caller
from strandline.core.state_events import StateEvent
from strandline.core.types import TopicPartition
from strandline.metadata.store import StoreAway, StoreDeposed, StoreFailed
from strandline.runtime.clock import Clock
from strandline.runtime.driver import Driver, Stop
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.ports import Log, Steps

_log: Log = structlog.get_logger("strandline.controller")

_Answer = TypeVar("_Answer")


class Core(Steps, Protocol):
    """The controller's core: `core.controller.ControllerCore`, or one that is watched."""

    @property
    def state(self) -> ClusterState:
        """What is decided so far."""
        ...

    @property
    def serves(self) -> bool:
        """Whether this reign may serve at all."""
        ...

    @property
    def unproven_claims(self) -> int:
        """Claims of a newer position that carried no proof."""
        ...


class Store(Protocol):
    """What the driver needs of a `metadata.store.MetadataStore`."""

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Make transactions durable, in order and together.

        Raises:
            StoreFailed: when that is not certain.
        """
        ...


class Sink(Protocol):
    """Where state events go."""

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Take one event."""
        ...


class ControllerDriver(Driver[Core]):
    """The one owner of the core and of the store: effects behind a commit wait until it is durable."""

    def __init__(
        self,
        core: Core,
        store: Store,
        *,
        clock: Clock,
        sink: Sink,
        watches: Watches[Any],
        stop: Stop,
        log: Log = _log,
    ) -> None:
        # What a caller asked for happens, whether or not it waits for the answer.
        super().__init__(
            core,
            clock=clock,
            stop=stop,
            fatal={StoreFailed: ExitCode.STORAGE_FAILED},
            tick=events.ControllerTicked,
            gone=None,
        )
        self.watches = watches
        self.on_stop_serving: Callable[[str], None] = lambda _reason: None
        self.on_publish: Callable[[MetadataImage], None] = lambda _image: None
        self.on_refusal: Callable[[str, Refusal], None] = lambda _answer, _refusal: None
        self._store = store
        self._log = log
        self._pending: list[events.ControllerEffect] = []
        self._work = asyncio.Event()
        self._committing: list[events.ControllerEffect] = []
        self._idle = asyncio.Event()
        self._over: Refusal | None = None
        self._continues = False
        self.may_decide: Callable[[], bool] = lambda: True
        """Whether what this process sees for itself may enter the core now; of several controllers one decides."""
        self.attach(
            {
                events.Commit: lambda _: None,
                events.Answer: self._answer,
                events.RefuseCall: lambda effect: self.calls.answer(effect.request_id, effect.refusal),
                events.OpenWatch: self._open_watch,
                events.Publish: self._publish,
                Emit: lambda effect: sink.take(effect.tp, effect.event),
                events.ContinueStep: lambda _: self._continue_soon(),
                events.StopServing: self._stop_serving,
            }
        )

    def begin(self, core: Core, started: events.ControllerStarted) -> None:
        """Go on with another core, whose reign begins here; what was asked of the last one was refused."""
        self.core = core
        self.step(started)

    def drop(self, refusal: Refusal) -> None:
        """The reign is over: end every watch and every call that waits, and let nothing enter the core any more."""
        self._over = refusal
        self._pending = []
        self._idle.set()
        # What is being committed may have been done, or be done later (C9).
        uncertain = Refusal(ErrorCode.REQUEST_TIMED_OUT, "the controller was replaced while it stored this change")
        self.refuse_waiting(self._committing, uncertain)
        self.calls.answer_all(refusal)
        self.watches.end_all(refusal)

    def refuse_waiting(self, effects: Sequence[events.ControllerEffect], refusal: Refusal) -> None:
        """End the calls that these effects would have answered."""
        for effect in effects:
            if isinstance(effect, events.Answer | events.RefuseCall | events.OpenWatch):
                self.calls.answer(effect.request_id, refusal)

    async def until_idle(self) -> None:
        """Return when nothing waits for a commit."""
        while self._pending or self._committing:
            self._idle.clear()
            await self._idle.wait()

    def step(self, event: Any) -> None:
        """See `Driver.step`; a reign that is over takes no event.

        Raises:
            Refused: it is over.
        """
        if self._over is not None:
            raise Refused.of(self._over)
        super().step(event)

    def carry_out(self, effects: Sequence[events.ControllerEffect]) -> Sequence[events.ControllerEvent]:
        """Perform effects now, or behind the commit that is in front of them."""
        if self._pending or self._committing or any(type(effect) is events.Commit for effect in effects):
            self._pending += effects
            self._work.set()
            return ()
        return super().carry_out(effects)

    async def request(
        self,
        request: ControllerRequest,
        kind: type[_Answer],
        caller: Caller | None = None,
        principal: str | None = None,
    ) -> _Answer:
        """The core's answer to a request of a ``caller`` whose rules count, or of one that needs none.

        ``principal``: whose quota counts.

        Raises:
            Refused: the call was refused as a whole.
        """
        return await self.ask(
            lambda now_ms, request_id: events.RequestArrived(now_ms, request_id, request, caller, principal), kind
        )

    async def watch(self, request: WatchMetadata) -> Watch[Any]:
        """Open a watch; the caller closes it.

        Raises:
            Refused: the watch was refused.
        """
        return await self.ask(lambda now_ms, request_id: events.WatchArrived(now_ms, request_id, request), Watch)

    async def perform_forever(self) -> None:
        """Commit what waits, then perform what is behind it; until cancelled."""
        while True:
            await self._work.wait()
            await self.perform_pending()

    async def perform_pending(self) -> None:
        """Everything that waits now, in one commit."""
        self._work.clear()
        effects, self._pending = self._pending, []
        if not effects:
            return
        self._committing = effects
        try:
            transactions = [effect.transaction for effect in effects if isinstance(effect, events.Commit)]
            if transactions:
                await self._store.commit(transactions)
        except StoreDeposed as error:
            hint = ControllerHint("STANDBY")
            self.refuse_waiting(effects, Refusal(ErrorCode.NOT_CONTROLLER, str(error), hint=hint))
            return
        except StoreAway as error:
            # It may have been done, or be done later (C9).
            self.refuse_waiting(effects, Refusal(ErrorCode.REQUEST_TIMED_OUT, str(error)))
            return
        except StoreFailed as error:
            self.fail(error)
        finally:
            self._committing = []
            self._idle.set()
        if self._over is not None:
            return
        super().carry_out(effects)

    def _continue_soon(self) -> None:
        """Go on with what a step left over, behind everything that waits to run now."""
        if not self._continues:
            self._continues = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._continues = False
        if self._over is None and not self._failed and self.may_decide():
            self.step(events.StepContinued(self.clock()))

    def _answer(self, effect: events.Answer) -> None:
        refusal = getattr(effect.answer, "refusal", None)
        if refusal is not None:
            self.on_refusal(type(effect.answer).__name__, refusal)
        self.calls.answer(effect.request_id, effect.answer)

    def _publish(self, effect: events.Publish) -> None:
        self.watches.publish(effect)
        self.on_publish(effect.image)

    def _open_watch(self, effect: events.OpenWatch) -> None:
        if self.calls.is_waiting(effect.request_id):
            self.calls.answer(effect.request_id, self.watches.open(effect))

    def _stop_serving(self, effect: events.StopServing) -> None:
        self._log.error("controller stopped serving", reason=effect.reason)
        self.watches.end_all(Refusal(ErrorCode.NOT_CONTROLLER, effect.reason))
        self.on_stop_serving(effect.reason)
