"""Steps the controller's core and performs its effects in order, a commit always before what follows it.

Invariant: nothing is answered or published before the transactions in front of it are durable. Steps that come
while a commit is under way wait behind it and share the next one, so one fsync serves them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NoReturn, Protocol, TypeVar

import structlog

from strandline.controller.watches import Watch, Watches
from strandline.core.controller_effects import (
    Answer,
    Commit,
    ControllerEffect,
    Emit,
    OpenWatch,
    Publish,
    RefuseCall,
    StopServing,
)
from strandline.core.controller_events import ControllerEvent, ControllerStarted, RequestArrived, WatchArrived
from strandline.core.controller_messages import ControllerRequest, WatchMetadata
from strandline.core.controller_state import ClusterState, Transaction
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.types import TopicPartition
from strandline.metadata.store import StoreFailed
from strandline.runtime.clock import Clock
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.ports import Log

_log: Log = structlog.get_logger("strandline.controller")

_Answer = TypeVar("_Answer")
Stop = Callable[[ExitCode, str], NoReturn]


class Core(Protocol):
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

    def step(self, event: ControllerEvent) -> list[ControllerEffect]:
        """Decides; what it wants done comes back."""
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

    def take(self, event_type: str, tp: TopicPartition | None, fields: Any) -> None:
        """Take one event."""
        ...


class ControllerDriver:
    """The one owner of the core and of the store."""

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
        self.core = core
        self.clock = clock
        self.watches = watches
        self.on_stop_serving: Callable[[str], None] = lambda _reason: None
        self.on_refusal: Callable[[str, Refusal], None] = lambda _answer, _refusal: None
        self._store = store
        self._sink = sink
        self._stop = stop
        self._log = log
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._ids = count(1)
        self._pending: list[ControllerEffect] = []
        self._work = asyncio.Event()
        self._performing = False

    def begin(self, core: Core, started: ControllerStarted) -> None:
        """Go on with another core, whose reign begins here; what was asked of the last one was refused."""
        self.core = core
        self.step(started)

    def step(self, event: ControllerEvent) -> None:
        """Step the core; effects without a commit in front of them are performed at once."""
        try:
            effects = self.core.step(event)
        except AssertionError as error:
            self._stop(ExitCode.INVARIANT_BROKEN, f"the controller's core broke an invariant: {error!r}")
        self.take(effects)

    def take(self, effects: list[ControllerEffect]) -> None:
        """Perform effects now, or behind the commit that is in front of them."""
        if self._pending or self._performing or any(type(effect) is Commit for effect in effects):
            self._pending += effects
            self._work.set()
            return
        self._perform(effects)

    async def ask(self, request: ControllerRequest, kind: type[_Answer]) -> _Answer:
        """The core's answer to a request.

        Raises:
            Refused: the call was refused as a whole.
        """
        answer = await self._call(lambda request_id: RequestArrived(self.clock(), request_id, request))
        assert isinstance(answer, kind), f"{type(answer)} is no answer to {type(request)}"
        return answer

    async def watch(self, request: WatchMetadata) -> Watch[Any]:
        """Open a watch; the caller closes it.

        Raises:
            Refused: the watch was refused.
        """
        watch = await self._call(lambda request_id: WatchArrived(self.clock(), request_id, request))
        assert isinstance(watch, Watch)
        return watch

    async def _call(self, event: Callable[[int], ControllerEvent]) -> Any:
        request_id = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[request_id] = future
        try:
            self.step(event(request_id))
            return await future
        finally:
            # A caller that gave up takes no answer; what it asked for still happens.
            self._calls.pop(request_id, None)

    async def perform_forever(self) -> None:
        """Commit what waits, then perform what stands behind it; until cancelled."""
        while True:
            await self._work.wait()
            await self.perform_pending()

    async def perform_pending(self) -> None:
        """Everything that waits now, in one commit."""
        self._work.clear()
        effects, self._pending = self._pending, []
        if not effects:
            return
        self._performing = True
        try:
            transactions = [effect.transaction for effect in effects if isinstance(effect, Commit)]
            if transactions:
                await self._store.commit(transactions)
        except StoreFailed as error:
            self._stop(ExitCode.STORAGE_FAILED, str(error))
        finally:
            self._performing = False
        self._perform(effects)

    def _perform(self, effects: list[ControllerEffect]) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    continue
                case Answer():
                    self._complete(effect.request_id, effect.answer)
                case RefuseCall():
                    self._refuse(effect)
                case OpenWatch():
                    self._open_watch(effect)
                case Publish():
                    self.watches.publish(effect)
                case Emit():
                    self._sink.take(effect.event_type, effect.tp, effect.fields)
                case StopServing():
                    self._stop_serving(effect)

    def _complete(self, request_id: int, answer: object) -> None:
        refusal = getattr(answer, "refusal", None)
        if refusal is not None:
            self.on_refusal(type(answer).__name__, refusal)
        future = self._calls.get(request_id)
        if future is not None and not future.done():
            future.set_result(answer)

    def _refuse(self, effect: RefuseCall) -> None:
        future = self._calls.get(effect.request_id)
        if future is not None and not future.done():
            future.set_exception(Refused.of(effect.refusal))

    def _open_watch(self, effect: OpenWatch) -> None:
        future = self._calls.get(effect.request_id)
        if future is not None and not future.done():
            future.set_result(self.watches.open(effect))

    def _stop_serving(self, effect: StopServing) -> None:
        self._log.error("controller stopped serving", reason=effect.reason)
        self.watches.end_all(Refusal(ErrorCode.NOT_CONTROLLER, effect.reason))
        self.on_stop_serving(effect.reason)
