"""How interceptors wrap handlers: each method's once, and mostly by a check in front of it.

Invariant: an unknown method stays UNIMPLEMENTED, and what wraps a handler is of its kind.
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
    """An interceptor that is asked for each method's handler once, when the method is called first, as those behind
    it."""

    def __init__(self) -> None:
        # By method: only methods that exist get here, so it is no larger than the contract.
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
        """The handler, wrapped or as it is."""


def before(inner: Callable[..., Any], check: Callable[[Any, Context], tuple[Any, Context]]) -> Callable[..., Any]:
    """``inner`` with ``check`` before it, of the same kind: gRPC asks whether a handler generates its answers."""
    if inspect.isasyncgenfunction(inner):

        async def generating(request: Any, context: Context) -> AsyncIterator[Any]:
            async for answer in inner(*check(request, context)):
                yield answer

        return generating

    async def answering(request: Any, context: Context) -> Any:
        return await inner(*check(request, context))

    return answering
