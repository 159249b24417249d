"""Members with instance ids, and topics that appear, grow and go (T76, G15, G23)."""

from __future__ import annotations

import pytest
from groups_alone import GroupsAlone, Topics, answered_with, code


@pytest.fixture
def alone() -> GroupsAlone:
    """Two static members that are stable."""
    alone = GroupsAlone(Topics(foo=4))
    alone.join("a1", "foo", instance_id="a", session_timeout_ms=6_000)
    alone.join("b1", "foo", instance_id="b")
    alone.settle()
    return alone


def test_t76_leaving_for_a_restart(alone: GroupsAlone) -> None:
    """T76: a leave with -2 is answered -2, raises no epoch and keeps the partitions; the session still runs."""
    epoch, had = alone.group.epoch, alone.has("a1")

    assert alone.beat("a1", -2, instance_id="a").member_epoch == -2
    assert alone.group.epoch == epoch
    assert alone.has("a1") == had
    alone.tick(6_000)
    assert alone.group.epoch == epoch + 1
    assert "a1" not in alone.group.members


def test_t76_the_same_instance_comes_back(alone: GroupsAlone) -> None:
    """T76: the instance returns under another member id: the same assignment, no new epoch."""
    epoch, had = alone.group.epoch, alone.has("a1")
    alone.beat("a1", -2, instance_id="a")

    assert answered_with(alone.join("a2", "foo", instance_id="a", session_timeout_ms=6_000)) == (epoch, had)
    assert alone.group.epoch == epoch
    assert sorted(alone.group.members) == ["a2", "b1"]
    assert code(alone.beat("a1", epoch, instance_id="a")) == "FENCED_INSTANCE_ID"


def test_t76_an_instance_that_is_in_use(alone: GroupsAlone) -> None:
    """T76: while the old member is present, another with its instance id is refused: UNRELEASED_INSTANCE_ID."""
    assert alone.join("a2", "foo", instance_id="a").code == 111


def test_t76_wrong_ids(alone: GroupsAlone) -> None:
    """T76: a wrong member id for a known instance is fenced (82), an unknown instance that leaves is unknown (25)."""
    assert alone.beat("b1", 2, instance_id="a").code == 82
    assert alone.beat("b1", -2, instance_id="a").code == 82
    assert alone.beat("a1", -2, instance_id="c").code == 25


def test_another_assignor_after_the_restart_is_a_new_target(alone: GroupsAlone) -> None:
    """KAFKA-20434: a static member that returns with another assignor gets the group a new target."""
    epoch = alone.group.epoch
    alone.beat("a1", -2, instance_id="a")
    alone.beat("b1", owned=alone.has("b1"), server_assignor="range")
    alone.join("a2", "foo", instance_id="a", server_assignor="range")
    alone.settle()

    assert alone.group.epoch == epoch + 2
    assert alone.group.target.assignor == "range"
    assert (alone.has("a2"), alone.has("b1")) == ({"foo": [0, 1]}, {"foo": [2, 3]})


def test_another_subscription_after_the_restart_is_a_new_epoch(alone: GroupsAlone) -> None:
    """G15: what the member subscribes to has changed over its restart."""
    epoch = alone.group.epoch
    alone.topics.put("bar", 1)
    alone.beat("a1", -2, instance_id="a")
    alone.join("a2", "foo", "bar", instance_id="a")

    assert alone.group.epoch == epoch + 1


def test_who_is_away_is_not_heard(alone: GroupsAlone) -> None:
    """A member that left with -2 comes back with epoch 0 only, and commits nothing until then."""
    epoch = alone.group.current["a1"].member_epoch
    alone.beat("a1", -2, instance_id="a")

    assert code(alone.beat("a1", epoch, instance_id="a")) == "FENCED_MEMBER_EPOCH"
    assert [each.refusal.code.name for each in alone.commit(member_id="a1", epoch=epoch)] == ["STALE_MEMBER_EPOCH"]
    assert alone.join("a1", "foo", instance_id="a").member_epoch == epoch


# Topics that appear, grow and go, patterns, and memberships that read them (G15, G23).


@pytest.fixture
def alone_topics() -> GroupsAlone:
    return GroupsAlone(Topics(foo=2))


def test_partitions_that_are_added(alone_topics: GroupsAlone) -> None:
    """G15: a subscribed topic that gains partitions raises the epoch once; members get them."""
    alone_topics.join("m", "foo")
    alone_topics.topics.put("foo", 3)
    alone_topics.settle()

    assert alone_topics.group.epoch == 2
    assert alone_topics.has("m") == {"foo": [0, 1, 2]}
    assert alone_topics.tick(1) == 0


def test_a_topic_that_is_deleted(alone_topics: GroupsAlone) -> None:
    """G15: its partitions are taken back; the same name made again is another topic."""
    alone_topics.topics.put("bar", 1)
    alone_topics.join("m", "foo", "bar")
    alone_topics.topics.drop("bar")
    alone_topics.settle()
    assert alone_topics.has("m") == {"foo": [0, 1]}

    alone_topics.topics.put("bar", 1, topic_id="second-id")
    alone_topics.settle()
    assert alone_topics.has("m") == {"foo": [0, 1], "second": [0]}


def test_topics_without_a_subscriber(alone_topics: GroupsAlone) -> None:
    """A change of other topics is no reason for a new target."""
    alone_topics.join("m", "foo")
    alone_topics.topics.put("other", 3)

    assert alone_topics.tick(1) == 0


def test_a_pattern_matches_whole_names(alone_topics: GroupsAlone) -> None:
    """G23: full matches of topics that are not internal; what appears later comes by itself."""
    alone_topics.topics.put("foobar", 1)
    alone_topics.topics.put("__foo", 1, internal=True)
    alone_topics.join("m", subscribed_topic_regex=".*foo")
    assert alone_topics.has("m") == {"foo": [0, 1]}

    alone_topics.topics.put("myfoo", 1)
    alone_topics.settle()
    assert alone_topics.has("m") == {"foo": [0, 1], "myfoo": [0]}


def test_a_pattern_is_taken_back(alone_topics: GroupsAlone) -> None:
    """An empty pattern takes the earlier one back; an absent one leaves it."""
    alone_topics.topics.put("bar", 1)
    alone_topics.join("m", "bar", subscribed_topic_regex="fo+")
    assert alone_topics.has("m") == {"bar": [0], "foo": [0, 1]}

    alone_topics.beat("m")
    assert alone_topics.group.epoch == 1
    alone_topics.beat("m", owned=alone_topics.has("m"), subscribed_topic_regex="")
    alone_topics.settle()
    assert alone_topics.has("m") == {"bar": [0]}


def test_a_name_that_does_not_exist_yet(alone_topics: GroupsAlone) -> None:
    """A member may wait for a topic; nothing is assigned until there is one."""
    assert answered_with(alone_topics.join("m", "later")) == (1, {})
    alone_topics.topics.put("later", 1)
    alone_topics.settle()

    assert alone_topics.has("m") == {"later": [0]}


def test_a_new_coordinator_sees_what_changed_meanwhile(alone_topics: GroupsAlone) -> None:
    """G15: topics that changed while no coordinator looked are seen at the first tick after the load."""
    alone_topics.join("m", "foo")
    other = GroupsAlone(Topics(foo=5))
    for record in alone_topics.log:
        other.machine.apply(record)
    other.machine.excuse(other.context)
    other.invariants = alone_topics.invariants
    other.settle()

    assert other.has("m") == {"foo": [0, 1, 2, 3, 4]}


def test_racks_of_members_are_a_reason(alone_topics: GroupsAlone) -> None:
    """G15: a member that moves to another rack raises the epoch; the same rack does not. An empty one takes it back."""
    alone_topics.join("m", "foo", rack_id="r1")
    alone_topics.beat("m", rack_id="r1")
    assert alone_topics.group.epoch == 1
    alone_topics.beat("m", rack_id="r2")
    assert alone_topics.group.epoch == 2
    alone_topics.beat("m")
    assert (alone_topics.group.epoch, alone_topics.group.members["m"].rack_id) == (2, "r2")
    alone_topics.beat("m", rack_id="")
    assert (alone_topics.group.epoch, alone_topics.group.members["m"].rack_id) == (3, None)
