"""The sending half of a connection: frames as large as the peer and its windows allow, streams in turns.

Invariant: a stream's bytes are sent in order, its end after them. A message leaves this queue only when the socket
accepts it, so at most one message for each writing task waits, and `HIGH_BYTES`; all connections together may hold
`flow.LEAVING_BYTES`, above which the one that holds most ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from strandline.transport import flow, frames
from strandline.transport.frames import DEFAULT_FRAME, DEFAULT_WINDOW, MAX_WINDOW, Code, ConnectionFailed, StreamFailed

HIGH_BYTES, LOW_BYTES = 256 << 10, 64 << 10
"""Unsent bytes at which streams pause, and resume; a ping waits behind no more than this."""
LARGEST_FRAME = 512 << 10
"""Largest frame that we send, even if the peer accepts more, so that other streams get their turn."""
_MOST_CONTROL_BYTES = 1 << 20


Encoded = Sequence[bytes | bytearray | memoryview]
"""The parts of an encoded message, which the socket gets without a copy."""


class Sender(Protocol):
    """The sending half of a stream."""

    number: int
    send_window: int
    outbox: deque[bytes]
    at: int
    """The number of bytes of the first message that were sent, including its prefix."""
    ending: bytes
    """The frames to send after the last message."""
    in_line: bool

    def drained(self) -> None:
        """Called when nothing waits any more."""

    def sent_end(self) -> None:
        """Called when the last frame was written."""


class Outgoing:
    """The sending half of one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], None]) -> None:
        """``over``: see `flow.Holder`."""
        self._loop = loop
        self.over_budget = over
        self._leaving = flow.of_loop().leaving
        self.held = 0
        self._transport: asyncio.Transport | None = None
        self._writes: Callable[[Encoded], None] = self._gather
        self._gathered: list[bytes | bytearray | memoryview] = []
        self._gathered_bytes = 0
        self._control_bytes = 0
        self._turns: deque[Sender] = deque()
        self.paused = False
        """Whether no messages are sent, because the socket accepts no more."""
        self.sent = 0
        """The number of HEADERS and DATA frames sent, in relation to which pings and window updates are limited."""
        self.window = DEFAULT_WINDOW
        self.first_window = DEFAULT_WINDOW
        self.largest_frame = DEFAULT_FRAME

    def connected(self, transport: asyncio.Transport) -> None:
        """Begin to write."""
        self._transport = transport
        self._leaving.holders.add(self)
        transport.set_write_buffer_limits(HIGH_BYTES, LOW_BYTES)
        if type(transport).__module__.startswith("uvloop"):
            # uvloop passes several buffers to one system call. asyncio, depending on its release, joins them or loses
            # some after a partial write (CPython 127655, 136234), so for asyncio they are joined here.
            self._writes = self._hand_over

    def _hand_over(self, parts: Encoded) -> None:
        transport = self._transport
        # uvloop raises if the connection is gone and its protocol has not been informed yet.
        if transport is not None and not transport.is_closing():
            transport.writelines(parts)

    def _gather(self, parts: Encoded) -> None:
        if not self._gathered:
            self._loop.call_soon(self.flush)
        self._gathered += parts
        self._gathered_bytes += sum(map(len, parts))
        if self._gathered_bytes > HIGH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered in this turn of the event loop."""
        if self._gathered and self._transport is not None and not self._transport.is_closing():
            parts, self._gathered, self._gathered_bytes = self._gathered, [], 0
            self._transport.write(b"".join(parts) if len(parts) > 1 else parts[0])

    def control(self, content: bytes) -> None:
        """Write frames that are not subject to windows; a peer that causes many and reads nothing is cut off."""
        self._writes((content,))
        if self.paused:
            self._control_bytes += len(content)
            if self._control_bytes > _MOST_CONTROL_BYTES and self._transport is not None:
                self._transport.abort()

    def headers(self, block: bytes, flags: int, stream: int) -> None:
        """Write a header block that begins or ends a stream."""
        self.sent += 1
        self.control(frames.header_frames(block, flags, stream, self.largest_frame))

    def message(self, stream: Sender, content: Encoded, flags: int = 0) -> bool:
        """Send a message; ``flags`` is END_STREAM if it is the last. Return whether the socket has all of it."""
        whole = sum(map(len, content)) + 5
        self.sent += 1
        if (
            not self._turns
            and not self.paused
            and not stream.outbox
            and whole <= self.largest_frame
            and whole <= self.window
            and whole <= stream.send_window
        ):
            self.window -= whole
            stream.send_window -= whole
            self._writes((frames.message_head(whole - 5, flags, stream.number), *content))
            if flags:
                stream.sent_end()
            return True
        self._hold(stream, b"".join(content))
        if flags:
            stream.ending = frames.data_head(0, flags, stream.number)
        self._line_up(stream)
        self._take_turns()
        return not stream.outbox

    def plain(self, stream: Sender, content: bytes) -> None:
        """Send bytes that are not a gRPC message, and end the stream."""
        # Begin after the 5 bytes of a message's prefix, so that none is sent.
        stream.at = 5
        self._hold(stream, content)
        stream.ending = frames.data_head(0, frames.END_STREAM, stream.number)
        self._line_up(stream)
        self._take_turns()

    def end(self, stream: Sender, ending: bytes) -> None:
        """Send a stream's last frame, after all its waiting messages."""
        self.sent += 1
        if stream.outbox:
            stream.ending = ending
        else:
            self.control(ending)
            stream.sent_end()

    def _hold(self, stream: Sender, content: bytes) -> None:
        stream.outbox.append(content)
        self._release(-len(content))
        if self._leaving.held > self._leaving.limit:
            self._leaving.shed()

    def _release(self, size: int) -> None:
        self.held -= size
        self._leaving.held -= size

    def forget(self, stream: Sender) -> None:
        """Drop the waiting messages of a stream, and its place in the line."""
        self._release(sum(map(len, stream.outbox)))
        stream.outbox.clear()
        if stream.in_line:
            stream.in_line = False
            self._turns.remove(stream)

    def gone(self) -> None:
        """Stop counting this connection, which is over; its streams hold nothing any more."""
        self._leaving.gone(self)

    def _line_up(self, stream: Sender) -> None:
        if not stream.in_line and stream.send_window > 0:
            stream.in_line = True
            self._turns.append(stream)

    def _take_turns(self) -> None:
        turns = self._turns
        while turns and not self.paused and self.window > 0:
            stream = turns.popleft()
            stream.in_line = False
            # SETTINGS may have lowered it since the stream lined up.
            if stream.send_window > 0:
                self._frame(stream)
                if stream.outbox:
                    self._line_up(stream)

    def _frame(self, stream: Sender) -> None:
        """Send one frame of the stream's first message."""
        self.sent += 1
        content, at = stream.outbox[0], stream.at
        left = len(content) + 5 - at
        size = min(left, self.largest_frame, self.window, stream.send_window)
        self.window -= size
        stream.send_window -= size
        prefix = (b"\0" + frames.U32.pack(len(content)))[at : at + size] if at < 5 else b""
        start = max(0, at - 5)
        body = memoryview(content)[start : start + size - len(prefix)]
        self._writes((frames.data_head(size, 0, stream.number) + prefix, body))
        if size < left:
            stream.at = at + size
            return
        stream.at = 0
        self._release(len(stream.outbox.popleft()))
        if not stream.outbox:
            stream.drained()
            if stream.ending:
                self.control(stream.ending)
                stream.ending = b""
                stream.sent_end()

    def resume(self) -> None:
        """Continue, because the socket accepts more."""
        self.paused = False
        self._control_bytes = 0
        self._take_turns()

    def more_for_all(self, size: int) -> None:
        """Raise the connection's window, as the peer asked.

        Raises:
            ConnectionFailed: the size is 0, or the window would be too large.
        """
        if not size:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
        self.window += size
        if self.window > MAX_WINDOW:
            raise ConnectionFailed(Code.FLOW_CONTROL_ERROR, "the connection's window is above 2^31 - 1")
        self._take_turns()

    def more_for(self, stream: Sender, size: int) -> None:
        """Raise a stream's window as the peer asked; its SETTINGS may also lower it.

        Raises:
            StreamFailed: the window would be too large.
        """
        stream.send_window += size
        if stream.send_window > MAX_WINDOW:
            raise StreamFailed(Code.FLOW_CONTROL_ERROR, "the stream's window is above 2^31 - 1")
        if stream.outbox:
            self._line_up(stream)
            self._take_turns()
