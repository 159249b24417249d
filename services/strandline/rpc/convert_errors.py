"""Refusals on the wire: Kafka's number, one sentence, and for produce its outcome.

Invariant: number 0 and only it means that there is no refusal; an unknown number of a newer peer is read as
UNKNOWN_SERVER_ERROR, never as success.
"""

from __future__ import annotations

from typing import Protocol

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import Endpoint, LeaderHint
from strandline.core.types import NodeId
from strandline.v1 import error_pb2, leader_service_pb2, partition_pb2

_OUTCOME_TO_WIRE = {
    None: leader_service_pb2.PRODUCE_OUTCOME_UNSPECIFIED,
    Outcome.NOT_APPENDED: leader_service_pb2.PRODUCE_OUTCOME_NOT_APPENDED,
    Outcome.MAY_APPEAR: leader_service_pb2.PRODUCE_OUTCOME_MAY_APPEAR,
}
_OUTCOME_OF_WIRE = {number: outcome for outcome, number in _OUTCOME_TO_WIRE.items()}


class HasError(Protocol):
    """Any message with the two error fields."""

    error_code: error_pb2.ErrorCode.ValueType
    error_message: str


def write_error(message: HasError, refusal: Refusal | None) -> None:
    """Set both error fields, or leave both at their defaults."""
    if refusal is not None:
        message.error_code = error_pb2.ErrorCode.ValueType(int(refusal.code))
        message.error_message = str(refusal)


def read_error(message: HasError, outcome: leader_service_pb2.ProduceOutcome.ValueType | None = None) -> Refusal | None:
    """The refusal that the two error fields represent."""
    number = message.error_code
    if number == 0:
        return None
    try:
        code = ErrorCode(number)
    except ValueError:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"error number {number}: {message.error_message}")
    sentence = message.error_message.removeprefix(f"{code.name}: ")
    return Refusal(code, sentence, _OUTCOME_OF_WIRE.get(outcome) if outcome else None)


def outcome_to_wire(outcome: Outcome | None) -> leader_service_pb2.ProduceOutcome.ValueType:
    """The produce outcome's number."""
    return _OUTCOME_TO_WIRE[outcome]


class Addresses(Protocol):
    """Where a node is reached by the kind of caller that asks (`runtime.topics` knows)."""

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """Its advertised address, if known."""
        ...


_HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def wants_leader(refusal: Refusal) -> bool:
    """Whether an answer names the leader: only if its caller should go there (KIP-951)."""
    return refusal.code in _HINTED


def write_leader(target: partition_pb2.CurrentLeader, hint: LeaderHint, addresses: Addresses | None = None) -> None:
    """Set the leader hint of an answer."""
    target.leader_epoch = hint.leader_epoch
    if hint.leader is None:
        return
    target.leader_id = hint.leader
    endpoint = addresses.endpoint_of(hint.leader) if addresses else None
    if endpoint is not None:
        target.endpoint.host, target.endpoint.port = endpoint
