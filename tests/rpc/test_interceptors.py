"""What a caller sees of a failure inside a server, and what it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from scripted_service import serving

from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.rpc.channels import call, open_channel
from strandline.rpc.status import refusal_of
from strandline.v1 import leader_service_pb2 as pb

SECRET = "/var/lib/strandline/secret-path"


async def test_an_unmapped_exception_reaches_the_caller_without_its_text() -> None:
    """An unexpected exception ends a call with INTERNAL and a request id, its text stays inside."""

    async def broken(request: Any, context: Any) -> None:
        raise ValueError(SECRET)

    async with serving(Produce=broken) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(pb.ProduceRequest(), timeout=5)

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in repr(caught.value) and "ValueError" not in repr(caught.value)
    assert "request id test-1" in str(caught.value.details())


async def test_an_unmapped_exception_on_a_stream_is_hidden_too() -> None:
    """A stream's handler is guarded like a unary one."""

    async def broken(requests: Any, context: Any) -> None:
        raise KeyError(SECRET)

    async with serving(ProduceStream=broken) as stub:
        stream = stub.ProduceStream()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in repr(caught.value)


async def test_a_refusal_keeps_its_number_sentence_and_outcome() -> None:
    """A Refused raised by a handler is read back as the same rejection."""

    async def refusing(request: Any, context: Any) -> None:
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many wait", Outcome.NOT_APPENDED)

    async with serving(Produce=refusing) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(pb.ProduceRequest(), timeout=5)
        refusal = refusal_of(caught.value)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (refusal.code, refusal.message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many wait")
    assert refusal.outcome is Outcome.NOT_APPENDED


async def test_each_refusal_of_a_call_is_reported() -> None:
    """Under its method, so that it is counted and logged; a defect is not, for it has a line of its own."""
    reported: list[tuple[str, ErrorCode]] = []

    async def refusing(request: Any, context: Any) -> None:
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many wait", Outcome.NOT_APPENDED)

    async def broken(request: Any, context: Any) -> None:
        raise ValueError(SECRET)

    async with serving(
        reported=lambda method, why: reported.append((method, why.code)), Produce=refusing, Fetch=broken
    ) as stub:
        for call_ in (stub.Produce(pb.ProduceRequest(), timeout=5), stub.Fetch(pb.FetchRequest(), timeout=5)):
            with pytest.raises(grpc.aio.AioRpcError):
                await call_

    assert reported == [("/strandline.v1.LeaderService/Produce", ErrorCode.THROTTLING_QUOTA_EXCEEDED)]


async def test_a_unary_call_without_a_deadline_is_ended_by_the_servers_cap() -> None:
    """A handler that never answers a call without a deadline is ended at the cap, with DEADLINE_EXCEEDED."""
    ended = asyncio.Event()

    async def endless(request: Any, context: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(unary_cap_s=0.05, Produce=endless) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(pb.ProduceRequest())
        await asyncio.wait_for(ended.wait(), 5)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_unary_call_with_a_deadline_is_not_capped() -> None:
    """The cap applies only to calls without a deadline."""

    async def slow(request: Any, context: Any) -> pb.ProduceResponse:
        await asyncio.sleep(0.15)
        return pb.ProduceResponse()

    async with serving(unary_cap_s=0.05, Produce=slow) as stub:
        answer = await stub.Produce(pb.ProduceRequest(), timeout=5)

    assert answer == pb.ProduceResponse()


async def test_an_unknown_method_is_unimplemented() -> None:
    """A method that is not served passes the interceptor and is UNIMPLEMENTED."""

    async def echo(request: Any, context: Any) -> pb.ProduceResponse:
        return pb.ProduceResponse()

    async with serving(Produce=echo) as stub, open_channel(stub.endpoint) as channel:
        method = channel.unary_unary("/strandline.v1.LeaderService/NoSuchMethod")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", timeout=5)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_call_through_channels_comes_back_as_a_refusal() -> None:
    """`call` turns a failed RPC into a Refused with the server's own code."""

    async def refusing(request: Any, context: Any) -> None:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, "cluster_id 'x' is not this cluster's")

    async with serving(Produce=refusing) as stub:
        with pytest.raises(Refused) as caught:
            await call(stub.Produce, pb.ProduceRequest(), deadline_ms=5_000)

    assert caught.value.refusal.code is ErrorCode.INCONSISTENT_CLUSTER_ID
