"""One stream of either side: parses messages from DATA, queues them for one reader, credits what was read, sends.

Invariant: a message is copied out of the buffer in which it arrived, so a reader's message is never overwritten.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from strandline.transport import flow, frames
from strandline.transport.frames import Code, StreamFailed
from strandline.transport.options import Options
from strandline.transport.outgoing import Encoded, Outgoing

_AT_ONCE = 32
"""Messages that a task may read, or write, without waiting; then it lets other tasks run."""
_SMALL = 1 << 10


class Ended(Exception):
    """Raised when what has arrived ends the call with this status."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Carrier(Protocol):
    """The part of a connection that its streams use."""

    loop: asyncio.AbstractEventLoop
    options: Options
    outgoing: Outgoing
    arriving: flow.Arriving
    held: int
    peer_header_bytes: int

    def watch_partial(self) -> None:
        """Start to watch incomplete messages."""

    def block_of(self, block: bytes) -> bytes:
        """A header block for this peer."""

    def peer_ended(self, stream: Any) -> None:
        """Process the end of the peer's side of a stream."""

    def forget(self, stream: Any, *, by_peer: bool) -> None:
        """Forget a stream that is over."""


class Stream:
    """The parts of a stream that are common to both sides."""

    # ruff: noqa: RUF023 - in the order of use
    __slots__ = (
        "connection", "number", "outbox", "at", "ending", "in_line", "send_window", "_unsent",
        "window", "_target", "_unread", "_ahead", "_lent", "messages", "_waiters", "_quick",
        "_head", "_size", "_packed", "_parts", "_missing", "partial_since_s", "waits_for_credit",
        "peer_ended", "we_ended", "is_closed", "is_deaf", "declared", "encoding", "__weakref__",
    )  # fmt: skip

    def __init__(self, connection: Carrier, number: int) -> None:
        self.connection = connection
        self.number = number
        self.outbox: deque[bytes] = deque()
        self.at = 0
        self.ending = b""
        self.in_line = False
        self.send_window = connection.outgoing.first_window
        self._unsent: list[asyncio.Future[None]] = []
        self.window = flow.FIRST_WINDOW
        self._target = flow.FIRST_WINDOW
        self._unread = self._ahead = self._lent = self._quick = 0
        self.messages: deque[bytes] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._head = b""
        self._size = self._missing = 0
        self._packed = False
        self._parts: list[bytes | bytearray | memoryview] = []
        self.partial_since_s = 0.0
        self.waits_for_credit = False
        """Whether the peer may send no more because there is no room for it."""
        self.peer_ended = self.we_ended = self.is_closed = self.is_deaf = False
        self.declared: int | None = None
        self.encoding = b""

    # ---- arriving

    def data(self, view: memoryview) -> None:
        """Process bytes of DATA, which are valid only until this returns.

        Raises:
            StreamFailed: there are more bytes than ``content-length`` says.
            Ended: the message is too large, or compressed in an unsupported way.
        """
        size = len(view)
        if self.declared is not None:
            self.declared -= size
            if self.declared < 0:
                raise StreamFailed(Code.PROTOCOL_ERROR, "more DATA than content-length")
        if self.is_deaf:
            return
        at = 0
        while at < size:
            if not self._missing and (at := self._begin(view, at, size)) < 0:
                return
            take = min(self._missing, size - at)
            end = at + take
            self._missing -= take
            if self._missing:
                self._hold(take)
                self._keep(view[at:end])
            elif self._parts:
                self._parts.append(view[at:end])
                self._complete(b"".join(self._parts), take)
                self._parts = []
            else:
                self._complete(bytes(view[at:end]), take)
            at = end
        if self._missing:
            self._ask()

    def _keep(self, part: memoryview) -> None:
        """Keep a part of a message. Small parts are joined, because an object for each would take far more memory."""
        if len(part) >= _SMALL:
            self._parts.append(bytes(part))
        elif self._parts and type(last := self._parts[-1]) is bytearray:
            last += part
        else:
            self._parts.append(bytearray(part))

    def _begin(self, view: memoryview, at: int, size: int) -> int:
        """Read a message's prefix; return where the message begins, or -1 if even the prefix is incomplete."""
        if self._head or size - at < 5:
            take = min(5 - len(self._head), size - at)
            self._head += bytes(view[at : at + take])
            if len(self._head) < 5:
                self._count_time()
                return -1
            head, self._head, at = self._head, b"", at + take
            packed, self._size = head[0], frames.U32.unpack_from(head, 1)[0]
        else:
            packed, self._size = view[at], frames.U32.unpack_from(view, at + 1)[0]
            at += 5
        if packed:
            self._check_packed(packed)
        self._packed = packed == 1
        most = self.connection.options.max_receive_bytes
        if self._size > most:
            raise Ended(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"received a message larger than max ({self._size} vs. {most})"
            )
        self._missing = self._size
        if size - at < self._size:
            self._count_time()
        return at

    def _check_packed(self, flag: int) -> None:
        if flag > 1:
            raise Ended(grpc.StatusCode.INTERNAL, f"the message's flag is {flag}, which gRPC does not have")
        if self.encoding in (b"", b"identity"):
            raise Ended(grpc.StatusCode.INTERNAL, "the message is compressed and the call has no grpc-encoding")

    def _count_time(self) -> None:
        self.partial_since_s = self.connection.loop.time()
        self.connection.watch_partial()

    def _complete(self, message: bytes, taken: int) -> None:
        self.partial_since_s = 0.0
        if self._packed:
            message = _unpacked(message, self.connection.options.max_receive_bytes)
            # The expanded size is what is held in memory.
            taken += len(message) - self._size
        self._hold(taken + 5 + flow.MESSAGE_COST)
        self.messages.append(message)
        self.wake()

    def end_of_data(self) -> None:
        """Process the end of the peer's side.

        Raises:
            StreamFailed: there were fewer bytes than ``content-length`` says.
            Ended: a message is incomplete.
        """
        self.peer_ended = True
        self.wake()
        if self.declared:
            raise StreamFailed(Code.PROTOCOL_ERROR, "less DATA than content-length")
        if (self._missing or self._head) and not self.is_deaf:
            raise Ended(grpc.StatusCode.INTERNAL, "the stream ended inside a message")

    # ---- reading

    def wake(self) -> None:
        """Wake the reader."""
        if self._waiters:
            wake_all(self._waiters)

    async def next(self) -> bytes | None:
        """The next message; None after the last one."""
        if self.messages:
            self._quick += 1
            if self._quick >= _AT_ONCE:
                self._quick = 0
                await asyncio.sleep(0)
        while not self.messages:
            if self.peer_ended or self.is_closed:
                return None
            self._quick = 0
            await wait_with(self._waiters)
        message = self.messages.popleft()
        self._take(len(message) + 5 + flow.MESSAGE_COST)
        return message

    def _hold(self, size: int) -> None:
        self._unread += size
        self.connection.held += size
        process = self.connection.arriving.process
        process.held += size
        if process.held > process.limit:
            process.shed()

    def _take(self, size: int) -> None:
        self._drop(size)
        if self._lent:
            # Keep what is unread, or may still arrive, beyond the window. The rest is given back even if a message is
            # incomplete: otherwise a reader that had paused could wait for room that its own stream holds.
            kept = min(self._lent, max(0, self._unread + self.window - self._target))
            lent, self._lent = self._lent - kept, kept
            if lent:
                self.connection.arriving.give_back(lent)
        if not self.peer_ended and 2 * (self._unread + self.window) <= self._target:
            self._credit()

    def _drop(self, size: int) -> None:
        self._unread -= size
        self.connection.held -= size
        process = self.connection.arriving.process
        process.held -= size
        if process.starves:
            process.feed()

    # ---- crediting

    def _credit(self) -> bool:
        """Let the peer send as much as was read; double the window if the reader keeps up."""
        if self.is_closed or self.peer_ended:
            return True
        arriving = self.connection.arriving
        if not arriving.process.has_room(arriving):
            if not self.waits_for_credit:
                self.waits_for_credit = True
                arriving.wait(self._credit_again)
            return False
        if not self.messages and self._target < flow.MOST_AHEAD and arriving.ahead(self._target):
            self._ahead += self._target
            self._target *= 2
        self.grant(self._target - self._unread - self.window)
        return True

    def _credit_again(self) -> bool:
        self.waits_for_credit = False
        credited = self._credit()
        if credited and self._missing:
            self._ask()
        return credited

    def _ask(self) -> None:
        """Let the peer send the rest of a message that is larger than its window."""
        if self._missing > self.window and not self.waits_for_credit:
            self.waits_for_credit = True
            if not self._reserve():
                self.connection.arriving.wait(self._reserve)

    def _reserve(self) -> bool:
        beyond = self._missing - self.window
        if not self.is_closed and beyond > 0:
            if not self.connection.arriving.for_message(beyond):
                return False
            self._lent += beyond
            self.grant(beyond)
        self.waits_for_credit = False
        return True

    def grant(self, size: int) -> None:
        """Let the peer send so many bytes more."""
        if size > 0 and not self.is_deaf:
            self.window += size
            self.connection.outgoing.control(frames.window_update(self.number, size))

    # ---- sending

    async def send(self, message: Encoded) -> None:
        """Send a message; return when the socket has accepted it, or the stream is closed."""
        if self.is_closed or self.connection.outgoing.message(self, message):
            self._quick += 1
            if self._quick >= _AT_ONCE:
                self._quick = 0
                await asyncio.sleep(0)
            return
        while self.outbox and not self.is_closed:
            await wait_with(self._unsent)

    def drained(self) -> None:
        """Wake the writers, because everything was sent or nothing more will be."""
        wake_all(self._unsent)

    def sent_end(self) -> None:
        """Note that our last frame of this stream is written."""
        self.we_ended = True

    def close(self) -> None:
        """End the stream for both sides; drop what waits to be sent, and free what was reserved."""
        # Deaf, because the rest of a frame of DATA may still arrive, and nothing would free what is kept of it.
        self.is_closed = self.is_deaf = True
        self.connection.outgoing.forget(self)
        self.ending = b""
        self.drained()
        self.wake()
        self._parts = []
        kept = sum(len(message) + 5 + flow.MESSAGE_COST for message in self.messages)
        if self._unread > kept:
            self._drop(self._unread - kept)
        reserved, self._ahead, self._lent = self._ahead + self._lent, 0, 0
        if reserved:
            self.connection.arriving.give_back(reserved)

    def forget_messages(self) -> None:
        """Discard messages that will never be read."""
        self.messages.clear()
        if self._unread:
            self._drop(self._unread)


def encoded(message: Any, encode: Callable[[Any], bytes] | None) -> Encoded:
    """A message in parts; a list is one that was encoded already."""
    if type(message) is list:
        return message
    content = message if encode is None else encode(message)
    return (content if type(content) is bytes else bytes(content),)


async def wait_with(waiters: list[asyncio.Future[None]]) -> None:
    """Wait until `wake_all` is called with the same list."""
    waiter = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    try:
        await waiter
    finally:
        # After a time-out it would otherwise stay until there is something to wake up for.
        if waiter in waiters:
            waiters.remove(waiter)


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Wake those that wait in this list, and empty it."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


def _unpacked(message: bytes, most: int) -> bytes:
    """The content of a message compressed with gzip, of at most ``most`` bytes.

    Raises:
        Ended: it is not gzip, or expands beyond the limit.
    """
    expander = zlib.decompressobj(31)
    try:
        content = expander.decompress(message, most + 1)
    except zlib.error as error:
        raise Ended(grpc.StatusCode.INTERNAL, f"the message is not gzip: {error}") from error
    if len(content) > most:
        raise Ended(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the message expands to more than max ({most})")
    if not expander.eof or expander.unused_data:
        raise Ended(grpc.StatusCode.INTERNAL, "the message and its compressed bytes do not end together")
    return content
