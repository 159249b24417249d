"""Rejections on the wire: through a gRPC status, by number, and what a caller sees of a failure inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from scripted_service import serving

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.messages import LeaderHint
from strandline.core.types import LeaderEpoch, NodeId
from strandline.rpc.channels import call, open_channel
from strandline.rpc.convert.errors import outcome_to_wire, read_error, wants_leader, write_error, write_leader
from strandline.rpc.status import DETAILS_KEY, refusal_of, status_code, trailing_details
from strandline.v1 import leader_service_pb2 as pb, partition_pb2


def _failed(refusal: Refusal) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*trailing_details(refusal))
    return grpc.aio.AioRpcError(status_code(refusal), grpc.aio.Metadata(), trailing, str(refusal))


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_refusal_is_read_back_as_itself(code: ErrorCode) -> None:
    """Code, message, outcome and the wrong field come back for every status they map to."""
    refusal = Refusal(code, "one sentence", Outcome.MAY_APPEAR, "cluster_id")

    assert refusal_of(_failed(refusal)) == refusal


def test_rule_and_remedy_of_a_refusal_reach_programs() -> None:
    """A rule and a remedy of the rejection's own come back beside the field."""
    refusal = Refusal(
        ErrorCode.INVALID_REQUEST, "one sentence", field="page_size", rule="at least 0", remedy="leave it out"
    )

    assert refusal_of(_failed(refusal)) == refusal


def test_what_does_not_exist_is_reported_as_not_found() -> None:
    """An unknown name is NOT_FOUND, so that a client does not try to correct its request."""
    assert status_code(Refusal(ErrorCode.RESOURCE_NOT_FOUND)) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.UNAVAILABLE, ErrorCode.NETWORK_EXCEPTION),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorCode.REQUEST_TIMED_OUT),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (grpc.StatusCode.DATA_LOSS, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_status_without_details_is_read_by_its_code(status: grpc.StatusCode, code: ErrorCode) -> None:
    """gRPC's own statuses become rejections too, and those of a proxy, whatever it calls details."""
    for trailing in (grpc.aio.Metadata(), grpc.aio.Metadata((DETAILS_KEY, b"\xff"))):
        error = grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailing, "words")

        assert refusal_of(error) == Refusal(code, "words")


def test_a_write_to_a_stream_that_ended_is_a_lost_connection() -> None:
    """grpcio replaces the server's status by one of its own (grpc #36066); nothing is known of the reason then."""
    words = "Internal error from Core"
    error = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), words)

    assert refusal_of(error).code is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_a_refusal_is_read_as_it_was_written(outcome: Outcome | None) -> None:
    """Its number, its sentence and its outcome, whatever its number is."""
    refusals = [Refusal(code, "why", outcome) for code in ErrorCode if code is not ErrorCode.NONE]
    rows = [pb.ProducePartitionResponse(outcome=outcome_to_wire(outcome)) for _ in refusals]
    for row, refusal in zip(rows, refusals, strict=True):
        write_error(row, refusal)

    assert [read_error(row, row.outcome) for row in rows] == refusals


def test_no_refusal_is_number_0_without_a_sentence() -> None:
    """Success leaves both fields at their defaults."""
    row = pb.ProducePartitionResponse()
    write_error(row, None)

    assert row == pb.ProducePartitionResponse()
    assert read_error(row) is None


@pytest.mark.parametrize("number", [9_999, -7])
def test_a_number_that_is_not_known_is_never_success(number: int) -> None:
    """A newer peer's error is UNKNOWN_SERVER_ERROR, with its number and its sentence."""
    row = pb.ProducePartitionResponse(error_message="NEWER: something new")
    row.error_code = number  # type: ignore[assignment]
    refusal = read_error(row)

    assert refusal is not None and refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert f"{number}" in refusal.message and "something new" in refusal.message


def test_only_a_caller_that_should_go_there_is_told_of_the_leader() -> None:
    """KIP-951: the leader is named beside two errors, and beside no other."""
    hinted = {code for code in ErrorCode if wants_leader(Refusal(code))}

    assert hinted == {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


def test_a_partition_without_a_leader_is_not_led_by_node_0() -> None:
    """Its epoch is named, its leader is absent."""
    nobody, somebody = partition_pb2.CurrentLeader(), partition_pb2.CurrentLeader()
    write_leader(nobody, LeaderHint(None, LeaderEpoch(4)))
    write_leader(somebody, LeaderHint(NodeId(0), LeaderEpoch(4)))

    assert (nobody.HasField("leader_id"), nobody.leader_epoch) == (False, 4)
    assert (somebody.HasField("leader_id"), somebody.leader_id) == (True, 0)


SECRET = "/var/lib/strandline/secret-path"


async def test_an_unmapped_exception_reaches_the_caller_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected exception ends a call with INTERNAL and a request id, its text stays inside: the log has both."""

    async def broken(request: Any, context: Any) -> None:
        raise ValueError(SECRET)

    async with serving(Produce=broken) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(pb.ProduceRequest(), timeout=5)
    logged = "".join(capsys.readouterr())

    assert (caught.value.code(), refusal_of(caught.value).code) == (
        grpc.StatusCode.INTERNAL,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
    assert SECRET not in repr(caught.value) and "ValueError" not in repr(caught.value)
    assert "request id test-1" in str(caught.value.details())
    assert "test-1" in logged and SECRET in logged


async def _fails(requests: Any, context: Any) -> None:
    raise KeyError(SECRET)


async def _fails_later(requests: Any, context: Any) -> AsyncIterator[pb.ProduceStreamResponse]:
    yield pb.ProduceStreamResponse()
    raise OSError(SECRET)


@pytest.mark.parametrize(("broken", "answers"), [(_fails, 0), (_fails_later, 1)])
async def test_an_unmapped_exception_on_a_stream_is_hidden_too(broken: Any, answers: int) -> None:
    """A stream's handler is guarded like a unary one, one that yields its answers as well."""
    async with serving(ProduceStream=broken) as stub:
        stream = stub.ProduceStream()
        for _ in range(answers):
            await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in repr(caught.value)


async def test_a_refusal_keeps_its_number_sentence_and_outcome() -> None:
    """A Refused raised by a handler is read back as the same rejection, and `call` raises it."""
    refusal = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many wait", Outcome.NOT_APPENDED)

    async def refusing(request: Any, context: Any) -> None:
        raise Refused.of(refusal)

    async with serving(Produce=refusing) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Produce(pb.ProduceRequest(), timeout=5)
        with pytest.raises(Refused) as called:
            await call(stub.Produce, pb.ProduceRequest(), deadline_ms=5_000)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal_of(caught.value) == called.value.refusal == refusal


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
    assert refusal_of(caught.value).code is ErrorCode.REQUEST_TIMED_OUT


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
