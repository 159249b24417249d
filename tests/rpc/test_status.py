"""Every refusal survives the way through a gRPC status, and every foreign status becomes a refusal."""

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
    """Code, sentence, outcome and the field that is wrong come back whatever the status they map to."""
    refusal = Refusal(code, "one sentence", Outcome.MAY_APPEAR, "cluster_id")

    assert refusal_of(_failed(refusal)) == refusal


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
    """What gRPC itself says is a refusal of ours too."""
    error = grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), "words")

    assert refusal_of(error) == Refusal(code, "words")
