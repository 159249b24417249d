"""Turns a servicer's failures into statuses for the caller, and limits calls that have no deadline.

Invariant: a `Refused` becomes its own status, undecodable bytes and too large requests included; every other exception
becomes INTERNAL with a request id, and its text stays in this process. A unary call never outlives `UNARY_CAP_S`, even
if the caller set no deadline.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Any, NamedTuple, NoReturn, cast

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.rpc import status
from strandline.rpc.wire_fields import WithRecords

# ---- wrapping
# How interceptors wrap handlers: once per method, in most cases with a check before the handler.
#
# Invariant: an unknown method stays UNIMPLEMENTED, and a wrapped handler is of the same kind as the original.

Handler = Any
Context = Any
"""gRPC's RpcMethodHandlers and contexts; types-grpcio cannot spell the four kinds."""


class Wrapping(grpc.aio.ServerInterceptor):
    """An interceptor that wraps each method's handler once, at the method's first call; the interceptors behind it are
    asked only then."""

    def __init__(self) -> None:
        # Only existing methods are stored, so it is bounded by the contract.
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the method's handler as `wrap` made it."""
        method = str(handler_call_details.method)
        if method not in self._wrapped:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._wrapped[method] = self.wrap(method, handler)
        return self._wrapped[method]

    @abstractmethod
    def wrap(self, method: str, handler: Handler) -> Handler:
        """Return the handler, wrapped or unchanged."""


def before(inner: Callable[..., Any], check: Callable[[Any, Context], tuple[Any, Context]]) -> Callable[..., Any]:
    """``inner`` with ``check`` before it. The result is a generator if ``inner`` is, since gRPC tells them apart."""
    if inspect.isasyncgenfunction(inner):

        async def generating(request: Any, context: Context) -> AsyncIterator[Any]:
            async for answer in inner(*check(request, context)):
                yield answer

        return generating

    async def answering(request: Any, context: Context) -> Any:
        return await inner(*check(request, context))

    return answering


# ---- request_size
# How many entries one request may have: partitions, topics, records and settings together.
#
# Invariant: a handler's request has at most `MAX_NAMED` entries. Otherwise a message of two-byte entries would cost
# hundreds of times its size, in memory and in time on the one event loop. An answer to that many entries still fits
# into one message.

MAX_NAMED = 100_000
"""Entries of repeated fields in one request, at all depths; above what a cluster of one controller can have."""

TOO_MUCH = Refusal(
    ErrorCode.INVALID_REQUEST,
    f"the request names more than {MAX_NAMED} partitions, records or other entries; send several smaller ones",
    Outcome.NOT_APPENDED,
)


class _Plan(NamedTuple):
    """For messages of one type: the fields whose entries are counted, and those whose messages may hold more."""

    counted: tuple[str, ...]
    lists: tuple[str, ...]
    singles: tuple[str, ...]


def names_too_much(message: Message, limit: int = MAX_NAMED) -> bool:
    """Whether the repeated fields of ``message`` have more than ``limit`` entries together."""
    return _counted(message, limit) > limit


def _counted(message: Message, limit: int) -> int:
    """The number of entries, or any number above ``limit``."""
    plan = _plan(message.DESCRIPTOR)
    total = sum(len(getattr(message, name)) for name in plan.counted)
    for name in plan.singles:
        if total <= limit:
            total += _counted(getattr(message, name), limit - total)
    for name in plan.lists:
        for child in getattr(message, name) if total <= limit else ():
            total += _counted(child, limit - total)
            if total > limit:
                break
    return total


@cache
def _plan(kind: Any) -> _Plan:
    repeated = [field for field in kind.fields if field.is_repeated]
    deep = [field for field in kind.fields if _is_deep(field)]
    return _Plan(
        tuple(field.name for field in repeated),
        tuple(field.name for field in deep if field.is_repeated),
        tuple(field.name for field in deep if not field.is_repeated),
    )


def _is_deep(field: Any) -> bool:
    """Whether messages in this field may have repeated fields themselves; no message of ours contains its own type."""
    kind = field.message_type
    if kind is None or kind.GetOptions().map_entry:
        return False
    return any(child.is_repeated or _is_deep(child) for child in kind.fields)


UNARY_CAP_S = 60.0
"""Longest life of a unary call that came without a deadline (RELIABILITY.md#limits)."""

_log = structlog.get_logger("strandline.rpc")

NO_MESSAGE = Refusal(ErrorCode.INVALID_REQUEST, "the bytes are no message of this method; encode the request again")
"""The answer to bytes that do not decode; on a stream the handler sends it, and the stream stays open."""

Unread = Refused
"""Takes the place of a message that was not read, for the reader of a stream: the refusal to answer it with."""

NO_CORRELATION = 0
"""Correlation id of the answer to an `Unread` message, whose own id was not read."""

Reported = Callable[[str, Refusal], None]
"""Called with the method's name and the refusal, for each call refused as a whole."""


class RefusalInterceptor(Wrapping):
    """Maps refusals to statuses, hides other failures, limits unary calls. Each server has one, first in its list.

    ``name`` begins every request id, so that the line of the log can be found by the id that a caller quotes.
    ``reported`` is called with each refusal.
    """

    def __init__(
        self, name: str, *, unary_cap_s: float = UNARY_CAP_S, reported: Reported = lambda _method, _why: None
    ) -> None:
        super().__init__()
        self._name = name
        self._reported = reported
        self._unary_cap_s = unary_cap_s
        self._ids = itertools.count(1)

    def wrap(self, method: str, handler: Handler) -> Handler:
        """See `Wrapping`."""
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
            # A stream runs its parts in a TaskGroup; the failure of one part is the failure of the stream.
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
    """Whether a stream failed only because its peer is gone or this server stops, so that no caller waits."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_peer_gone, error.exceptions))
    return isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.AbortError | grpc.aio.UsageError)


def _kept(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """``decode``, but a failure is returned as an `Unread` in place of the message.

    If it were raised where gRPC decodes, its text would reach the caller.
    """

    def decode_or_keep(content: bytes) -> Any:
        try:
            message = decode(content)
        except DecodeError:
            return Unread.of(NO_MESSAGE)
        # An entry takes at least one byte, so most messages are too short to need counting.
        if len(content) > MAX_NAMED and names_too_much(
            message.message if isinstance(message, WithRecords) else message
        ):
            return Unread.of(TOO_MUCH)
        return message

    return decode_or_keep


def _unless_encoded(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """``encode`` for messages; what a handler encoded itself, as bytes or in parts, is sent as it is."""

    def encode_or_join(answer: Any) -> bytes:
        if type(answer) is list:
            return b"".join(answer)
        return answer if type(answer) is bytes else encode(answer)

    return encode_or_join


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


# ---- before_registration
# What a process answers before it has registered with its cluster: its metadata and health, and nothing else.
#
# Invariant: until the process is registered, only handlers of ``open_services`` receive requests.


class BeforeRegistration(Wrapping):
    """Refuses calls of other services until ``is_registered``."""

    def __init__(self, open_services: frozenset[str], is_registered: Callable[[], bool]) -> None:
        super().__init__()
        self._open_services = open_services
        self._is_registered = is_registered

    def wrap(self, method: str, handler: Handler) -> Handler:
        """See `Wrapping`."""
        if method.split("/")[1] in self._open_services:
            return handler
        if handler.unary_unary is not None:
            return handler._replace(unary_unary=before(handler.unary_unary, self._check))
        if handler.unary_stream is not None:
            return handler._replace(unary_stream=before(handler.unary_stream, self._check))
        return handler._replace(stream_stream=before(handler.stream_stream, self._check))

    def _check(self, request: Any, context: Context) -> tuple[Any, Context]:
        # Checked at each call, because the outer interceptors cache the handler that `wrap` returns.
        if not self._is_registered():
            message = "the node is not registered with its controller yet; ask another node, or again a little later"
            raise Refused(ErrorCode.NETWORK_EXCEPTION, message, Outcome.NOT_APPENDED)
        return request, context
