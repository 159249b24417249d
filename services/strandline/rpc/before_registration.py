"""What a process answers before it takes part in its cluster: who it knows, and nothing else.

Invariant: until the process is registered no handler of a service that is not in ``open_services`` meets a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.rpc.authorization import before

Handler = Any
Context = Any


class BeforeRegistration(grpc.aio.ServerInterceptor):
    """Refuses calls of other services until ``is_registered``."""

    def __init__(self, open_services: frozenset[str], is_registered: Callable[[], bool]) -> None:
        self._open_services = open_services
        self._is_registered = is_registered

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wrap the method's handler; an unknown method stays UNIMPLEMENTED."""
        handler = await continuation(handler_call_details)
        service = str(handler_call_details.method).split("/")[1]
        if handler is None or service in self._open_services:
            return handler
        if handler.unary_unary is not None:
            return handler._replace(unary_unary=before(handler.unary_unary, self._check))
        if handler.unary_stream is not None:
            return handler._replace(unary_stream=before(handler.unary_stream, self._check))
        return handler._replace(stream_stream=before(handler.stream_stream, self._check))

    def _check(self, request: Any, context: Context) -> tuple[Any, Context]:
        # At each call, because the interceptors around this one keep what they were given.
        if not self._is_registered():
            message = "the node is not registered with its controller yet; ask another node, or again a little later"
            raise Refused(ErrorCode.NETWORK_EXCEPTION, message, Outcome.NOT_APPENDED)
        return request, context
