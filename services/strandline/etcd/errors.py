"""How a call to etcd fails, as far as its caller acts on the difference.

Invariant: a write that may have been carried out is always `Unanswered`; every other error means that nothing changed.
"""

from __future__ import annotations

import grpc


class EtcdError(Exception):
    """A call failed; one sentence says at which member and why."""


class Unanswered(EtcdError):
    """No member answered in time. A write may have been carried out, now or later."""


class NoSpace(EtcdError):
    """The quota of etcd's file is used up: puts and new leases are refused, deletions and renewals work."""


class LeaseGone(EtcdError):
    """The lease is over."""


class Compacted(EtcdError):
    """What was asked for lies before the oldest revision that etcd keeps."""


class NotPermitted(EtcdError):
    """The credentials are wrong, missing, or do not reach these keys."""


class EtcdWentBack(EtcdError):
    """A linearizable answer is older than one before it: etcd was restored from a snapshot (C40)."""


_BY_SENTENCE = {
    "database space exceeded": NoSpace,
    "requested lease not found": LeaseGone,
    "required revision has been compacted": Compacted,
    "authentication failed": NotPermitted,
    "user name is empty": NotPermitted,
    "authentication is not enabled": NotPermitted,
}
"""etcd's own sentences (`api/v3rpc/rpctypes/error.go`); one status serves several of them."""

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
"""The token is over, or of another member's life; a new one is asked for."""


def error_of(member: str, error: grpc.aio.AioRpcError) -> EtcdError:
    """A failed call as an error of ours."""
    detail = error.details() or error.code().name
    sentence = f"etcd member {member}: {detail}"
    for part, kind in _BY_SENTENCE.items():
        if part in detail:
            return kind(sentence)
    # What is left says nothing about the outcome: time-outs, broken connections, a change of leader, a full queue.
    return _BY_STATUS.get(error.code(), Unanswered)(sentence)
