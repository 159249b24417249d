"""The gate of a process that is not registered yet: what passes, what is refused, and from when on nothing is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.rpc.interceptors import BeforeRegistration

OPEN, CLOSED = "strandline.v1.MetadataService", "strandline.v1.LeaderService"


class Gate:
    """A gate, and whether its process is registered."""

    def __init__(self) -> None:
        self.is_registered = False
        self._gate = BeforeRegistration(frozenset({OPEN}), lambda: self.is_registered)

    async def handler_of(self, service: str, handler: Any) -> Any:
        """The handler that gRPC is given for a method of ``service``."""

        async def continuation(_: object) -> Any:
            return handler

        details: Any = SimpleNamespace(method=f"/{service}/Method")
        return await self._gate.intercept_service(continuation, details)


async def answer(request: object, _: object) -> object:
    """A unary handler, or one of a stream that writes for itself."""
    return request


async def generate(request: object, _: object) -> AsyncIterator[object]:
    """A handler that generates its answers."""
    yield request


async def test_a_call_is_refused_until_the_process_is_registered() -> None:
    """The caller learns that nothing was appended, and that it may ask again."""
    gate = Gate()
    handler = await gate.handler_of(CLOSED, grpc.unary_unary_rpc_method_handler(answer))

    with pytest.raises(Refused) as refused:
        await handler.unary_unary("asked", None)

    refusal = refused.value.refusal
    assert (refusal.code, refusal.outcome, refusal.retriable) == (
        ErrorCode.NETWORK_EXCEPTION,
        Outcome.NOT_APPENDED,
        True,
    )


async def test_the_same_handler_answers_once_the_process_is_registered() -> None:
    """Each call asks, because other interceptors keep a handler that they were given earlier."""
    gate = Gate()
    handler = await gate.handler_of(CLOSED, grpc.unary_unary_rpc_method_handler(answer))
    gate.is_registered = True

    assert await handler.unary_unary("asked", None) == "asked"


async def test_an_open_service_passes_as_it_is() -> None:
    """What serves metadata is not wrapped."""
    given = grpc.unary_unary_rpc_method_handler(answer)

    assert await Gate().handler_of(OPEN, given) is given


async def test_a_method_that_nobody_serves_stays_unknown() -> None:
    """gRPC answers UNIMPLEMENTED, by which clients tell an earlier release."""
    assert await Gate().handler_of(CLOSED, None) is None


async def test_a_generated_stream_is_refused_before_its_first_answer() -> None:
    """It stays a generator, which is how gRPC knows that it streams."""
    gate = Gate()
    handler = await gate.handler_of(CLOSED, grpc.unary_stream_rpc_method_handler(generate))

    with pytest.raises(Refused):
        await anext(handler.unary_stream("asked", None))

    gate.is_registered = True

    assert await anext(handler.unary_stream("asked", None)) == "asked"


async def test_a_stream_both_ways_is_refused() -> None:
    """Produce and fetch streams are of this kind."""
    gate = Gate()
    handler = await gate.handler_of(CLOSED, grpc.stream_stream_rpc_method_handler(answer))

    with pytest.raises(Refused):
        await handler.stream_stream("asked", None)

    gate.is_registered = True

    assert await handler.stream_stream("asked", None) == "asked"
