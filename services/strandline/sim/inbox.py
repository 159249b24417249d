"""What has arrived on a stream and was not read yet, for the one task that reads it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from strandline.core.errors import ErrorCode, Refused
from strandline.sim.virtual_loop import VirtualLoop


class Inbox:
    """Messages of one stream, in order, and its end behind them."""

    __slots__ = ("_loop", "_messages", "_reader", "_reason")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._messages: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._reason = ""

    def put(self, message: Any) -> None:
        """A message arrived."""
        self._messages.append(message)
        self._wake()

    def end(self, reason: str) -> None:
        """The stream broke; what arrived before is read first."""
        self._reason = reason
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def next(self) -> Any:
        """The next message.

        Raises:
            Refused: NETWORK_EXCEPTION, the stream broke.
        """
        while not self._messages:
            if self._reason:
                raise Refused(ErrorCode.NETWORK_EXCEPTION, self._reason)
            self._reader = self._loop.create_future()
            await self._reader
        return self._messages.popleft()
