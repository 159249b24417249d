"""Late copies of heartbeats and commits change nothing (G19, trace TR41)."""

from __future__ import annotations

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, aim, answered_with, code, codes, seed


@pytest.fixture
def alone() -> GroupsAlone:
    return GroupsAlone(Topics(foo=4))


def test_tr41_a_report_from_before_a_partition_came(alone: GroupsAlone) -> None:
    """TR41: M reports {1,2}, slow; again, and gets 3; is asked to give 3 up; the first report gives nothing up."""
    seed(alone, 10, {"m": {"foo": [1, 2]}, "n": {"foo": [0]}}, ("foo",))
    alone.beat("m", 10, {"foo": [1, 2]}, sequence=2)
    aim(alone, 10, {"m": {"foo": [1, 2, 3]}})
    aim(alone, 11, {"m": {"foo": [1, 2, 3]}})
    assert answered_with(alone.beat("m", 10, {"foo": [1, 2]}, sequence=3)) == (11, {"foo": [1, 2, 3]})
    aim(alone, 12, {"m": {"foo": [1, 2]}, "n": {"foo": [0, 3]}})
    assert answered_with(alone.beat("m", 11, sequence=4)) == (11, {"foo": [1, 2]})

    late = alone.beat("m", 11, {"foo": [1, 2]}, sequence=1)

    answered = answered_with(alone.beat("n", owned={"foo": [0]}))
    assert alone.has("n") == {"foo": [0]}, "I32: N is given partition 3, which M still reads"
    assert (code(late), answered) == ("REQUEST_TIMED_OUT", (12, None))
    alone.beat("m", 11, {"foo": [1, 2]}, sequence=5)
    assert answered_with(alone.beat("n", owned={"foo": [0]})) == (12, {"foo": [0, 3]})


def test_a_late_join_releases_nothing(alone: GroupsAlone) -> None:
    """G19: the second copy of a join would give up all that the member holds."""
    alone.join("m", "foo", sequence=1)
    before = len(alone.log)

    assert code(alone.join("m", "foo", sequence=1)) == "REQUEST_TIMED_OUT"
    assert len(alone.log) == before


def test_a_late_join_of_one_that_left_makes_no_member(alone: GroupsAlone) -> None:
    """G19: the sequence of a member that left is remembered for a while."""
    alone.join("m", "foo", sequence=1)
    alone.beat("m", -1, sequence=2)

    assert code(alone.join("m", "foo", sequence=1)) == "REQUEST_TIMED_OUT"
    assert alone.group.members == {}


def test_sequences_are_forgotten(alone: GroupsAlone) -> None:
    """What is remembered of members that are gone is bounded in time."""
    alone.join("m", "foo", sequence=1)
    alone.beat("m", -1, sequence=2)

    alone.tick(599_999)
    assert alone.machine.timers.is_late_heartbeat((GROUP, "m"), 2)
    alone.tick(1)
    assert not alone.machine.timers.is_late_heartbeat((GROUP, "m"), 2)


def test_a_late_commit(alone: GroupsAlone) -> None:
    """G19: commits have sequences of their own; a late copy does not set the offset back."""
    alone.join("m", "foo", sequence=9)
    assert codes(alone.commit(3, 1, "m", sequence=1)) == ["OK"]
    assert codes(alone.commit(7, 1, "m", sequence=2)) == ["OK"]

    assert code(alone.commit(3, 1, "m", sequence=1)) == "REQUEST_TIMED_OUT"
    assert alone.group.offsets["foo-id"][0].offset == 7


def test_a_gateway_sends_no_sequence(alone: GroupsAlone) -> None:
    """G19: one ordered connection needs none; it is not checked."""
    alone.join("m", "foo")

    assert alone.join("m", "foo").member_epoch == 1
