"""One connection of either side: parses frames, enforces HTTP/2's rules for them, answers pings and settings, ends.

Invariant: every frame is either handled completely, or ends its stream or the connection with RFC 9113's code for it;
header blocks are decoded in order even if they are then discarded, because otherwise the tables of HPACK would differ.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import grpc
import hpack

from strandline.transport import flow, frames, headers
from strandline.transport.frames import Code, ConnectionFailed, Setting, StreamFailed
from strandline.transport.headers import BadHeaders, Field
from strandline.transport.options import Options
from strandline.transport.outgoing import LARGEST_FRAME, Outgoing
from strandline.transport.stream import Ended, Stream

OUR_FRAME = 1 << 20
"""The largest frame that we accept."""
_OUR_WINDOW = 32 << 20
"""The connection's window; credited as bytes arrive, because only streams are held back, so no peer can exceed it."""
_UPDATES_PER_FRAME = 10
"""The peer's WINDOW_UPDATE frames for each frame of ours; further ones count as useless frames."""
SETTINGS_S = 10.0
INCOMPLETE_S = 60.0
"""How long a peer may take to acknowledge SETTINGS, and to complete a frame, a header block or a message."""
_BUSY_S = 0.02
"""A timer that is later than this means that the event loop was busy."""
_LINGER_S = 0.25
"""Time between GOAWAY and the end of the connection, so that the peer can read the reason."""
_REMEMBERED = 256
"""Number of closed streams that are remembered, to distinguish late frames from wrong ones."""
_LARGEST_CONTROL = 16 << 10
_STREAM_ERROR_COST = 10
"""Cost, in useless frames, of each reset that a peer's error makes us send (CVE-2025-8671)."""


class Connection(asyncio.BufferedProtocol):
    """The parts common to both sides; `ServerConnection` and `ClientConnection` decide about streams."""

    is_client = False

    def __init__(self, options: Options) -> None:
        self.loop = asyncio.get_running_loop()
        self.options = options
        self.outgoing = Outgoing(self.loop, partial(self.over_budget, "is not read here"))
        self.arriving = flow.Arriving(flow.of_loop().process)
        self.calm = flow.Calm(self.loop.time)
        self.streams: dict[int, Stream] = {}
        self.held = 0
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self.is_ending = False
        """Whether the connection is ending, so that no more frames are handled."""
        self.why = "the peer closed the connection"
        self.peer_header_bytes = 16 << 10
        self.last_peer_stream = 0
        self.heard_s = self.loop.time()
        self.transport: asyncio.Transport | None = None
        self._settled = False
        self._left_preface = 0 if self.is_client else len(frames.PREFACE)
        self._buffers = flow.of_loop().buffers
        self._buffer: memoryview | None = None
        self._rest = b""
        self._rest_since_s = 0.0
        self._uncredited = 0
        self._updates = 0
        self._data: tuple[Stream | None, int] | None = None
        self._data_left = self._skip = 0
        self._decoder = hpack.Decoder(headers.MOST_EXPANDED_BYTES)
        self._block: bytearray | None = None
        self._block_stream = self._block_flags = 0
        self._block_fault: StreamFailed | None = None
        self._over: OrderedDict[int, bool] = OrderedDict()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._table_was_set = False

    # ---- for the subclass of each side

    def settled(self) -> None:
        """Called when the peer's first SETTINGS have arrived."""

    def new_headers(self, number: int, fields: Sequence[Field], ended: bool) -> None:
        """Process headers on an unknown stream."""
        raise ConnectionFailed(Code.PROTOCOL_ERROR, f"HEADERS on stream {number}, which is not open")

    def ping_arrived(self) -> None:
        """Called for each ping, before it is answered."""
        self.calm.count("pings")

    def ping_answered(self, payload: bytes) -> None:
        """Called when the peer answers a ping; that it is alive is known from whatever arrives."""

    def going_away(self, last: int, code: int, why: str) -> None:
        """Called when the peer opens no more streams; it has processed none of ours above ``last``."""

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send SETTINGS, and before them a client's preface."""
        self.transport = cast("asyncio.Transport", transport)
        self.outgoing.connected(self.transport)
        self.arriving.process.holders.add(self)
        ours = {
            Setting.INITIAL_WINDOW_SIZE: flow.FIRST_WINDOW,
            Setting.MAX_FRAME_SIZE: OUR_FRAME,
            Setting.MAX_HEADER_LIST_SIZE: self.options.max_metadata_bytes,
        }
        if self.is_client:
            ours[Setting.ENABLE_PUSH] = 0
        else:
            ours[Setting.MAX_CONCURRENT_STREAMS] = self.options.max_streams
        self.outgoing.control(
            (frames.PREFACE if self.is_client else b"")
            + frames.settings(ours)
            + frames.window_update(0, _OUR_WINDOW - frames.DEFAULT_WINDOW)
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer into which the loop writes arriving bytes."""
        if self._buffer is None:
            self._buffer = self._buffers.lend(len(self._rest))
            self._buffer[: len(self._rest)] = self._rest
        return self._buffer[len(self._rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        """Parse frames from the ``nbytes`` that have arrived."""
        buffer = self._buffer
        assert buffer is not None, "the loop asked for it"
        self.heard_s = self.loop.time()
        had, end = len(self._rest), len(self._rest) + nbytes
        self._rest, self._buffer = b"", None
        try:
            if not self.is_ending:
                at = self._cut(buffer, end)
                self._rest = bytes(buffer[at:end])
                if self._rest:
                    if at or not had:
                        self._rest_since_s = self.heard_s
                    self.watch_partial()
        except ConnectionFailed as failed:
            self.fail(failed.code, str(failed))
        finally:
            self._buffers.take_back(buffer)

    def pause_writing(self) -> None:
        """Stop writing, because the socket accepts no more."""
        self.outgoing.paused = True

    def resume_writing(self) -> None:
        """Continue writing, because the socket accepts more."""
        self.outgoing.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything and end all streams."""
        if self.lost.done():
            return
        if exc is not None and not self.is_ending:
            self.why = f"{self.why}: {exc}" if str(exc) else self.why
        for timer in self._timers.values():
            timer.cancel()
        if self._buffer is not None:
            self._buffers.lost(self._buffer)
        if not self.is_ending:
            self.is_ending = True
            self._end_streams()
        self.lost.set_result(None)

    def stream_lost(self, stream: Stream) -> None:
        """Close a stream whose connection is over."""
        stream.close()

    def ended(self) -> None:
        """Called when no stream is left and none can be opened; the socket may stay open a little longer."""

    def _end_streams(self) -> None:
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            self.stream_lost(stream)
        # A holder that ends twice would be counted as ending for ever.
        self.arriving.process.gone(self)
        self.arriving.process.starves.pop(self.arriving, None)
        self.outgoing.gone()
        self.ended()

    # ---- frames

    def _cut(self, view: memoryview, end: int) -> int:
        """Handle every complete frame, and DATA as far as it has arrived; return where the rest begins."""
        at = self._preface(view, end) if self._left_preface else 0
        while at < end and not self.is_ending and not self._left_preface:
            if self._data_left:
                take = min(self._data_left, end - at)
                self._data_left -= take
                self._data_piece(view[at : at + take])
                at += take
                continue
            if self._skip:
                take = min(self._skip, end - at)
                self._skip -= take
                at += take
                continue
            if end - at < frames.HEAD_BYTES:
                break
            upper, lower, kind, flags, number = frames.HEAD.unpack_from(view, at)
            size = upper << 8 | lower
            number &= frames.LAST_STREAM
            if size > OUR_FRAME:
                raise ConnectionFailed(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes is larger than {OUR_FRAME}")
            if kind == frames.DATA and self._block is None and self._settled:
                pad = 0
                if flags & frames.PADDED:
                    if end - at < frames.HEAD_BYTES + min(size, 1):
                        break
                    pad = view[at + frames.HEAD_BYTES] + 1 if size else 1
                at += frames.HEAD_BYTES + (1 if pad else 0)
                self._data_begins(number, size, flags, pad)
                continue
            self._expect(kind, number, size)
            if kind > frames.CONTINUATION:
                self.calm.count("frames of unknown types")
                self._skip = size
                at += frames.HEAD_BYTES
                continue
            if end - at < frames.HEAD_BYTES + size:
                break
            at += frames.HEAD_BYTES
            _HANDLERS[kind](self, flags, number, bytes(view[at : at + size]))
            at += size
        return at

    def _preface(self, view: memoryview, end: int) -> int:
        take = min(self._left_preface, end)
        start = len(frames.PREFACE) - self._left_preface
        if view[:take] != frames.PREFACE[start : start + take]:
            said = bytes(view[: min(end, 16)])
            what = "TLS, and this port is in plain text" if said[:1] == b"\x16" else "no HTTP/2"
            raise ConnectionFailed(Code.PROTOCOL_ERROR, f"the peer speaks {what}")
        self._left_preface -= take
        return take

    def _expect(self, kind: int, number: int, size: int) -> None:
        """Check a frame by its head alone. Raises `ConnectionFailed` if it is out of order or too long."""
        if not self._settled and kind != frames.SETTINGS:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "the first frame is no SETTINGS")
        if self._block is not None and (kind != frames.CONTINUATION or number != self._block_stream):
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "another frame inside a header block")
        if kind in (frames.HEADERS, frames.CONTINUATION):
            if len(self._block or b"") + size > headers.MAX_BLOCK_BYTES:
                raise ConnectionFailed(Code.ENHANCE_YOUR_CALM, "a header block is larger than 64 KiB")
        elif size > _LARGEST_CONTROL and kind <= frames.CONTINUATION:
            raise ConnectionFailed(Code.FRAME_SIZE_ERROR, "a frame is longer than one of its type can be")

    def _check_size(self, is_right: bool, name: str) -> None:
        if not is_right:
            raise ConnectionFailed(Code.FRAME_SIZE_ERROR, f"{name} has a wrong length")

    # ---- DATA

    def _data_begins(self, number: int, size: int, flags: int, pad: int) -> None:
        if not number or (number not in self.streams and self._is_idle(number)):
            raise ConnectionFailed(Code.PROTOCOL_ERROR, f"DATA on stream {number}, which is idle")
        if pad > size:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "DATA has more padding than bytes")
        self._uncredited += size
        if self._uncredited > _OUR_WINDOW // 4:
            self.outgoing.control(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        if size == pad and not flags & frames.END_STREAM:
            self.calm.count("empty DATA frames")
        stream = self.streams.get(number)
        if stream is None:
            self._late(number, "DATA")
        elif stream.peer_ended:
            self.reset_for(number, Code.STREAM_CLOSED, "DATA after the end of the stream")
            stream = None
        else:
            stream.window -= size
            if stream.window < 0 and not stream.is_deaf:
                self.reset_for(number, Code.FLOW_CONTROL_ERROR, "more DATA than the window allows")
                stream = None
            elif pad:
                # No reader gives it back.
                stream.grant(pad)
        self._skip = max(0, pad - 1)
        self._data_left = size - pad
        self._data = stream, flags & frames.END_STREAM
        if not self._data_left:
            self._data_ends(stream, flags & frames.END_STREAM)

    def _data_piece(self, view: memoryview) -> None:
        assert self._data is not None, "there are bytes left of it"
        stream, ends = self._data
        if stream is not None:
            try:
                stream.data(view)
            except StreamFailed as failed:
                self.reset_for(stream.number, failed.code, str(failed))
                self._data = stream, ends = None, ends
            except Ended as ended:
                stream.is_deaf = True
                self.call_ended(stream, ended)
        if not self._data_left:
            self._data_ends(stream, ends)

    def _data_ends(self, stream: Stream | None, ends: int) -> None:
        if ends and stream is not None:
            self.peer_ended(stream)

    def peer_ended(self, stream: Stream) -> None:
        """Process the end of the peer's side of a stream."""
        try:
            stream.end_of_data()
        except StreamFailed as failed:
            self.reset_for(stream.number, failed.code, str(failed))
        except Ended as ended:
            self.call_ended(stream, ended)

    def call_ended(self, stream: Stream, ended: Ended) -> None:
        """End a stream's call with a status, because of what arrived."""

    # ---- header blocks

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "HEADERS on stream 0")
        self._block_fault = None
        if flags & frames.WITH_PRIORITY and frames.depends_on(payload, flags) == number:
            self._block_fault = StreamFailed(Code.PROTOCOL_ERROR, "a stream depends on itself")
        self._block_stream, self._block_flags = number, flags
        self._block = bytearray()
        self._block_part(flags, frames.without_padding(payload, flags))

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        if not payload:
            self.calm.count("empty CONTINUATION frames", _STREAM_ERROR_COST)
        self._block_part(flags, payload)

    def _block_part(self, flags: int, part: bytes) -> None:
        assert self._block is not None, "a block is open"
        self._block += part
        if not flags & frames.END_HEADERS:
            if "block" not in self._timers:
                self.after("block", INCOMPLETE_S, self.fail, Code.ENHANCE_YOUR_CALM, "a header block is not complete")
            return
        self.cancel_timer("block")
        block, self._block = bytes(self._block), None
        fields = headers.read_block(self._decoder, block)
        self._block_done(self._block_stream, fields, bool(self._block_flags & frames.END_STREAM))

    def _block_done(self, number: int, fields: Sequence[Field], ended: bool) -> None:
        stream = self.streams.get(number)
        try:
            if self._block_fault is not None:
                if not self.is_client and number % 2:
                    self.last_peer_stream = max(number, self.last_peer_stream)
                raise self._block_fault
            if stream is not None:
                if stream.peer_ended:
                    raise StreamFailed(Code.STREAM_CLOSED, "HEADERS after the end of the stream")
                self.more_headers(stream, fields, ended)
            elif self._is_idle(number):
                self.new_headers(number, fields, ended)
            else:
                self._late(number, "HEADERS")
        except BadHeaders as bad:
            self.reset_for(number, Code.PROTOCOL_ERROR, str(bad))
        except StreamFailed as failed:
            self.reset_for(number, failed.code, str(failed))

    def more_headers(self, stream: Stream, fields: Sequence[Field], ended: bool) -> None:
        """Process headers on an open stream."""
        raise NotImplementedError

    # ---- the other frames

    def _priority(self, flags: int, number: int, payload: bytes) -> None:
        if not number:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "PRIORITY on stream 0")
        self.calm.count("PRIORITY frames")
        if len(payload) != 5:
            self.reset_for(number, Code.FRAME_SIZE_ERROR, "PRIORITY has a wrong length")
        elif frames.depends_on(payload) == number:
            self.reset_for(number, Code.PROTOCOL_ERROR, "a stream depends on itself")

    def _rst_stream(self, flags: int, number: int, payload: bytes) -> None:
        self._check_size(len(payload) == 4, "RST_STREAM")
        if not number or (number not in self.streams and self._is_idle(number)):
            raise ConnectionFailed(Code.PROTOCOL_ERROR, f"RST_STREAM on stream {number}, which is idle")
        stream = self.streams.get(number)
        if stream is None:
            if self._over.get(number) is False:
                # It may cross the end of the stream that we sent, once.
                self._over[number] = True
            else:
                self.calm.count("RST_STREAM frames")
            return
        self.forget(stream, by_peer=True)
        self.was_reset(stream, frames.U32.unpack(payload)[0])

    def was_reset(self, stream: Stream, code: int) -> None:
        """End a stream that was reset; it is no longer in ``streams``."""
        stream.close()

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & frames.ACK:
            self._check_size(not payload, "the acknowledgement of SETTINGS")
            self.cancel_timer("settings")
            return
        if self._settled:
            self.calm.count("SETTINGS frames", _STREAM_ERROR_COST)
        # Only the last value of each: thousands of windows in one frame would mean as many walks over all streams.
        values = dict(frames.settings_of(payload, from_server=self.is_client))
        # Sent before the DATA that a larger window allows, because a peer may wait for the acknowledgement.
        self.outgoing.control(frames.frame(frames.SETTINGS, frames.ACK, 0))
        for key, value in values.items():
            self._set(key, value)
        if not self._settled:
            self._settled = True
            self.after("settings", SETTINGS_S, self.fail, Code.SETTINGS_TIMEOUT, "SETTINGS are not acknowledged")
            self.settled()
            self.keep_alive()

    def _set(self, key: int, value: int) -> None:
        if key == Setting.MAX_FRAME_SIZE:
            self.outgoing.largest_frame = min(value, LARGEST_FRAME)
        elif key == Setting.MAX_HEADER_LIST_SIZE:
            self.peer_header_bytes = min(value, headers.MAX_BLOCK_BYTES)
        elif key == Setting.HEADER_TABLE_SIZE:
            self._table_was_set = True
        elif key == Setting.INITIAL_WINDOW_SIZE:
            by, self.outgoing.first_window = value - self.outgoing.first_window, value
            try:
                for stream in tuple(self.streams.values()):
                    self.outgoing.more_for(stream, by)
            except StreamFailed as failed:
                # RFC 9113, 6.9.2.
                raise ConnectionFailed(failed.code, str(failed)) from failed

    def _push_promise(self, flags: int, number: int, payload: bytes) -> None:
        raise ConnectionFailed(Code.PROTOCOL_ERROR, "PUSH_PROMISE, which we do not take")

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        self._check_size(len(payload) == 8, "PING")
        if number:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "PING on a stream")
        if flags & frames.ACK:
            self.ping_answered(payload)
            return
        self.ping_arrived()
        self.outgoing.control(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _goaway(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, "GOAWAY on a stream")
        self._check_size(len(payload) >= 8, "GOAWAY")
        self.calm.count("GOAWAY frames", _STREAM_ERROR_COST)
        last, code = frames.U32.unpack_from(payload)[0] & frames.LAST_STREAM, frames.U32.unpack_from(payload, 4)[0]
        self.going_away(last, code, payload[8:].decode("utf-8", "replace"))

    def _window_update(self, flags: int, number: int, payload: bytes) -> None:
        self._check_size(len(payload) == 4, "WINDOW_UPDATE")
        size = frames.U32.unpack(payload)[0] & frames.MAX_WINDOW
        self._updates += 1
        if self._updates > _UPDATES_PER_FRAME * self.outgoing.sent:
            self.calm.count("WINDOW_UPDATE frames")
        if not number:
            self.outgoing.more_for_all(size)
            return
        stream = self.streams.get(number)
        if stream is None:
            if self._is_idle(number):
                raise ConnectionFailed(Code.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
        elif not size:
            self.reset_for(number, Code.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
        else:
            try:
                self.outgoing.more_for(stream, size)
            except StreamFailed as failed:
                self.reset_for(number, failed.code, str(failed))

    # ---- streams that are over

    def _is_idle(self, number: int) -> bool:
        """Whether this stream was never opened."""
        return number > self.last_peer_stream or number % 2 == 0

    def _late(self, number: int, what: str) -> None:
        """Process DATA or HEADERS on a stream that is over: harmless if we ended it and the peer may not know yet."""
        by_peer = self._over.get(number)
        if by_peer is None and what == "HEADERS" and not self.is_client:
            raise ConnectionFailed(Code.PROTOCOL_ERROR, f"stream {number} is opened after a later one")
        if by_peer is None:
            self.calm.count(f"{what} frames on streams that are over")
        elif by_peer:
            raise ConnectionFailed(Code.STREAM_CLOSED, f"{what} on stream {number}, which its sender had ended")

    def forget(self, stream: Stream, *, by_peer: bool) -> None:
        """Forget a stream that is over; ``by_peer``: the peer had ended its side, or reset the stream."""
        if self.streams.pop(stream.number, None) is not None:
            self._remember(stream.number, by_peer)

    def _remember(self, number: int, by_peer: bool) -> None:
        self._over[number] = by_peer
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)

    def reset_for(self, number: int, code: Code, why: str) -> None:
        """Reset a stream because the peer broke a rule; too many such resets end the connection."""
        self.outgoing.control(frames.reset(number, code))
        stream = self.streams.get(number)
        if stream is not None:
            self.forget(stream, by_peer=False)
            self.was_reset(stream, code)
        else:
            self._remember(number, False)
        self.calm.count("errors on streams", _STREAM_ERROR_COST)

    # ---- time

    def after(self, what: str, seconds: float, act: Any, *args: Any) -> None:
        """Call ``act`` after ``seconds``, unless the connection ends or `cancel_timer` is called before."""
        self.cancel_timer(what)
        self._timers[what] = self.loop.call_later(seconds, self._due, what, act, args)

    def cancel_timer(self, what: str) -> None:
        """Cancel the timer that `after` set."""
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()

    def _due(self, what: str, act: Any, args: tuple[Any, ...]) -> None:
        self._timers.pop(what, None)
        act(*args)

    def watch_partial(self) -> None:
        """Start to watch incomplete messages and frames."""
        if "partial" not in self._timers:
            self.after("partial", INCOMPLETE_S, self._look_at_partial)

    def _look_at_partial(self) -> None:
        now_s, oldest_s = self.loop.time(), self._rest_since_s if self._rest else None
        if oldest_s is not None and now_s - oldest_s >= INCOMPLETE_S - 1:
            self.fail(Code.ENHANCE_YOUR_CALM, "a frame is not complete")
            return
        for stream in tuple(self.streams.values()):
            since_s = stream.partial_since_s
            if not since_s or stream.is_deaf:
                continue
            if stream.waits_for_credit:
                stream.partial_since_s = since_s = now_s
            if now_s - since_s >= INCOMPLETE_S - 1:
                stream.is_deaf = True
                self.call_ended(
                    stream,
                    Ended(grpc.StatusCode.DEADLINE_EXCEEDED, f"a message was not complete after {INCOMPLETE_S:.0f} s"),
                )
            else:
                oldest_s = min(oldest_s or since_s, since_s)
        if oldest_s is not None:
            self.after("partial", max(1.0, oldest_s + INCOMPLETE_S - now_s), self._look_at_partial)

    def ping(self, payload: bytes) -> None:
        """Send a ping with these 8 bytes."""
        self.outgoing.control(frames.frame(frames.PING, 0, 0, payload))

    def keep_alive(self) -> None:
        """Send pings while nothing arrives, as the options say, until the connection ends."""
        every_s = self.options.ping_every_s
        if every_s is None:
            return
        quiet_s = self.loop.time() - self.heard_s
        if quiet_s < every_s:
            self.after("keepalive", every_s - quiet_s, self.keep_alive)
        elif not self.streams and not self.options.ping_without_calls:
            self.after("keepalive", every_s, self.keep_alive)
        else:
            self.ping(b"keepaliv")
            due_s = self.loop.time() + self.options.ping_timeout_s
            self.after("keepalive", self.options.ping_timeout_s, self._answered_since, self.heard_s, due_s)

    def _answered_since(self, heard_s: float, due_s: float) -> None:
        late_s = self.loop.time() - due_s
        if self.heard_s > heard_s:
            self.keep_alive()
        elif late_s > _BUSY_S:
            # The loop was busy and has not read the socket since.
            self.after("keepalive", _BUSY_S, self._answered_since, heard_s, self.loop.time() + _BUSY_S)
        else:
            self.why = "the peer did not answer a ping in time"
            self.fail(Code.NO_ERROR, "keepalive watchdog timeout", at_once=True)

    # ---- the end

    def over_budget(self, what: str = "waits here") -> None:
        """End soon: this connection holds most of the waiting bytes, and the process has no more room."""
        self.loop.call_soon(self.fail, Code.ENHANCE_YOUR_CALM, f"the process has no room for what {what}")

    def block_of(self, block: bytes) -> bytes:
        """A header block for this peer; if the peer has set a table size, it begins with the size of ours, 0."""
        return headers.EMPTY_TABLE + block if self._table_was_set else block

    def fail(self, code: Code, why: str, *, at_once: bool = False) -> None:
        """End the connection with GOAWAY; open streams fail."""
        if code is not Code.NO_ERROR and not self.is_ending:
            self.why = f"{why} ({code.name})"
        if self._goodbye(code, why):
            if at_once and self.transport is not None:
                self.transport.abort()
            else:
                self.loop.call_later(_LINGER_S, self._close)

    def close(self, why: str) -> None:
        """End the connection without an error; open streams fail."""
        self.why = why
        if self._goodbye(Code.NO_ERROR):
            self._close()

    def _goodbye(self, code: Code, why: str = "") -> bool:
        """Send GOAWAY and end all streams; return False if that was done already."""
        if self.is_ending:
            return False
        self.is_ending = True
        self.outgoing.control(frames.goaway(self.last_peer_stream, code, why))
        self.outgoing.flush()
        self._end_streams()
        return True

    def drop(self) -> None:
        """Release everything: uvloop does not call `connection_lost` if the making of a connection is cancelled."""
        if self.transport is not None:
            self.transport.abort()
            self.connection_lost(None)

    def _close(self) -> None:
        if self.transport is not None:
            if self.outgoing.paused:
                self.transport.abort()
            else:
                self.transport.close()
                # Even if the peer reads nothing, or does not shut TLS down.
                self.loop.call_later(_LINGER_S, self.transport.abort)


_HANDLERS: dict[int, Any] = {
    frames.HEADERS: Connection._headers,
    frames.PRIORITY: Connection._priority,
    frames.RST_STREAM: Connection._rst_stream,
    frames.SETTINGS: Connection._settings,
    frames.PUSH_PROMISE: Connection._push_promise,
    frames.PING: Connection._ping,
    frames.GOAWAY: Connection._goaway,
    frames.WINDOW_UPDATE: Connection._window_update,
    frames.CONTINUATION: Connection._continuation,
}
