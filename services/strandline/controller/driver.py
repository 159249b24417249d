"""Steps the controller's core and performs its effects in order, a commit always before the effects behind it.

Invariant: nothing is answered or published before the transactions in front of it are durable. Effects of steps during
a commit wait and share the next commit, so that one fsync serves them all.
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
    """The controller's core: `core.control.controller.ControllerCore`, or a wrapper in a test."""

    @property
    def state(self) -> ClusterState:
        """The cluster's state after all decisions so far."""
        ...

    @property
    def serves(self) -> bool:
        """Whether this reign may serve at all."""
        ...

    @property
    def unproven_claims(self) -> int:
        """The number of claims of a newer position that had no proof."""
        ...


class Store(Protocol):
    """The part of a `metadata.store.MetadataStore` that the driver uses."""

    async def commit(self, transactions: Sequence[Transaction]) -> None:
        """Make transactions durable, in order, all of them or none.

        Raises:
            StoreFailed: it is not certain that they are durable.
        """
        ...


class Sink(Protocol):
    """Takes state events."""

    def take(self, tp: TopicPartition | None, event: StateEvent) -> None:
        """Take one event."""
        ...


class ControllerDriver(Driver[Core]):
    """Owns the core and the store; effects behind a commit wait until it is durable."""

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
        # A request is carried out whether or not its caller still waits for the answer.
        super().__init__(
            core,
            clock=clock,
            stop=stop,
            fatal={StoreFailed: ExitCode.STORAGE_FAILED},
            tick=events.ControllerTicked,
            gone=None,
        )
        self.watches = watches
        self.unclaimed = lambda answer: watches.close(answer) if isinstance(answer, Watch) else None
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
        """Whether this process's own observations may enter the core now: only if it is the active controller."""
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
        """Continue with another core and begin its reign; calls to the last core have been refused."""
        self.core = core
        self.step(started)

    def drop(self, refusal: Refusal) -> None:
        """End the reign: refuse every waiting call, end every watch, and accept no more events."""
        self._over = refusal
        self._pending = []
        self._idle.set()
        # The commit under way may have been stored, or may still be (C9).
        uncertain = Refusal(ErrorCode.REQUEST_TIMED_OUT, "the controller was replaced while it stored this change")
        self.refuse_waiting(self._committing, uncertain)
        self.calls.answer_all(refusal)
        self.watches.end_all(refusal)

    def refuse_waiting(self, effects: Sequence[events.ControllerEffect], refusal: Refusal) -> None:
        """Refuse the calls that these effects would have answered."""
        for effect in effects:
            if isinstance(effect, events.Answer | events.RefuseCall | events.OpenWatch):
                self.calls.answer(effect.request_id, refusal)

    async def until_idle(self) -> None:
        """Wait until nothing waits for a commit."""
        while self._pending or self._committing:
            self._idle.clear()
            await self._idle.wait()

    def step(self, event: Any) -> None:
        """See `Driver.step`.

        Raises:
            Refused: the reign is over, so it accepts no event.
        """
        if self._over is not None:
            raise Refused.of(self._over)
        super().step(event)

    def carry_out(self, effects: Sequence[events.ControllerEffect]) -> Sequence[events.ControllerEvent]:
        """Perform effects now, or after the commit in front of them."""
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
        """Return the core's answer to a request. ``caller`` is checked against the rules; None needs no rules.

        ``principal`` is the one whose quota applies.

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
        """Commit the transactions that wait, then perform the effects behind them, until cancelled."""
        while True:
            await self._work.wait()
            await self.perform_pending()

    async def perform_pending(self) -> None:
        """Perform everything that waits now, with one commit."""
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
            deposed = Refusal(ErrorCode.NOT_CONTROLLER, str(error), hint=ControllerHint("STANDBY"))
            self.refuse_waiting(effects, deposed)
            return
        except StoreAway as error:
            # It may have been stored, or may still be (C9).
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
        """Continue work that a step left over, after everything that is ready to run now."""
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
