"""Refusals on the wire: what their number means to whoever reads it."""

from __future__ import annotations

import pytest

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import LeaderHint
from strandline.core.types import LeaderEpoch, NodeId
from strandline.rpc.convert.errors import outcome_to_wire, read_error, wants_leader, write_error, write_leader
from strandline.v1 import leader_service_pb2 as pb
from strandline.v1 import partition_pb2


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

    assert refusal is not None
    assert refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR
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
