"""Heartbeats: epochs, reconciliation of a whole group, time-outs and states, with the numbers of Kafka's tests."""

from __future__ import annotations

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, aim, answered_with, code, parts, seed

from strandline.core.coordinator.machine import Decision, Record
from strandline.core.groups.group import GroupState
from strandline.core.groups.messages import GroupSettings
from strandline.core.groups.records import (
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberState,
    MemberValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)


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
        {
            "m1": {"foo": [0, 1], "bar": [0]},
            "m2": {"foo": [2, 3], "bar": [2]},
            "m3": {"foo": [4, 5], "bar": [1]},
        },
    )
    state = lambda m: alone.group.current[m].state  # noqa: E731

    assert joined.member_epoch == 11
    assert answered_with(joined) == (11, {})
    assert state("m3") is MemberState.UNRELEASED

    assert answered_with(alone.beat("m1", owned={"foo": [0, 1, 2], "bar": [0, 1]})) == (10, {"bar": [0], "foo": [0, 1]})
    assert state("m1") is MemberState.UNREVOKED
    assert answered_with(alone.beat("m2", owned={"foo": [3, 4, 5], "bar": [2]})) == (10, {"bar": [2], "foo": [3]})
    assert answered_with(alone.beat("m1", owned={"foo": [0, 1], "bar": [0]})) == (11, None)
    assert state("m1") is MemberState.STABLE
    assert answered_with(alone.beat("m3", owned={})) == (11, {"bar": [1]})
    assert state("m3") is MemberState.UNRELEASED

    before = len(alone.log)
    alone.beat("m2")
    assert len(alone.log) == before

    assert answered_with(alone.beat("m2", owned={"foo": [3], "bar": [2]})) == (11, {"bar": [2], "foo": [2, 3]})
    assert answered_with(alone.beat("m3", owned={"bar": [1]})) == (11, {"bar": [1], "foo": [4, 5]})
    assert state("m3") is MemberState.STABLE
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
    assert kept is not None and len(kept["foo"]) == 2

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
    said = MemberValue(session_timeout_ms=45_000, rebalance_timeout_ms=1, topic_names=("foo",))

    apply(Record(GroupKey(GROUP), GroupValue(10)))
    assert alone.group.state is GroupState.EMPTY
    apply(Record(MemberKey(GROUP, "m"), said))
    apply(Record(GroupKey(GROUP), GroupValue(11)))
    assert alone.group.state is GroupState.ASSIGNING
    apply(Record(TargetEpochKey(GROUP), TargetEpochValue(11, "uniform", 0)))
    assert alone.group.state is GroupState.RECONCILING
    apply(Record(CurrentKey(GROUP, "m"), CurrentValue(11, 10, MemberState.UNREVOKED)))
    assert alone.group.state is GroupState.RECONCILING
    apply(Record(CurrentKey(GROUP, "m"), CurrentValue(11, 10, MemberState.STABLE)))
    assert alone.group.state is GroupState.STABLE


@pytest.mark.parametrize("state", [MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED])
def test_t77_a_known_member_joins_again(alone: GroupsAlone, state: MemberState) -> None:
    """T77, KAFKA-19233: a heartbeat with epoch 0 of a member at 100 joins again from any state."""
    seed(alone, 100, {"m": {"foo": [1, 2, 3]}}, ("foo",))
    row = alone.group.current["m"]
    given = row.assigned[:2] if state is MemberState.UNREVOKED else row.assigned
    revoking = row.assigned[2:] if state is MemberState.UNREVOKED else ()
    alone.take(Decision(batches=((Record(CurrentKey(GROUP, "m"), CurrentValue(100, 99, state, given, revoking)),),)))

    answer = alone.join("m", "foo")

    assert answered_with(answer) == (100, {"foo": [1, 2, 3]})
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
    torn = Record(TargetKey(GROUP, "m1"), TargetValue(11, ()))
    alone.take(Decision(batches=((torn, Record(GroupKey(GROUP), GroupValue(11))),)))

    assert answered_with(alone.beat("m1", owned={"foo": [0, 1, 2]})) == (10, None)
    assert alone.group.state is GroupState.ASSIGNING
    alone.settle()
    assert alone.group.state is GroupState.STABLE
    assert len(alone.has("m1")["foo"]) == 3
