"""Messages that wait to be written to a stream: in the order they became ready, with one writer and a bounded backlog.

Invariant: `put` never waits and never calls back, so it is safe inside a step. The room in the backlog is checked
before records are read for it, so a slow reader costs no memory. Nor do many slow readers: once all streams of a node
hold `SHARED_BYTES`, records are read only for streams with an empty backlog.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_Message = TypeVar("_Message")

Make = Callable[[], Awaitable[_Message]]

MAX_BACKLOG_BYTES = 32 << 20
"""Most bytes of answers that may wait on one stream."""
SHARED_BYTES = 256 << 20


class Backlog:
    """Counts the bytes of answers that wait on all streams of a node."""

    def __init__(self, limit_bytes: int = SHARED_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0


class Outbox(Generic[_Message]):
    """Answers of one stream that wait to be written."""

    def __init__(self, max_bytes: int = MAX_BACKLOG_BYTES, shared: Backlog | None = None) -> None:
        self._max_bytes = max_bytes
        self._shared = shared or Backlog()
        self._backlog_bytes = 0
        self._messages: deque[tuple[_Message | None, Make[_Message] | None, int]] = deque()
        self._closed = False
        self._wake: asyncio.Future[None] | None = None
        self._written = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def room_bytes(self) -> int:
        """The number of bytes of records that may still be read for this stream."""
        if self._backlog_bytes and self._shared.held_bytes >= self._shared.limit_bytes:
            return 0
        return self._max_bytes - self._backlog_bytes

    def put(self, message: _Message, size_bytes: int = 0) -> None:
        """Queue an answer; ``size_bytes`` is the size of its records."""
        self._queue(message, None, size_bytes)

    def put_later(self, make: Make[_Message], size_bytes: int = 0) -> None:
        """Queue an answer that is made only at its turn, so that one is made at a time."""
        self._queue(None, make, size_bytes)

    def _queue(self, message: _Message | None, make: Make[_Message] | None, size_bytes: int) -> None:
        self._messages.append((message, make, size_bytes))
        self._hold(size_bytes)
        self._stir()

    def _hold(self, size_bytes: int) -> None:
        self._backlog_bytes += size_bytes
        self._shared.held_bytes += size_bytes

    async def until_waiting(self) -> None:
        """Wait until there is something to write; must not be called while `write_all` runs."""
        while not self._messages:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        self._wake = None

    def clear(self) -> None:
        """Drop all answers, even one being written, because the reader is gone."""
        self._messages.clear()
        self._hold(-self._backlog_bytes)

    async def until_shorter_than(self, count: int) -> None:
        """Wait until fewer than ``count`` answers wait: a caller that does not read its answers is not read either."""
        while len(self._messages) >= count:
            self._written.clear()
            await self._written.wait()

    def close(self) -> None:
        """Accept no more answers; the writer ends when everything is written."""
        self._closed = True
        self._stir()

    def _stir(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def write_all(self, write: Callable[[_Message], Awaitable[None]]) -> None:
        """Write answers until closed and empty, or until ``write`` fails."""
        loop = asyncio.get_running_loop()
        while True:
            while self._messages:
                message, make, size_bytes = self._messages.popleft()
                if make is not None:
                    message = await make()
                await write(message)  # type: ignore[arg-type]  # one of the two is there
                self._hold(-size_bytes)
                self._written.set()
            if self._closed:
                return
            self._wake = loop.create_future()
            await self._wake
            self._wake = None
