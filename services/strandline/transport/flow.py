"""How much may arrive: bytes that wait for their readers, per stream, connection and process, and idle frames.

Invariant: what a connection may have waiting is at most `CONNECTION_BYTES`: every stream may send `FIRST_WINDOW`, and
what goes beyond that, for a message that is longer or a reader that keeps up, is reserved first. So a hundred half
messages never wait for each other's room. What the process has waiting is at most `PROCESS_BYTES`: above it no
stream gets credit, and the connection that holds most ends. No earlier, or readers that are paused would stop all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

from strandline.transport.frames import Code, ConnectionFailed

PROCESS_BYTES = 256 << 20
LEAVING_BYTES = 512 << 20
"""Of messages that the windows of their peers, or their sockets, do not take yet."""
CONNECTION_BYTES = 32 << 20
FIRST_WINDOW = 128 << 10
"""What a stream may send before its handler has read anything; a hundred of them leave two thirds to reserve."""
_RESERVED_BYTES = CONNECTION_BYTES - 100 * FIRST_WINDOW
MOST_AHEAD = 2 << 20
"""The window of a stream whose reader keeps up, as it is doubled; more is reserved for single messages only."""
_AHEAD_BYTES = _RESERVED_BYTES - (9 << 20)
"""Of what is reserved, for readers that keep up; the rest is left for a message of the largest size."""
MESSAGE_COST = 64
"""Counted for each waiting message beside its bytes: what Python needs to keep an empty one."""


class Holder(Protocol):
    """A connection, as far as the process's memory is concerned."""

    held: int

    def over_budget(self, held: int) -> None:
        """It holds most, and the process has no more room: it ends soon, and takes ``held`` from `Process.ending`."""


class Process:
    """The bytes of messages, arriving or leaving, of one process, for all servers and channels of its loop."""

    def __init__(self, limit: int = PROCESS_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.ending = 0
        """Of ``held``, what connections have that are being ended for it."""
        self.holders: set[Holder] = set()
        self.starves: dict[Arriving, None] = {}
        """Those that wait for room, in their order."""

    def shed(self) -> None:
        """There is too much: end the connection that holds most, unless enough is ending already."""
        if self.held - self.ending <= self.limit or not self.holders:
            return
        largest = max(self.holders, key=lambda one: one.held)
        self.holders.discard(largest)
        self.ending += largest.held
        largest.over_budget(largest.held)

    def feed(self) -> None:
        """Something was read: those that had to wait may have room now."""
        while self.starves and self.held < self.limit:
            starved = next(iter(self.starves))
            del self.starves[starved]
            starved.retry()

    def has_room(self, who: Arriving) -> bool:
        """Whether credit may be given; ``who`` is asked to try again once it may."""
        if self.held < self.limit:
            return True
        self.starves[who] = None
        return False


class Arriving:
    """What one connection has reserved for its streams beyond `FIRST_WINDOW` each."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._reserved = 0
        self._waiting: deque[Callable[[], bool]] = deque()

    def ahead(self, size: int) -> bool:
        """Reserve for a reader that keeps up, if there is plenty."""
        if self._waiting or self._reserved + size > _AHEAD_BYTES or self.process.held > self.process.limit // 4:
            return False
        self._reserved += size
        return True

    def for_message(self, size: int) -> bool:
        """Reserve for the rest of a message."""
        if self._reserved + size > _RESERVED_BYTES or not self.process.has_room(self):
            return False
        self._reserved += size
        return True

    def wait(self, attempt: Callable[[], bool]) -> None:
        """Call ``attempt``, in turn, when something was given back, until it returns True."""
        self._waiting.append(attempt)

    def give_back(self, size: int) -> None:
        """What was reserved is free again."""
        self._reserved -= size
        self.retry()

    def retry(self) -> None:
        """There may be room for those that wait."""
        while self._waiting:
            attempt = self._waiting.popleft()
            if not attempt():
                self._waiting.appendleft(attempt)
                return


class Calm:
    """Frames that do nothing, and cost their sender nothing: ``burst`` at once, and ``per_s`` a second."""

    def __init__(self, now: Callable[[], float], burst: int = 1_000, per_s: int = 500) -> None:
        self._now = now
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._since_s = now()

    def count(self, what: str, cost: int = 1) -> None:
        """One more.

        Raises:
            ConnectionFailed: ENHANCE_YOUR_CALM, there were too many.
        """
        self._left -= cost
        if self._left >= 0:
            return
        now_s = self._now()
        self._left = min(self._burst, self._left + (now_s - self._since_s) * self._per_s)
        self._since_s = now_s
        if self._left < 0:
            raise ConnectionFailed(Code.ENHANCE_YOUR_CALM, f"too many {what}")


class Buffers:
    """Where bytes arrive: lent for one read each, so that connections that are silent hold none.

    Nothing that is read points into one after it was given back: messages and headers are copied out.
    """

    LARGE, SMALL = 256 << 10, 16 << 10
    _MOST_LARGE = 256

    def __init__(self) -> None:
        self._free: list[memoryview] = []
        self._made = 0

    def lend(self, used: int) -> memoryview:
        """A buffer with room beyond ``used`` bytes; a small one if the large ones are all out."""
        if self._free:
            return self._free.pop()
        if self._made >= self._MOST_LARGE:
            return memoryview(bytearray(used + self.SMALL))
        self._made += 1
        return memoryview(bytearray(self.LARGE))

    def take_back(self, buffer: memoryview) -> None:
        """It was read."""
        if len(buffer) == self.LARGE:
            self._free.append(buffer)

    def lost(self, buffer: memoryview) -> None:
        """Its connection ended while it had it; the loop may still write into it."""
        if len(buffer) == self.LARGE:
            self._made -= 1


class OfLoop:
    """What the connections of one event loop share; what they held when it was closed does not count in the next."""

    def __init__(self) -> None:
        self.process = Process()
        self.leaving = Process(LEAVING_BYTES)
        self.buffers = Buffers()


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, OfLoop] = WeakKeyDictionary()


def of_loop() -> OfLoop:
    """That of the running loop; a program may have one in each of several threads."""
    return _LOOPS.setdefault(asyncio.get_running_loop(), OfLoop())
