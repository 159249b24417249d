"""Refusals as gRPC statuses, and statuses read back as refusals by a caller.

Invariant: a server sends only refusals from the closed table of `core.errors`, with number, name and remedy in an
ErrorInfo, and nothing else about the inside of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from strandline.core.errors import RULES, ControllerHint, ErrorCode, Outcome, Refusal

DOMAIN = "strandline"
"""The ErrorInfo domain of every refusal."""

DETAILS_KEY = "grpc-status-details-bin"
"""Trailing metadata key of a google.rpc.Status, which gRPC can read in all languages."""

KEY_UNKNOWN = "TOKEN_KEY_UNKNOWN"
"""The rule for a token that may be accepted a little later: the server is going to read the issuer's keys again."""

_STATUS: dict[ErrorCode, grpc.StatusCode] = {
    ErrorCode.REQUEST_TIMED_OUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorCode.INCONSISTENT_CLUSTER_ID: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.INVALID_CONFIG: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.UNSUPPORTED_VERSION: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.STALE_BROKER_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.STALE_CONTROLLER_EPOCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.BROKER_ID_NOT_REGISTERED: grpc.StatusCode.NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.NOT_CONTROLLER: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR: grpc.StatusCode.INTERNAL,
}
"""Statuses of calls refused as a whole; a code that is not listed is the caller's mistake: INVALID_ARGUMENT."""

_FALLBACK: dict[grpc.StatusCode, ErrorCode] = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.CANCELLED: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.UNAUTHENTICATED: ErrorCode.SASL_AUTHENTICATION_FAILED,
}
"""Error codes of statuses without an ErrorInfo, which come from gRPC itself or from a proxy."""


_WRITTEN_TO_AN_ENDED_STREAM = "Internal error from Core"
"""The detail that grpcio gives when a client wrote to a stream that the server had ended: the failed write replaces the
server's status with INTERNAL (grpc #36066), and the server's reason is lost."""


def status_code(refusal: Refusal) -> grpc.StatusCode:
    """The gRPC status of a call that was refused as a whole."""
    return _STATUS.get(refusal.code, grpc.StatusCode.INVALID_ARGUMENT)


def trailing_details(refusal: Refusal, *, extra: dict[str, str] | None = None) -> tuple[tuple[str, bytes], ...]:
    """Trailing metadata with the refusal as ErrorInfo {reason, domain, metadata}.

    ``metadata`` holds Kafka's number, the remedy, whether a retry may help and, where known, the wrong field, the
    outcome of a produce, the time to wait and the active controller.
    """
    metadata = {
        "code": str(int(refusal.code)),
        "remedy": refusal.remedy or RULES[refusal.code].remedy,
        "retriable": str(refusal.retriable).lower(),
    }
    if refusal.outcome is not None:
        metadata["outcome"] = refusal.outcome.value
    if refusal.field is not None:
        metadata["field"] = refusal.field
    if refusal.rule is not None:
        metadata["rule"] = refusal.rule
    if refusal.throttle_time_ms:
        metadata["throttle_time_ms"] = str(refusal.throttle_time_ms)
    if refusal.hint is not None:
        metadata.update(_hint_metadata(refusal.hint))
    metadata.update(extra or {})
    info = error_details_pb2.ErrorInfo(reason=refusal.code.name, domain=DOMAIN, metadata=metadata)
    status = status_pb2.Status(code=status_code(refusal).value[0], message=str(refusal))
    status.details.add().Pack(info)
    return ((DETAILS_KEY, status.SerializeToString()),)


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """The refusal in a failed call: from its ErrorInfo if there is one, else from its status."""
    info = _error_info(error.trailing_metadata() or ())
    detail = error.details() or ""
    if info is None or info.domain != DOMAIN or info.reason not in ErrorCode.__members__:
        if detail == _WRITTEN_TO_AN_ENDED_STREAM:
            reason = "the stream ended while a message was written to it, and gRPC lost the server's reason"
            return Refusal(ErrorCode.NETWORK_EXCEPTION, reason)
        return Refusal(_FALLBACK.get(error.code(), ErrorCode.UNKNOWN_SERVER_ERROR), detail)
    outcome = info.metadata.get("outcome")
    code = ErrorCode[info.reason]
    message = detail.removeprefix(f"{code.name}: ")
    known = Outcome(outcome) if outcome in set(Outcome) else None
    remedy = info.metadata.get("remedy")
    own = remedy if remedy != RULES[code].remedy else None
    hint = _read_hint(info.metadata)
    wait_ms = info.metadata.get("throttle_time_ms", "")
    throttle_time_ms = int(wait_ms) if wait_ms.isdecimal() else 0
    field, rule = info.metadata.get("field"), info.metadata.get("rule")
    return Refusal(code, message, known, field, rule, own, hint, throttle_time_ms)


def _hint_metadata(hint: ControllerHint) -> dict[str, str]:
    known = {
        "active_id": hint.active_id,
        "active_endpoint": hint.endpoint,
        "active_internal_endpoint": hint.internal_endpoint,
        "controller_epoch": str(hint.controller_epoch) if hint.controller_epoch else None,
    }
    return {"why": hint.why} | {name: value for name, value in known.items() if value is not None}


def _read_hint(metadata: Mapping[str, str]) -> ControllerHint | None:
    if "why" not in metadata:
        return None
    epoch = metadata.get("controller_epoch", "")
    return ControllerHint(
        metadata["why"],
        metadata.get("active_id"),
        metadata.get("active_endpoint"),
        metadata.get("active_internal_endpoint"),
        int(epoch) if epoch.isdecimal() else 0,
    )


def _error_info(metadata: Iterable[tuple[str, str | bytes]]) -> error_details_pb2.ErrorInfo | None:
    for key, value in metadata:
        if key != DETAILS_KEY or not isinstance(value, bytes):
            continue
        # What a proxy puts there may be anything.
        with suppress(DecodeError):
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return info
    return None
