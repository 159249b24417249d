"""One call at a server: from its headers to its status, with the context for its handler.

Invariant: a call gets exactly one status, from whatever ends it first: its handler, its deadline, a broken rule, or the
server's stop. A call counts as open until its task has ended, even if the peer has reset it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, NoReturn, Protocol

import grpc

from strandline.transport import frames, headers
from strandline.transport.frames import Code
from strandline.transport.options import AuthContext
from strandline.transport.outgoing import Encoded
from strandline.transport.stream import Carrier, Stream, encoded

_log = logging.getLogger("strandline.transport")

_FINISHED = "RPC already finished."
Handler = Any
"""One of gRPC's RpcMethodHandlers."""


class HandlerCallDetails(grpc.HandlerCallDetails):
    """The details of a call for interceptors and generic handlers."""

    __slots__ = ("invocation_metadata", "method")

    def __init__(self, method: str, invocation_metadata: headers.Metadata) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


class ServerCarrier(Carrier, Protocol):
    """A server's connection."""

    peer: str
    auth_context: AuthContext
    given_up: int

    @property
    def stops(self) -> bool:
        """Whether the server is stopping."""


class ServerStream(Stream):
    """The stream of a call."""

    __slots__ = ("context", "is_answered", "is_given_up", "refusal")

    def __init__(self, connection: ServerCarrier, number: int) -> None:
        super().__init__(connection, number)
        self.context: Context | None = None
        self.is_answered = False
        """Whether the response's headers were sent."""
        self.is_given_up = False
        """Whether it was reset, or its deadline passed, while its handler ran."""
        self.refusal: tuple[int, bytes] | None = None
        """Status and body for a request that is not gRPC; sent after the request's end, as HTTP clients expect."""

    def end_of_data(self) -> None:
        """See `Stream.end_of_data`; also sends a refusal that has waited for the end."""
        super().end_of_data()
        self.refuse()

    def answer(self, block: bytes = b"") -> None:
        """Send the response's headers, once."""
        if not self.is_answered:
            self.is_answered = True
            connection = self.connection
            connection.outgoing.headers(connection.block_of(headers.RESPONSE + block), 0, self.number)

    def sent_end(self) -> None:
        """Close the stream, because the status is written; a peer that still sends is asked to stop."""
        super().sent_end()
        if not self.peer_ended:
            self.connection.outgoing.control(frames.reset(self.number, Code.NO_ERROR))
        self.connection.forget(self, by_peer=self.peer_ended)
        self.close()

    def close(self) -> None:
        """See `Stream.close`; also drops the requests that were not read, as no handler will."""
        super().close()
        self.forget_messages()

    def end(self, code: grpc.StatusCode, details: str, metadata: headers.Metadata = ()) -> None:
        """Send the status, after all messages."""
        connection = self.connection
        block = headers.trailers_block(code.value[0], details, metadata, connection.peer_header_bytes)
        if not self.is_answered:
            self.is_answered = True
            block = headers.RESPONSE + block
        most = connection.outgoing.largest_frame
        ending = frames.header_frames(connection.block_of(block), frames.END_STREAM, self.number, most)
        connection.outgoing.end(self, ending)

    def refuse(self) -> None:
        """Send `refusal`, if there is one, as an HTTP answer to a request that is not gRPC."""
        if self.refusal is None or self.is_closed:
            return
        (status, body), self.refusal = self.refusal, None
        fields = (
            (b":status", b"%d" % status),
            (b"content-type", b"text/plain"),
            (b"content-length", b"%d" % len(body)),
        )
        connection = self.connection
        connection.outgoing.headers(
            connection.block_of(b"".join(headers.literal(*one) for one in fields)), 0, self.number
        )
        self.is_answered = True
        connection.outgoing.plain(self, body)


class Context(grpc.aio.ServicerContext[Any, Any]):
    """The context of one call (`grpc.aio.ServicerContext`)."""

    def __init__(self, stream: ServerStream, method: str, metadata: headers.Metadata, timeout_s: float | None) -> None:
        self._stream = stream
        self._connection: ServerCarrier = stream.connection  # type: ignore[assignment]  # a server's stream
        self._method = method
        self._metadata = metadata
        self._loop = stream.connection.loop
        self._deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        self._timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._late)
        self._decode: Callable[[bytes], Any] | None = None
        self._encode: Callable[[Any], bytes] | None = None
        self._trailing: headers.Metadata = ()
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._abort: grpc.aio.AbortError | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._is_cancelled = False
        self.is_over = False
        """Whether the status was decided, or the caller is gone."""
        self.task: asyncio.Task[None] | None = None

    # ---- how it is run

    async def run(self, find: Callable[[grpc.HandlerCallDetails], Any]) -> None:
        """Find the handler and let it answer."""
        try:
            handler = await find(HandlerCallDetails(self._method, self._metadata))
            if handler is None:
                self.finish(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            else:
                await self._handle(handler)
        except grpc.aio.AbortError:
            if not self.is_over:
                raise
        except asyncio.CancelledError:
            stops = self._connection.stops
            code = grpc.StatusCode.UNAVAILABLE if stops else grpc.StatusCode.CANCELLED
            self.finish(code, "the server stops" if stops else "the handler was cancelled")
        except Exception as error:
            if not self.is_over:
                _log.exception("unexpected failure in %s", self._method)
                self.finish(self._code or grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")
        finally:
            if self._abort is not None and not self.is_over:
                self.finish(grpc.StatusCode.UNKNOWN, "the handler's abort was lost")

    async def _handle(self, handler: Handler) -> None:
        self._decode, self._encode = handler.request_deserializer, handler.response_serializer
        request: Any
        if handler.request_streaming:
            request = self._requests()
        else:
            request = await self.read()
            if request is grpc.aio.EOF:
                self.finish(grpc.StatusCode.INTERNAL, "the call has no request")
                return
        act = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        answer = act(request, self)
        if not handler.response_streaming:
            self._answer(await answer)
            return
        if hasattr(answer, "__aiter__"):
            try:
                async for message in answer:
                    await self.write(message)
            finally:
                if hasattr(answer, "aclose"):
                    await answer.aclose()
        else:
            await answer
        self.finish(self._code or grpc.StatusCode.OK, self._details)

    def _answer(self, message: Any) -> None:
        code = self._code or grpc.StatusCode.OK
        if code is grpc.StatusCode.OK and not self.is_over:
            if (content := self._encoded(message)) is None:
                return
            self._stream.answer()
            self._stream.connection.outgoing.message(self._stream, content)
        self.finish(code, self._details)

    async def _requests(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    def _encoded(self, message: Any) -> Encoded | None:
        """A message's bytes; if there are too many to send, end the call and return None."""
        content = encoded(message, self._encode)
        size, most = sum(map(len, content)), self._connection.options.max_send_bytes
        if size > most:
            self.finish(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the answer is larger than max ({size} vs. {most})")
            return None
        return content

    def finish(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call with a status, if it has none yet."""
        if self.is_over:
            return
        self._over()
        if not self._stream.is_closed:
            self._stream.end(code, details, self._trailing)

    def _over(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def broken(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with a status and cancel its handler; messages that still wait are not sent."""
        stream = self._stream
        if self.is_over or stream.is_closed:
            return
        if stream.at:
            # A message is half sent, and no status can follow it.
            self._over()
            stream.connection.outgoing.control(frames.reset(stream.number, Code.CANCEL))
            stream.connection.forget(stream, by_peer=False)
            stream.close()
        else:
            stream.connection.outgoing.forget(stream)
            stream.drained()
            self.finish(code, details)
        if self.task is not None:
            self._connection.given_up += not stream.is_given_up
            stream.is_given_up = True
        self._cancel()

    def _late(self) -> None:
        self.broken(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def peer_gone(self) -> None:
        """Cancel the handler, because the peer reset the stream or its connection is over."""
        self._is_cancelled = not self.is_over
        self._over()
        self._cancel()

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def ended(self) -> None:
        """Call the callbacks, because the task is over."""
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:
                _log.exception("a callback of %s failed", self._method)

    # ---- what handlers use

    async def read(self) -> Any:
        """The next request; `grpc.aio.EOF` after the last one."""
        if self.is_over:
            self._raise_over()
        content = await self._stream.next()
        if content is None:
            return grpc.aio.EOF
        return content if self._decode is None else self._decode(content)

    async def write(self, message: Any) -> None:
        """Send an answer of a stream; return when the socket has accepted it.

        Raises:
            grpc.aio.UsageError: the call already has its status.
            grpc.aio.InternalError: the peer is gone, or the message is too large.
        """
        if self.is_over:
            self._raise_over()
        content = self._encoded(message)
        if content is None:
            raise grpc.aio.InternalError("the answer is larger than a message may be")
        stream = self._stream
        if not stream.is_answered:
            stream.answer()
        await stream.send(content)
        if stream.is_closed:
            self._raise_over()

    def _raise_over(self) -> NoReturn:
        if self._abort is not None:
            raise self._abort
        if self._is_cancelled or self._stream.is_closed:
            raise grpc.aio.InternalError("the peer is gone")
        raise grpc.aio.UsageError(_FINISHED)

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send the response's headers with this metadata.

        Raises:
            grpc.aio.UsageError: the headers were already sent.
        """
        if self._stream.is_answered:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        self._stream.answer(headers.metadata_block(initial_metadata))

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """End the call with a status; always raises."""
        if self._abort is not None:
            raise grpc.aio.UsageError("Abort already called!")
        if self.is_over:
            self._raise_over()
        if code is grpc.StatusCode.OK:
            raise grpc.aio.UsageError("abort() called with StatusCode.OK")
        if trailing_metadata:
            self.set_trailing_metadata(trailing_metadata)
        self._abort = grpc.aio.AbortError("Locally aborted.")
        self.finish(code, details)
        raise self._abort

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Set the metadata that is sent with the status.

        Raises:
            ValueError: gRPC does not allow a key or a value in it. Later it would take the place of the status.
        """
        given = tuple(trailing_metadata)
        headers.metadata_block(given)
        self._trailing = given

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status of a handler that returns or fails; generated servicers do for what they do not implement."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text of that status."""
        self._details = details

    def invocation_metadata(self) -> Any:
        """The metadata that the caller sent."""
        return self._metadata

    def peer(self) -> str:
        """``ipv4:host:port`` or ``ipv6:[host]:port``."""
        return self._connection.peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The properties of the peer's certificate; empty without TLS."""
        return self._connection.auth_context

    def time_remaining(self) -> Any:
        """Seconds until the deadline; None without one."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` with the context when the call is over."""
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        """Whether the peer cancelled the call."""
        return self._is_cancelled

    def done(self) -> bool:
        """Whether the call has its status, or its peer is gone."""
        return self.is_over

    # gRPC's base class requires these; identities come from `auth_context`, and answers are never compressed.
    peer_identities: Any = None
    peer_identity_key: Any = None
    abort_with_status: Any = None
    set_compression: Any = None
    disable_next_message_compression: Any = None
