"""Every rejection survives the way through a gRPC status, and every foreign status becomes a rejection."""

from __future__ import annotations

import grpc
import pytest

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.rpc.status import refusal_of, status_code, trailing_details


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
    """gRPC's own statuses become rejections too."""
    error = grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), "words")

    assert refusal_of(error) == Refusal(code, "words")


def test_a_write_to_a_stream_that_ended_is_a_lost_connection() -> None:
    """grpcio replaces the server's status by one of its own (grpc #36066); nothing is known of the reason then."""
    words = "Internal error from Core"
    error = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), words)

    assert refusal_of(error).code is ErrorCode.NETWORK_EXCEPTION
