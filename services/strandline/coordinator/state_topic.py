"""When a node asks the controller for an internal topic, which does not exist before somebody needs it (G1).

Invariant: at most one request is under way, and after a refusal none follows for `PAUSE_MS`; meanwhile callers are
given the refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.runtime.clock import Clock

PAUSE_MS = 1_000

Create = Callable[[str], Awaitable[Refusal | None]]
"""Asks the controller for an internal topic; returns why it was not created."""


class StateTopic:
    """The topic ``name`` as this process asks for it."""

    def __init__(self, name: str, create: Create, clock: Clock) -> None:
        self._name = name
        self._create = create
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._next_ms = 0
        self._refusal: Refusal | None = None

    def want(self) -> Refusal:
        """Somebody needs the topic, and this node knows none: see to it, and say why the caller has to wait."""
        if self._asking is None and self._clock() >= self._next_ms:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        message = f"topic '{self._name}', which holds the state of coordinators, is being created; ask again"
        return self._refusal or Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

    async def _ask(self) -> None:
        try:
            self._refusal = await self._create(self._name)
        except Refused as error:
            message = f"the controller was asked to create topic '{self._name}': {error.refusal}"
            self._refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        finally:
            self._next_ms = self._clock() + PAUSE_MS
            self._asking = None

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
