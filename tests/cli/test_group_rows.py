"""Rows of `strandline group describe`, from what a coordinator answers."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.group import member_rows, offset_rows, state_row, states_of
from strandline.cli.group_over_rpc import SeenGroup
from strandline.v1 import group_service_pb2 as pb

MEMBER = pb.DescribedGroupMember(
    member_id="m1", client_id="app", client_host="10.0.0.7", member_epoch=4, member_state="Stable"
)
MEMBER.assignment.add(topic="tides", partitions=[0, 2])
MEMBER.target_assignment.add(topic="tides", partitions=[0])
GROUP = pb.DescribedGroup(
    group_id="g",
    group_state="Reconciling",
    group_epoch=5,
    assignment_epoch=4,
    assignor_name="uniform",
    members=[MEMBER],
)
SEEN = SeenGroup(
    coordinator=2,
    described=GROUP,
    committed={("tides", 0): 7, ("tides", 1): 9, ("gone", 0): 3},
    ends={("tides", 0): 10, ("tides", 1): 8, ("tides", 2): 4},
)


def test_a_partition_is_shown_if_it_is_read_or_has_an_offset() -> None:
    """Lag is end minus offset, never below zero; what is not committed, or whose topic is gone, has no lag."""
    rows = [
        (row["topic"], row["partition"], row["current_offset"], row["log_end_offset"], row["lag"], row["consumer_id"])
        for row in offset_rows(SEEN)
    ]

    assert rows == [
        ("gone", 0, 3, None, None, None),
        ("tides", 0, 7, 10, 3, "m1"),
        ("tides", 1, 9, 8, 0, None),
        ("tides", 2, None, 4, None, "m1"),
    ]


def test_a_member_is_shown_with_what_it_reads() -> None:
    """Assignment and target name partitions; absent fields stay empty."""
    (row,) = member_rows(SEEN)

    assert (row["partitions"], row["assignment"], row["target_assignment"]) == (2, ["tides-0", "tides-2"], ["tides-0"])
    assert (row["instance_id"], row["last_heartbeat_age_ms"], row["state"]) == (None, None, "Stable")


def test_a_group_is_shown_in_one_row() -> None:
    """Epochs, state, coordinator and number of members."""
    assert state_row(SEEN) == {
        "group": "g",
        "coordinator": 2,
        "assignor": "uniform",
        "state": "Reconciling",
        "group_epoch": 5,
        "assignment_epoch": 4,
        "members": 1,
    }


def test_states_are_taken_in_any_case() -> None:
    """A list of states is read without regard to case; a word that is none is rejected with those there are."""
    assert states_of("stable, EMPTY") == ["Stable", "Empty"]
    assert states_of(None) == []
    with pytest.raises(typer.BadParameter, match="known are Empty, Assigning"):
        states_of("stabel")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a GROUP, or --all-groups"),
        (["g", "--all-groups"], "name a GROUP, or --all-groups"),
        (["g", "--members", "--state"], "give one of"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(words: list[str], said: str) -> None:
    """Groups by name or all of them, and one kind of row."""
    ran = CliRunner().invoke(app, ["group", "describe", *words, "-b", "127.0.0.1:1"])

    assert (ran.exit_code, said in ran.stderr) == (2, True)
