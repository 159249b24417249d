"""Bugs that coordinators have had, each as the history that showed it."""

from __future__ import annotations

import pytest
from groups_alone import GroupsAlone, Topics, aim, answered_with, codes, parts, seed

from strandline.core.coordinator.machine import Record
from strandline.core.groups.invariants import GroupInvariants
from strandline.core.groups.records import MemberState


@pytest.fixture
def alone() -> GroupsAlone:
    """Two members that are stable in epoch 10."""
    alone = GroupsAlone(Topics(foo=6))
    seed(alone, 10, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}}, ("foo",))
    return alone


def test_kafka_16147_a_partition_that_returns_keeps_its_owner(alone: GroupsAlone) -> None:
    """KAFKA-16147: a partition that is being revoked returns to its member; asked back later it still has an owner."""
    aim(alone, 11, {"m1": {"foo": [0, 1]}, "m2": {"foo": [2, 3, 4, 5]}})
    alone.beat("m1")
    assert parts(*(each.tp for each in alone.group.current["m1"].revoking)) == {"foo": [2]}
    aim(alone, 12, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}})
    assert answered_with(alone.beat("m1", owned={"foo": [0, 1]})) == (12, {"foo": [0, 1, 2]})

    aim(alone, 13, {"m1": {"foo": [0, 1]}, "m2": {"foo": [2, 3, 4, 5]}})
    alone.beat("m2")

    assert alone.has("m2") == {"foo": [3, 4, 5]}
    assert alone.group.current["m2"].state is MemberState.UNRELEASED
    alone.beat("m1")
    alone.beat("m1", owned={"foo": [0, 1]})
    alone.beat("m2")
    assert alone.has("m2") == {"foo": [2, 3, 4, 5]}


def test_kafka_20066_a_commit_that_crosses_a_heartbeat(alone: GroupsAlone) -> None:
    """KAFKA-20066 (KIP-1251): a commit sent before the answer that raised the epoch is taken."""
    aim(alone, 11, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}})
    assert alone.beat("m1").member_epoch == 11

    assert codes(alone.commit(epoch=10, member_id="m1", of={"foo": [0, 1, 2]})) == ["OK", "OK", "OK"]


def test_a_commit_of_an_owner_before_the_last(alone: GroupsAlone) -> None:
    """A partition that went away and came back is committed only in the epochs since it came back."""
    aim(alone, 11, {"m1": {"foo": [0, 1]}, "m2": {"foo": [3, 4, 5]}})
    alone.beat("m1")
    alone.beat("m1", owned={"foo": [0, 1]})
    aim(alone, 12, {"m1": {"foo": [0, 1, 2]}})
    alone.beat("m1")

    assert codes(alone.commit(epoch=11, member_id="m1", of={"foo": [0, 2]})) == ["OK", "STALE_MEMBER_EPOCH"]


def test_kafka_19233_a_member_that_lost_everything_can_return(alone: GroupsAlone) -> None:
    """KAFKA-19233: a member that is known at 11 and comes with 0 gets its partitions, and others get theirs."""
    aim(alone, 11, {"m1": {"foo": [0, 1]}, "m2": {"foo": [2, 3, 4, 5]}})
    alone.beat("m1")

    assert answered_with(alone.join("m1", "foo")) == (11, {"foo": [0, 1]})
    assert answered_with(alone.beat("m2")) == (11, {"foo": [2, 3, 4, 5]})


def test_the_model_of_owners_believes_a_log_that_was_swept(alone: GroupsAlone) -> None:
    """I29: members seed 929. After a sweep the first row of a member that is read may be of a later epoch than that in
    which it was given its partitions; a commit in between is no violation."""
    aim(alone, 11, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}})
    alone.beat("m1")
    alone.invariants = GroupInvariants()
    for group in alone.machine.groups.values():
        for key, value in group.rows():
            alone.invariants.written_before(Record(key, value))

    assert codes(alone.commit(epoch=10, member_id="m1", of={"foo": [0]})) == ["OK"]
