"""Limits what may arrive: bytes that wait for readers, per stream, connection and process, and useless frames.

Invariant: at most `CONNECTION_BYTES` wait on a connection: every stream may send `FIRST_WINDOW`, and more, for a longer
message or a reader that keeps up, is reserved first. So a hundred half messages never wait for each other's room. At
most `PROCESS_BYTES` wait in the process: above that no stream gets credit and the connection that holds most ends. Not
earlier, because then paused readers could stop all others.
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
"""Bytes of outgoing messages that wait for their peers' windows or for their sockets."""
CONNECTION_BYTES = 32 << 20
FIRST_WINDOW = 128 << 10
"""What a stream may send before its handler has read anything; a hundred leave more than half for reservations."""
_RESERVED_BYTES = CONNECTION_BYTES - 100 * FIRST_WINDOW
MOST_AHEAD = 2 << 20
"""The largest window to which that of a stream is doubled while its reader keeps up; single messages may get more."""
_AHEAD_BYTES = _RESERVED_BYTES - (9 << 20)
"""The part of the reservations for readers that keep up; the rest has room for a message of the largest size."""
MESSAGE_COST = 64
"""Bytes counted for each waiting message in addition to its content: what Python needs for an empty one."""


class Holder(Protocol):
    """A connection that holds memory of the process."""

    held: int

    @property
    def over_budget(self) -> Callable[[], None]:
        """End soon, because this one holds most and there is no more room; then call `Process.gone`."""


class Process:
    """Counts the waiting bytes of arriving or leaving messages, of all servers and channels of one event loop."""

    def __init__(self, limit: int = PROCESS_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.ending: dict[Holder, int] = {}
        """Connections that are being ended for lack of room, and what each held then."""
        self.holders: set[Holder] = set()
        self.starves: dict[Arriving, None] = {}
        """The connections that wait for room, in order."""

    def shed(self) -> None:
        """End the connection that holds most, if too much is held and not enough is already ending."""
        if self.held - sum(self.ending.values()) <= self.limit or not self.holders:
            return
        largest = max(self.holders, key=lambda one: one.held)
        self.holders.discard(largest)
        self.ending[largest] = largest.held
        largest.over_budget()

    def gone(self, holder: Holder) -> None:
        """Expect no more room of this connection, because it is over."""
        self.holders.discard(holder)
        self.ending.pop(holder, None)

    def feed(self) -> None:
        """Let connections that wait for room try again, because something was read."""
        while self.starves and self.held < self.limit:
            starved = next(iter(self.starves))
            del self.starves[starved]
            starved.retry()

    def has_room(self, who: Arriving) -> bool:
        """Whether credit may be given; if not, ``who.retry`` is called once it may."""
        if self.held < self.limit:
            return True
        self.starves[who] = None
        return False


class Arriving:
    """Counts what one connection has reserved for its streams in addition to `FIRST_WINDOW` each."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._reserved = 0
        self._waiting: deque[Callable[[], bool]] = deque()

    def ahead(self, size: int) -> bool:
        """Reserve bytes for a reader that keeps up, if there is plenty of room; return whether it was done."""
        if self._waiting or self._reserved + size > _AHEAD_BYTES or self.process.held > self.process.limit // 4:
            return False
        self._reserved += size
        return True

    def for_message(self, size: int) -> bool:
        """Reserve bytes for the rest of a message, if there is room; return whether it was done."""
        if self._reserved + size > _RESERVED_BYTES or not self.process.has_room(self):
            return False
        self._reserved += size
        return True

    def wait(self, attempt: Callable[[], bool]) -> None:
        """Call ``attempt``, in turn, whenever something is given back, until it returns True."""
        self._waiting.append(attempt)

    def give_back(self, size: int) -> None:
        """Free a reservation, and let those that wait try again."""
        self._reserved -= size
        self.retry()

    def retry(self) -> None:
        """Let those that wait try again, in order, up to the first that still has no room."""
        while self._waiting:
            attempt = self._waiting.popleft()
            if not attempt():
                self._waiting.appendleft(attempt)
                return


class Calm:
    """Limits useless frames, which cost their sender nothing: ``burst`` at once, and ``per_s`` per second."""

    def __init__(self, now: Callable[[], float], burst: int = 1_000, per_s: int = 500) -> None:
        self._now = now
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._since_s = now()

    def count(self, what: str, cost: int = 1) -> None:
        """Count one more useless frame.

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
    """The buffers for arriving bytes: each is lent for one read, so that silent connections hold none.

    Nothing points into a buffer after it was given back: messages and headers are copied out of it.
    """

    LARGE, SMALL = 256 << 10, 16 << 10
    _MOST_LARGE = 256

    def __init__(self) -> None:
        self._free: list[memoryview] = []
        self._made = 0

    def lend(self, used: int) -> memoryview:
        """A buffer with room for more than ``used`` bytes; a small one if all large ones are lent."""
        if self._free:
            return self._free.pop()
        if self._made >= self._MOST_LARGE:
            return memoryview(bytearray(used + self.SMALL))
        self._made += 1
        return memoryview(bytearray(self.LARGE))

    def take_back(self, buffer: memoryview) -> None:
        """Accept a buffer whose content was read."""
        if len(buffer) == self.LARGE:
            self._free.append(buffer)

    def lost(self, buffer: memoryview) -> None:
        """Give up a buffer whose connection ended while it had it; the loop may still write into it."""
        if len(buffer) == self.LARGE:
            self._made -= 1


class OfLoop:
    """What the connections of one event loop share; bytes that were held in a closed loop do not count in the next."""

    def __init__(self) -> None:
        self.process = Process()
        self.leaving = Process(LEAVING_BYTES)
        self.buffers = Buffers()


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, OfLoop] = WeakKeyDictionary()


def of_loop() -> OfLoop:
    """The `OfLoop` of the running loop; a program may have a loop in each of several threads."""
    return _LOOPS.setdefault(asyncio.get_running_loop(), OfLoop())
