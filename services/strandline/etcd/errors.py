"""The ways in which a call to etcd fails, as far as callers distinguish them.

Invariant: a write that may have been carried out always raises `Unanswered`; any other error means no change was made.
"""

from __future__ import annotations

import grpc


class EtcdError(Exception):
    """A call failed; the message names the member and the reason."""


class Unanswered(EtcdError):
    """No member answered in time. A write may have been carried out, or may still be."""


class NoSpace(EtcdError):
    """The quota of etcd's file is used up: puts and new leases are refused, deletions and renewals work."""


class LeaseGone(EtcdError):
    """The lease has ended."""


class Compacted(EtcdError):
    """The requested revision is older than the oldest one that etcd keeps."""


class NotPermitted(EtcdError):
    """The credentials are wrong, missing, or not sufficient for these keys."""


class EtcdWentBack(EtcdError):
    """A linearizable answer is older than an earlier one: etcd was restored from a snapshot (C40)."""


_BY_SENTENCE = {
    "database space exceeded": NoSpace,
    "requested lease not found": LeaseGone,
    "required revision has been compacted": Compacted,
    "authentication failed": NotPermitted,
    "user name is empty": NotPermitted,
    "authentication is not enabled": NotPermitted,
}
"""Parts of etcd's messages (`api/v3rpc/rpctypes/error.go`), because several errors have the same status."""

_BY_STATUS: dict[grpc.StatusCode, type[EtcdError]] = {
    grpc.StatusCode.PERMISSION_DENIED: NotPermitted,
    grpc.StatusCode.UNAUTHENTICATED: NotPermitted,
    grpc.StatusCode.INVALID_ARGUMENT: EtcdError,
    grpc.StatusCode.FAILED_PRECONDITION: EtcdError,
    grpc.StatusCode.NOT_FOUND: EtcdError,
    grpc.StatusCode.OUT_OF_RANGE: EtcdError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: EtcdError,
    grpc.StatusCode.UNIMPLEMENTED: EtcdError,
}

INVALID_TOKEN = "invalid auth token"
"""The token has expired, or the member has restarted; a new token is needed."""


def error_of(member: str, error: grpc.aio.AioRpcError) -> EtcdError:
    """The `EtcdError` for a failed call."""
    detail = error.details() or error.code().name
    sentence = f"etcd member {member}: {detail}"
    for part, kind in _BY_SENTENCE.items():
        if part in detail:
            return kind(sentence)
    # All other errors leave the outcome open: time-outs, broken connections, a change of leader, a full queue.
    return _BY_STATUS.get(error.code(), Unanswered)(sentence)
