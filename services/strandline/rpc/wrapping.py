"""How interceptors wrap handlers: once per method, in most cases with a check before the handler.

Invariant: an unknown method stays UNIMPLEMENTED, and a wrapped handler is of the same kind as the original.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

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
