"""One call at a client: the object that `grpc.aio` returns; its stream may begin later, or a second time.

Invariant: a call ends exactly once, with the status that came first; messages that arrived before it are read first.
A call whose object is dropped is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from typing import Any, NoReturn

import grpc

from strandline.transport import frames, headers
from strandline.transport.frames import Code
from strandline.transport.headers import BadHeaders, Field
from strandline.transport.options import OF_HTTP, STATUSES
from strandline.transport.outgoing import Encoded
from strandline.transport.stream import Stream, encoded, wait_with, wake_all

_log = logging.getLogger("strandline.transport")

Status = tuple[grpc.StatusCode, str, headers.Metadata]
_CANCELLED = "Locally cancelled by application!"


class ClientStream(Stream):
    """The stream of a call; it does not keep the call alive."""

    __slots__ = ("awaited", "call", "has_headers")

    def __init__(self, connection: Any, number: int, call: Call) -> None:
        super().__init__(connection, number)
        # Weak, because a call that its caller drops is cancelled. Those who wait for it are kept: their tasks may have
        # no other reference that is not weak.
        self.call, self.awaited = weakref.ref(call), call.awaited
        self.has_headers = False
        # No DATA before the headers of the answer.
        self.declared = 0

    def over(self, status: Status, *, reset: Code | None = None) -> None:
        """End the stream with the call's status; ``reset``: also reset it at the server with this code."""
        if self.is_closed:
            return
        if reset is not None:
            self.connection.outgoing.control(frames.reset(self.number, reset))
        self.close()
        self.connection.forget(self, by_peer=self.peer_ended and self.we_ended)
        call = self.call()
        if call is None:
            self.forget_messages()
        else:
            call.finish(status)

    def dropped(self) -> None:
        """Cancel the stream, because the caller has dropped the call."""
        self.over((grpc.StatusCode.CANCELLED, "dropped", ()), reset=Code.CANCEL)
        self.forget_messages()

    def fields(self, fields: Sequence[Field], ended: bool) -> None:
        """Process the headers of the answer, or its trailers.

        Raises:
            BadHeaders: they are malformed.
        """
        pseudo, others = headers.split(fields)
        size, most = headers.size_of(fields), self.connection.options.max_metadata_bytes
        if size > most:
            why = f"received metadata larger than max ({size} vs. {most})"
            self.over((grpc.StatusCode.RESOURCE_EXHAUSTED, why, ()), reset=Code.CANCEL)
        elif not self.has_headers:
            self._answered(pseudo, others, ended)
        elif pseudo or not ended:
            raise BadHeaders("headers inside a stream that do not end it")
        else:
            self._trailers(others)

    def _answered(self, pseudo: dict[bytes, bytes], others: list[Field], ended: bool) -> None:
        status = pseudo.get(b":status", b"")
        if len(pseudo) != 1 or len(status) != 3 or not status.isdigit():
            raise BadHeaders("an answer needs :status, and has no other pseudo-field")
        if status[:1] == b"1":
            if ended:
                raise BadHeaders("an answer ends with a status of 1xx")
            return
        given = dict(others)
        type_ = given.get(b"content-type", b"")
        if status != b"200" or not type_.startswith(headers.TYPE):
            code = OF_HTTP.get(int(status), grpc.StatusCode.UNKNOWN)
            if b"grpc-status" not in given:
                said = f"HTTP status {status.decode()} and content-type {type_.decode('latin-1')!r}, which is not gRPC"
                self.over((code, f"the server answered with {said}", ()), reset=Code.CANCEL)
                return
        self.has_headers, self.declared = True, None
        self.encoding = given.get(b"grpc-encoding", b"")
        if ended:
            self._trailers(others)
            return
        call = self.call()
        if call is not None:
            call.answered(headers.read_metadata(others))

    def _trailers(self, fields: list[Field]) -> None:
        given = dict(fields)
        text = given.get(b"grpc-status", b"")
        code = STATUSES.get(text, grpc.StatusCode.UNKNOWN)
        details = headers.read_message(given.get(b"grpc-message", b""))
        if not text:
            code, details = grpc.StatusCode.INTERNAL, "the server ended the call without a status"
        metadata = headers.read_metadata(fields)
        self.connection.peer_ended(self)
        self.over((code, details, metadata), reset=None if self.we_ended else Code.NO_ERROR)


class Call(grpc.aio.Call):
    """What all kinds of calls have in common."""

    def __init__(self, method: Any, metadata: Iterable[tuple[str, str | bytes]] | None, wait_for_ready: bool) -> None:
        self.channel = channel = method.channel
        self.wait_for_ready = wait_for_ready
        self.request: Encoded | None = None
        """The request of a call that has exactly one."""
        self.wrote = self.was_retried = False
        """Whether something was sent that cannot be sent again; whether the call was already retried."""
        self._block: bytes = channel.block_of(method.path) + headers.metadata_block(metadata or ())
        self._encode, self._decode = method.encode, method.decode
        self._loop = channel.loop
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stream: ClientStream | None = None
        self._status: Status | None = None
        self._is_cancelled = False
        self._half_closed = False
        self._initial: headers.Metadata | None = None
        self.awaited: list[asyncio.Future[None]] = []
        """Those who wait for a change of the call."""
        self._callbacks: list[Callable[[Any], None]] = []
        self._sending: asyncio.Task[None] | None = None
        self._answers: list[bytes] = []

    def start(self, requests: Any, is_stream: bool, timeout_s: float | None) -> None:
        """Begin the call with its request, or with an iterable of its requests; None: they are written later."""
        if timeout_s is not None:
            self._deadline_s = self._loop.time() + timeout_s
            self._timer = self._loop.call_later(max(0.0, timeout_s), _late, weakref.ref(self))
        if not is_stream:
            self.request = self._encoded(requests)
            self._half_closed = True
            if self.request is None:
                return
        self.channel.begin(self)
        if is_stream and requests is not None:
            self._sending = self._loop.create_task(self._send_all(requests))

    def block(self) -> bytes:
        """The header block to send now, with the remaining time."""
        block: bytes = self._block + self.channel.call_metadata()
        if self._deadline_s is None:
            return block
        return block + headers.timeout_field(max(1e-9, self._deadline_s - self._loop.time()))

    def begun(self, stream: ClientStream) -> None:
        """Note the stream on which the call was begun."""
        self._stream = stream
        wake_all(self.awaited)

    def answered(self, metadata: headers.Metadata) -> None:
        """Note the metadata in the headers of the answer."""
        self._initial = metadata
        wake_all(self.awaited)

    def not_processed(self, why: str) -> None:
        """Begin the call again, once and if possible, because the server has not processed it; else end it."""
        if self._status is not None:
            return
        if self.was_retried or self.wrote or self._sending is not None:
            self.finish((grpc.StatusCode.UNAVAILABLE, why, ()))
            return
        self.was_retried = True
        self._stream = None
        self.channel.begin(self)

    def finish(self, status: Status) -> None:
        """End the call with a status, unless it has one."""
        if self._status is not None:
            return
        self._status = status
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
        if self._stream is None:
            self.channel.leave(self)
        wake_all(self.awaited)
        for callback in self._callbacks:
            self._loop.call_soon(callback, self)

    async def _ended(self) -> Status:
        while self._status is None:
            await wait_with(self.awaited)
        return self._status

    def _end_locally(self, code: grpc.StatusCode, details: str, reset: Code = Code.CANCEL) -> bool:
        if self._status is not None:
            return False
        status = (code, details, ())
        stream = self._stream
        if stream is not None and not stream.is_closed:
            stream.over(status, reset=reset)
            stream.forget_messages()
        self.finish(status)
        return True

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None and (not stream.is_closed or stream.messages) and not self._loop.is_closed():
            # The garbage collector may run in any thread.
            self._loop.call_soon_threadsafe(stream.dropped)

    # ---- what callers use

    def cancel(self) -> bool:
        """Cancel the call; return False if it was already over."""
        if self._status is None:
            self._is_cancelled = True
        return self._end_locally(grpc.StatusCode.CANCELLED, _CANCELLED)

    def cancelled(self) -> bool:
        """Whether the call ended with CANCELLED."""
        return self._status is not None and self._status[0] is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Whether the call has its status, and nothing is left to read."""
        return self._status is not None and (self._is_cancelled or self._stream is None or not self._stream.messages)

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` with the call as soon as it is over."""
        if self._status is not None:
            self._loop.call_soon(callback, self)
        else:
            self._callbacks.append(callback)

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """The metadata in the answer's headers; empty if the call ended without headers."""
        while self._initial is None and self._status is None:
            await wait_with(self.awaited)
        return grpc.aio.Metadata.from_tuple(self._initial or ())

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """The metadata that came with the status."""
        return grpc.aio.Metadata.from_tuple((await self._ended())[2])

    async def code(self) -> grpc.StatusCode:
        """The status."""
        return (await self._ended())[0]

    async def details(self) -> str:
        """The status's text."""
        return (await self._ended())[1]

    async def wait_for_connection(self) -> None:
        """Wait until the call has a stream.

        Raises:
            grpc.aio.AioRpcError: it will never get one.
        """
        while self._stream is None and self._status is None:
            await wait_with(self.awaited)
        if self._stream is None:
            self._raise()

    def _raise(self) -> NoReturn:
        assert self._status is not None, "the call is over"
        if self._is_cancelled:
            raise asyncio.CancelledError
        raise self._error(self._status)

    def _error(self, status: Status) -> grpc.aio.AioRpcError:
        initial, trailing = (grpc.aio.Metadata.from_tuple(one) for one in (self._initial or (), status[2]))
        return grpc.aio.AioRpcError(status[0], initial, trailing, status[1], status[1])

    def _raise_unless_ok(self) -> None:
        if self._is_cancelled or (self._status is not None and self._status[0] is not grpc.StatusCode.OK):
            self._raise()

    def _encoded(self, message: Any) -> Encoded | None:
        content = encoded(message, self._encode)
        size, most = sum(map(len, content)), self.channel.options.max_send_bytes
        if size > most:
            why = f"the message is larger than max ({size} vs. {most})"
            self._end_locally(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
            return None
        return content

    def _decoded(self, content: bytes) -> Any:
        if self._decode is None:
            return content
        try:
            return self._decode(content)
        except Exception as error:
            why = f"the answer cannot be decoded: {error}"
            self._end_locally(grpc.StatusCode.INTERNAL, why)
            raise self._error((grpc.StatusCode.INTERNAL, why, ())) from error

    async def write(self, request: Any) -> None:
        """Send a request of a stream; return when the socket has accepted it.

        Raises:
            asyncio.InvalidStateError: the call is over, or `done_writing` was called.
            grpc.aio.AioRpcError: the call ended before it could be sent.
        """
        if self._half_closed or (self._stream is not None and self._status is not None):
            raise asyncio.InvalidStateError("RPC already finished." if self._status else "RPC is half closed.")
        content = self._encoded(request)
        try:
            if self._stream is None:
                await self.wait_for_connection()
            stream = self._stream
            if content is None or stream is None:
                self._raise()
            self.wrote = True
            await stream.send(content)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if stream.is_closed:
            self._raise_unless_ok()
            raise asyncio.InvalidStateError("RPC already finished.")

    async def done_writing(self) -> None:
        """End the stream of requests."""
        if not self._half_closed and self._status is None:
            self._half_closed = True
            await self.wait_for_connection()
            stream = self._stream
            if stream is not None and not stream.is_closed:
                self.wrote = True
                stream.connection.outgoing.end(stream, frames.data_head(0, frames.END_STREAM, stream.number))

    async def _send_all(self, requests: Any) -> None:
        try:
            if hasattr(requests, "__aiter__"):
                async for request in requests:
                    await self.write(request)
            else:
                for request in requests:
                    await self.write(request)
            await self.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader of the answers gets the error.
            return
        except Exception:
            _log.debug("the requests of a call failed", exc_info=True)
            self.cancel()


class AnswerCall(Call):
    """A call with one answer, which is awaited."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the answer.

        Raises:
            grpc.aio.AioRpcError: the call failed.
            asyncio.CancelledError: the call was cancelled, or the waiting task, which also cancels the call.
        """
        try:
            while self._status is None:
                yield from wait_with(self.awaited).__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_unless_ok()
        stream = self._stream
        if stream is not None and not self._answers:
            self._answers = list(stream.messages)
            stream.forget_messages()
        if len(self._answers) != 1:
            why = f"the server sent {len(self._answers)} answers where there is one"
            self._status = (grpc.StatusCode.INTERNAL, why, ())
            self._raise()
        return self._decoded(self._answers[0])


class StreamCall(Call):
    """A call whose answers are a stream."""

    async def read(self) -> Any:
        """The next answer; `grpc.aio.EOF` after the last one.

        Raises:
            grpc.aio.AioRpcError: the call failed, and all answers were read.
            asyncio.CancelledError: the call was cancelled.
        """
        try:
            while True:
                stream = self._stream
                content = None if stream is None or self._is_cancelled else await stream.next()
                if content is not None:
                    return self._decoded(content)
                if self._status is not None:
                    break
                # Wait for the status, or for a stream: the first one, or that of a retry.
                await wait_with(self.awaited)
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_unless_ok()
        return grpc.aio.EOF

    def __aiter__(self) -> AsyncIterator[Any]:
        """The answers."""
        return self._all()

    async def _all(self) -> AsyncIterator[Any]:
        while (answer := await self.read()) is not grpc.aio.EOF:
            yield answer


def _late(call: weakref.ref[Call]) -> None:
    found = call()
    if found is not None:
        found._end_locally(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
