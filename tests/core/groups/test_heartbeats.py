"""Heartbeats: epochs, reconciliation, time-outs, refused fields, and those that change nothing (T103, G12)."""

from __future__ import annotations

from typing import Any

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, aim, answered_with, code, parts, seed, tps

from strandline.core.coordinator.machine import Decision, Record
from strandline.core.errors import ErrorCode
from strandline.core.groups import records
from strandline.core.groups.group import GroupState
from strandline.core.groups.messages import ConsumerGroupHeartbeat, GroupSettings


@pytest.fixture
def alone() -> GroupsAlone:
    return GroupsAlone(Topics(foo=6, bar=3))


@pytest.mark.parametrize(
    ("epoch", "owned", "expected"),
    [
        (200, None, "FENCED_MEMBER_EPOCH"),
        (50, None, "FENCED_MEMBER_EPOCH"),
        (99, None, "FENCED_MEMBER_EPOCH"),
        (99, {"foo": [1, 2]}, "100"),
        (99, {"foo": [1, 2, 5]}, "FENCED_MEMBER_EPOCH"),
        (100, {"foo": [5]}, "FENCED_MEMBER_EPOCH"),
    ],
)
def test_t70_member_epochs(alone: GroupsAlone, epoch: int, owned: dict[str, list[int]] | None, expected: str) -> None:
    """T70: the previous epoch is taken only with owned partitions that are all assigned; any other is fenced."""
    seed(alone, 100, {"m": {"foo": [1, 2, 3]}, "other": {"foo": [0, 4, 5]}}, ("foo",), previous=99)
    answer = alone.beat("m", epoch, owned)

    assert (code(answer) if expected != "100" else str(answer.member_epoch)) == expected


def test_t71_reconciliation_of_three_members(alone: GroupsAlone) -> None:
    """T71: a third member joins two; every partition is given up before it is given, and the group ends STABLE."""
    seed(alone, 10, {"m1": {"foo": [0, 1, 2], "bar": [0, 1]}, "m2": {"foo": [3, 4, 5], "bar": [2]}}, ("bar", "foo"))
    joined = alone.join("m3", "foo", "bar")
    aim(
        alone,
        11,
        {"m1": {"foo": [0, 1], "bar": [0]}, "m2": {"foo": [2, 3], "bar": [2]}, "m3": {"foo": [4, 5], "bar": [1]}},
    )
    state = lambda m: alone.group.current[m].state  # noqa: E731

    assert joined.member_epoch == 11
    assert answered_with(joined) == (11, {})
    assert state("m3") is records.MemberState.UNRELEASED
    assert answered_with(alone.beat("m1", owned={"foo": [0, 1, 2], "bar": [0, 1]})) == (10, {"bar": [0], "foo": [0, 1]})
    assert state("m1") is records.MemberState.UNREVOKED
    assert answered_with(alone.beat("m2", owned={"foo": [3, 4, 5], "bar": [2]})) == (10, {"bar": [2], "foo": [3]})
    assert answered_with(alone.beat("m1", owned={"foo": [0, 1], "bar": [0]})) == (11, None)
    assert state("m1") is records.MemberState.STABLE
    assert answered_with(alone.beat("m3", owned={})) == (11, {"bar": [1]})
    assert state("m3") is records.MemberState.UNRELEASED

    before = len(alone.log)
    alone.beat("m2")
    assert len(alone.log) == before
    assert answered_with(alone.beat("m2", owned={"foo": [3], "bar": [2]})) == (11, {"bar": [2], "foo": [2, 3]})
    assert answered_with(alone.beat("m3", owned={"bar": [1]})) == (11, {"bar": [1], "foo": [4, 5]})
    assert state("m3") is records.MemberState.STABLE
    assert alone.group.state is GroupState.STABLE


def test_t72_rebalance_timeout(alone: GroupsAlone) -> None:
    """T72: a member that does not give up in 10 s is removed; its partitions are free when its session is over."""
    alone = GroupsAlone(Topics(foo=3))
    alone.join("m1", "foo")
    alone.join("m2", "foo")

    assert alone.group.epoch == 2
    assert alone.has("m2") == {}
    epoch, kept = answered_with(alone.beat("m1"))
    assert epoch == 1
    assert len(kept["foo"]) == 2

    alone.tick(10_001)
    assert alone.group.epoch == 3
    assert "m1" not in alone.group.members
    assert code(alone.beat("m1", 1)) == "FENCED_MEMBER_EPOCH"
    assert code(alone.commit(member_id="m1", epoch=1)) == "UNKNOWN_MEMBER_ID"

    alone.beat("m2")
    alone.tick()
    assert alone.has("m2") == {}, "the lease of m1 may still run"

    alone.tick(30_000)
    alone.beat("m2")
    assert alone.has("m2") == {}
    alone.tick(5_000)
    assert answered_with(alone.beat("m2")) == (3, {"foo": [0, 1, 2]})


def test_a_fenced_member_that_joins_again_frees_its_partitions(alone: GroupsAlone) -> None:
    """G21: a member that was fenced and comes with epoch 0 holds nothing any more, so others can have it at once."""
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.beat("m1")
    alone.tick(10_001)
    alone.join("m1", "foo")
    alone.settle()

    assert sorted(len(alone.has(m)["foo"]) for m in ("m1", "m2")) == [3, 3]


def test_t73_group_states(alone: GroupsAlone) -> None:
    """T73: EMPTY, ASSIGNING, RECONCILING and STABLE follow from the rows."""
    apply = alone.machine.apply
    said = records.MemberValue(session_timeout_ms=45_000, rebalance_timeout_ms=1, topic_names=("foo",))
    apply(Record(records.GroupKey(GROUP), records.GroupValue(10)))
    assert alone.group.state is GroupState.EMPTY
    apply(Record(records.MemberKey(GROUP, "m"), said))
    apply(Record(records.GroupKey(GROUP), records.GroupValue(11)))
    assert alone.group.state is GroupState.ASSIGNING
    apply(Record(records.TargetEpochKey(GROUP), records.TargetEpochValue(11, "uniform", 0)))
    assert alone.group.state is GroupState.RECONCILING
    apply(Record(records.CurrentKey(GROUP, "m"), records.CurrentValue(11, 10, records.MemberState.UNREVOKED)))
    assert alone.group.state is GroupState.RECONCILING
    apply(Record(records.CurrentKey(GROUP, "m"), records.CurrentValue(11, 10, records.MemberState.STABLE)))
    assert alone.group.state is GroupState.STABLE


@pytest.mark.parametrize(
    "state", [records.MemberState.STABLE, records.MemberState.UNREVOKED, records.MemberState.UNRELEASED]
)
def test_t77_a_known_member_joins_again(alone: GroupsAlone, state: records.MemberState) -> None:
    """T77, KAFKA-19233: a heartbeat with epoch 0 of a member at 100 joins again from any state."""
    seed(alone, 100, {"m": {"foo": [1, 2, 3]}}, ("foo",))
    row = alone.group.current["m"]
    given = row.assigned[:2] if state is records.MemberState.UNREVOKED else row.assigned
    revoking = row.assigned[2:] if state is records.MemberState.UNREVOKED else ()
    alone.take(
        Decision(
            batches=((Record(records.CurrentKey(GROUP, "m"), records.CurrentValue(100, 99, state, given, revoking)),),)
        )
    )

    assert answered_with(alone.join("m", "foo")) == (100, {"foo": [1, 2, 3]})
    assert alone.group.epoch == 100


def test_session_ends(alone: GroupsAlone) -> None:
    """G21: a member that sends nothing for its session is removed, and its partitions are free at once."""
    alone.join("m1", "foo", session_timeout_ms=6_000)
    alone.join("m2", "foo", session_timeout_ms=12_000)

    assert alone.tick(5_999) == 0
    alone.tick(1)

    assert list(alone.group.members) == ["m2"]
    alone.tick()
    assert answered_with(alone.beat("m2")) == (3, {"foo": [0, 1, 2, 3, 4, 5]})


def test_load_gives_every_member_its_full_session(alone: GroupsAlone) -> None:
    """G8: after a load, and after a time in which nothing could be committed, sessions begin again."""
    alone.join("m1", "foo", session_timeout_ms=6_000)
    alone.now_ms += 60_000
    alone.machine.excuse(alone.context)

    assert alone.tick(5_999) == 0
    assert "m1" in alone.group.members
    alone.tick(1)
    assert "m1" not in alone.group.members


def test_load_gives_the_full_rebalance_timeout(alone: GroupsAlone) -> None:
    """G8: a member that was asked to give something up has its whole rebalance time-out again after a load."""
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.beat("m1")
    alone.now_ms += 9_000
    alone.machine.excuse(alone.context)
    alone.tick(9_999)
    assert "m1" in alone.group.members
    alone.tick(1)
    assert "m1" not in alone.group.members


def test_a_removal_that_is_partly_written_is_finished(alone: GroupsAlone) -> None:
    """G4: a failover between the batches of a removal of many members leaves none that would never go."""
    for member_id in ("m1", "m2"):
        alone.join(member_id, "foo", session_timeout_ms=6_000)
    alone.now_ms += 6_000
    (removal,) = alone.machine.tick(alone.context)
    for cut in range(len(removal.batches[0])):
        other = GroupsAlone(alone.topics)
        for record in (*alone.log, *removal.batches[0][:cut]):
            other.machine.apply(record)
        other.machine.excuse(other.context)
        other.tick(other.settings.max_session_timeout_ms)

        assert (other.group.members, other.group.current, len(other.group.owners)) == ({}, {}, 0)


def test_a_member_is_watched_once_after_any_number_of_rebalances(alone: GroupsAlone) -> None:
    """Its deadlines take no more memory the longer it lives."""
    alone.join("m1", "foo")
    for _ in range(50):
        alone.join("m2", "foo")
        alone.beat("m1")
        alone.beat("m1", owned=alone.has("m1"))
        alone.beat("m2", -1)
        alone.tick(11_000)
        alone.beat("m1")

    assert len(alone.machine.timers._heap) < 10


def test_the_rebalance_timeout_counts_from_the_answer(alone: GroupsAlone) -> None:
    """G21: a member that was never asked to give up a partition is not removed for keeping it."""
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.beat("m1", answered=False)
    alone.tick(20_000)
    assert "m1" in alone.group.members

    alone.beat("m1")
    alone.tick(10_000)
    assert "m1" not in alone.group.members


def test_causes_of_one_tick_rise_together(alone: GroupsAlone) -> None:
    """G15: two members whose sessions end in one tick raise the group epoch once."""
    for member in ("m1", "m2", "m3"):
        alone.join(member, "foo", session_timeout_ms=45_000 if member == "m3" else 6_000)
    epoch = alone.group.epoch
    alone.tick(6_000)

    assert alone.group.epoch == epoch + 1
    assert list(alone.group.members) == ["m3"]


def test_targets_are_computed_at_most_once_per_interval() -> None:
    """G16: joins within 200 ms share one target; the first join of an empty group has one at once."""
    alone = GroupsAlone(Topics(foo=6), GroupSettings())
    alone.join("m1", "foo")
    assert alone.has("m1") == {"foo": [0, 1, 2, 3, 4, 5]}
    alone.join("m2", "foo")
    alone.join("m3", "foo")

    assert alone.tick(199) == 0
    assert (alone.group.epoch, alone.group.target_epoch) == (3, 1)
    alone.tick(1)
    assert (alone.group.epoch, alone.group.target_epoch) == (3, 3)


def test_a_large_assignment_is_work_and_a_stale_one_is_dropped() -> None:
    """G16: above the bound a worker computes; its result for an epoch that is over changes nothing."""
    alone = GroupsAlone(Topics(foo=6), GroupSettings(inline_pairs=6, assignment_interval_ms=0))
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.tick()
    alone.join("m3", "foo")
    alone.compute()
    assert alone.group.target_epoch == 1

    alone.tick()
    alone.compute()

    assert alone.group.target_epoch == 3
    assert parts(*alone.group.target_of("m3")) != {}


def test_a_target_that_is_partly_written_gives_and_asks_nothing(alone: GroupsAlone) -> None:
    """G4: after a failover between the batches of a target every member is answered from what it has."""
    seed(alone, 10, {"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}}, ("foo",))
    torn = Record(records.TargetKey(GROUP, "m1"), records.TargetValue(11, ()))
    alone.take(Decision(batches=((torn, Record(records.GroupKey(GROUP), records.GroupValue(11))),)))

    assert answered_with(alone.beat("m1", owned={"foo": [0, 1, 2]})) == (10, None)
    assert alone.group.state is GroupState.ASSIGNING
    alone.settle()
    assert alone.group.state is GroupState.STABLE
    assert len(alone.has("m1")["foo"]) == 3


# Which heartbeats are refused for their fields, with exact numbers (T103, G12).


JOIN: dict[str, Any] = {
    "group_id": GROUP,
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "topic_partitions": (),
    "subscribed_topic_names": ("foo",),
}


@pytest.fixture
def alone_fields() -> GroupsAlone:
    return GroupsAlone(Topics(foo=3))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"group_id": ""}, "group_id"),
        ({"group_id": "   "}, "group_id"),
        ({"member_id": ""}, "member_id"),
        ({"member_id": "", "member_epoch": 5}, "member_id"),
        ({"member_epoch": -3}, "member_epoch"),
        ({"rebalance_timeout_ms": None}, "rebalance_timeout_ms"),
        ({"rebalance_timeout_ms": 0}, "rebalance_timeout_ms"),
        ({"topic_partitions": tps({"foo": [0]})}, "topic_partitions"),
        ({"topic_partitions": None}, "topic_partitions"),
        ({"subscribed_topic_names": None}, "subscribed_topic_names"),
        ({"instance_id": ""}, "instance_id"),
        ({"member_epoch": -2}, "instance_id"),
        ({"session_timeout_ms": 5_999}, "session_timeout_ms"),
        ({"session_timeout_ms": 1_800_001}, "session_timeout_ms"),
    ],
)
def test_t103_invalid_fields(alone_fields: GroupsAlone, changed: dict[str, Any], field: str) -> None:
    """T103: each is INVALID_REQUEST (42) and names its field; nothing is written."""
    answer = alone_fields.ask(ConsumerGroupHeartbeat(**(JOIN | changed)))

    assert answer.code == 42
    assert answer.field == field
    assert answer.message.startswith(field)
    assert alone_fields.log == []


def test_t103_unknown_assignor(alone_fields: GroupsAlone) -> None:
    """T103: an assignor that does not exist is UNSUPPORTED_ASSIGNOR (112), with those that do."""
    answer = alone_fields.ask(ConsumerGroupHeartbeat(**JOIN, server_assignor="sticky"))

    assert answer.code == 112
    assert "range, uniform" in answer.message


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "(a{1000}){1000}", "x" * 1_025])
def test_patterns_that_re2_refuses(alone_fields: GroupsAlone, pattern: str) -> None:
    """G23: a malformed pattern, one with look-ahead or back-references, and one above 1 KiB are refused (128)."""
    answer = alone_fields.ask(
        ConsumerGroupHeartbeat(**(JOIN | {"subscribed_topic_names": None}), subscribed_topic_regex=pattern)
    )

    assert answer.code == 128
    assert answer.field == "subscribed_topic_regex"
    assert alone_fields.log == []


def test_the_member_above_the_limit() -> None:
    """G13: one member more than the group may have is GROUP_MAX_SIZE_REACHED (81); the others may join again."""
    alone = GroupsAlone(Topics(foo=3), GroupSettings(max_members=2, assignment_interval_ms=0))
    alone.join("m1", "foo")
    alone.join("m2", "foo")

    assert alone.join("m3", "foo").code == 81
    assert alone.join("m2", "foo").member_epoch == 2


def test_unknown_members(alone_fields: GroupsAlone) -> None:
    """G19: an unknown id with an epoch above 0, or that leaves, is UNKNOWN_MEMBER_ID (25)."""
    alone_fields.join("m1", "foo")

    assert alone_fields.beat("m2", 1).code == 25
    assert alone_fields.beat("m2", -1).code == 25


def test_another_coordinator_epoch(alone_fields: GroupsAlone) -> None:
    """G19: a heartbeat or a commit for another coordinator epoch is NOT_COORDINATOR (16), and changes nothing."""
    alone_fields.join("m1", "foo")
    before = len(alone_fields.log)

    assert alone_fields.beat("m1", 1, coordinator_epoch=6).code == 16
    assert alone_fields.beat("m1", -1, coordinator_epoch=8).code == 16
    assert alone_fields.commit(member_id="m1", epoch=1, coordinator_epoch=6).code == 16
    assert len(alone_fields.log) == before
    assert alone_fields.beat("m1", 1, coordinator_epoch=7).member_epoch == 1


def test_the_defaults_are_kafkas(alone_fields: GroupsAlone) -> None:
    """G13: session 45 s and heartbeat 5 s, or a third of a shorter session that the member chose."""
    assert alone_fields.join("m1", "foo").heartbeat_interval_ms == 5_000
    answer = alone_fields.join("m2", "foo", session_timeout_ms=6_000)

    assert (answer.session_timeout_ms, answer.heartbeat_interval_ms) == (6_000, 2_000)


def test_error_numbers_are_kafkas() -> None:
    """G12: the numbers of group errors."""
    numbers = {
        "OFFSET_METADATA_TOO_LARGE": 12,
        "NOT_COORDINATOR": 16,
        "INVALID_GROUP_ID": 24,
        "UNKNOWN_MEMBER_ID": 25,
        "NON_EMPTY_GROUP": 68,
        "GROUP_ID_NOT_FOUND": 69,
        "GROUP_MAX_SIZE_REACHED": 81,
        "FENCED_INSTANCE_ID": 82,
        "GROUP_SUBSCRIBED_TO_TOPIC": 86,
        "FENCED_MEMBER_EPOCH": 110,
        "UNRELEASED_INSTANCE_ID": 111,
        "UNSUPPORTED_ASSIGNOR": 112,
        "STALE_MEMBER_EPOCH": 113,
        "INVALID_REGULAR_EXPRESSION": 128,
    }

    assert {name: int(ErrorCode[name]) for name in numbers} == numbers


def test_a_group_of_one_bad_name_is_not_kept(alone_fields: GroupsAlone) -> None:
    """A refused request leaves no trace of its group."""
    alone_fields.beat("m1", 4)

    assert alone_fields.machine.groups == {}
    assert code(alone_fields.commit(epoch=3, member_id="m1")) == "UNKNOWN_MEMBER_ID"
    assert alone_fields.machine.groups == {}
