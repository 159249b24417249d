"""How a servicer's failure looks to its caller, and how long a call without a deadline may last.

Invariant: a `Refused` becomes its own status; everything else becomes INTERNAL with a request id and its
text stays in this process, bytes that are no message and messages that name too much included; a unary call never
outlives `UNARY_CAP_S`, whatever the caller forgot.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, cast

import grpc
import structlog
from google.protobuf.message import DecodeError

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.rpc import status
from strandline.rpc.request_size import MAX_NAMED, TOO_MUCH, names_too_much

UNARY_CAP_S = 60.0
"""Longest life of a unary call that came without a deadline (RELIABILITY.md#limits)."""

_log = structlog.get_logger("strandline.rpc")

NO_MESSAGE = Refusal(ErrorCode.INVALID_REQUEST, "the bytes are no message of this method; encode the request again")
"""The answer to bytes that do not decode; on a stream its reader gives it, and the stream stays open."""

Unread = Refused
"""What a reader of a stream meets in place of a message that is not looked at: its refusal."""

NO_CORRELATION = 0
"""Correlation id of the answer to an `Unread` message: its own was not looked at either."""

Reported = Callable[[str, Refusal], None]
"""Called with each refusal of a whole call, and the method's name."""

Handler = Any
"""One of gRPC's RpcMethodHandlers; types-grpcio cannot spell the four kinds."""


class RefusalInterceptor(grpc.aio.ServerInterceptor):
    """Maps refusals, hides the rest, caps unary calls. One per server, first in its list.

    The interceptors behind it are asked for each method's handler once, when the method is called first.

    ``name`` begins every request id, so that a reader of the node's log finds the line a caller quotes.
    ``reported`` is called with each refusal.
    """

    def __init__(
        self, name: str, *, unary_cap_s: float = UNARY_CAP_S, reported: Reported = lambda _method, _why: None
    ) -> None:
        self._name = name
        self._reported = reported
        self._unary_cap_s = unary_cap_s
        self._ids = itertools.count(1)
        # By method: only methods that exist get here, so it is no larger than the contract.
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wrap the method's handler; an unknown method stays UNIMPLEMENTED."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._wrapped[method] = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Handler) -> Handler:
        handler = handler._replace(
            request_deserializer=_kept(handler.request_deserializer),
            response_serializer=_unless_encoded(handler.response_serializer),
        )
        if handler.unary_unary is not None:
            return handler._replace(unary_unary=self._unary(method, handler.unary_unary))
        if handler.unary_stream is not None:
            return handler._replace(unary_stream=self._stream(method, handler.unary_stream))
        return handler._replace(stream_stream=self._stream(method, handler.stream_stream))

    def _unary(self, method: str, inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                _raise_kept(request)
                if context.time_remaining() is not None:
                    return await inner(request, context)
                async with asyncio.timeout(self._unary_cap_s):
                    return await inner(request, context)
            except Exception as error:
                await self._fail(method, error, context)

        return guarded

    def _stream(self, method: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(inner):
            return self._generator(method, inner)

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            try:
                _raise_kept(request)
                await inner(request, context)
            except Exception as error:
                if _is_peer_gone(error):
                    _log.info("a stream's peer is gone", method=method)
                    return
                await self._fail(method, error, context)

        return guarded

    def _generator(self, method: str, inner: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            try:
                _raise_kept(request)
                async for answer in inner(request, context):
                    yield answer
            except Exception as error:
                await self._fail(method, error, context)

        return guarded

    async def _fail(self, method: str, error: Exception, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            # A stream's pump runs its parts in a TaskGroup; the failure of one part is the stream's own.
            error = error.exceptions[0]
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, Refused):
            self._reported(method, error.refusal)
            await abort(context, error.refusal)
        if isinstance(error, TimeoutError):
            refusal = Refusal(ErrorCode.REQUEST_TIMED_OUT, "the call had no deadline and exceeded the server's cap")
            await abort(context, refusal)
        request_id = f"{self._name}-{next(self._ids)}"
        _log.error("unexpected failure in a call", method=method, request_id=request_id, exc_info=error)
        refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"internal failure; request id {request_id}")
        await abort(context, refusal, request_id=request_id)


def _is_peer_gone(error: BaseException) -> bool:
    """Whether a stream failed only because its peer went away, or this server stops: no caller is left to answer."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_peer_gone, error.exceptions))
    own = isinstance(error, grpc.aio.AbortError | grpc.aio.UsageError)
    return isinstance(error, grpc.aio.BaseError) and not own


def _kept(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """``decode`` that returns its failure: raised where gRPC decodes, its text would reach the caller.

    The reader of a stream's messages gets an `Unread` in place of the message.
    """

    def decode_or_keep(content: bytes) -> Any:
        try:
            message = decode(content)
        except DecodeError:
            return Unread.of(NO_MESSAGE)
        # An entry takes a byte at least, so most messages need no count.
        if len(content) > MAX_NAMED and names_too_much(message):
            return Unread.of(TOO_MUCH)
        return message

    return decode_or_keep


def _unless_encoded(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """``encode`` for messages; what a handler encoded itself is sent as it is (`rpc.fetch_answers`)."""
    return lambda answer: answer if type(answer) is bytes else encode(answer)


def _raise_kept(request: Any) -> None:
    if isinstance(request, Unread):
        raise request


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], refusal: Refusal, *, request_id: str | None = None
) -> NoReturn:
    """End the call with the refusal's status and ErrorInfo."""
    extra = {"request_id": request_id} if request_id else None
    trailing = status.trailing_details(refusal, extra=extra)
    await context.abort(status.status_code(refusal), str(refusal), cast(Any, trailing))
    raise AssertionError("abort always raises")
