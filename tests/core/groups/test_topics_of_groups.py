"""Topics that appear, grow and go, patterns, and memberships that read them (G15, G23)."""

from __future__ import annotations

import pytest
from groups_alone import GroupsAlone, Topics, answered_with


@pytest.fixture
def alone() -> GroupsAlone:
    return GroupsAlone(Topics(foo=2))


def test_partitions_that_are_added(alone: GroupsAlone) -> None:
    """G15: a subscribed topic that gains partitions raises the epoch once; members get them."""
    alone.join("m", "foo")
    alone.topics.put("foo", 3)
    alone.settle()

    assert alone.group.epoch == 2
    assert alone.has("m") == {"foo": [0, 1, 2]}
    assert alone.tick(1) == 0


def test_a_topic_that_is_deleted(alone: GroupsAlone) -> None:
    """G15: its partitions are taken back; the same name made again is another topic."""
    alone.topics.put("bar", 1)
    alone.join("m", "foo", "bar")
    alone.topics.drop("bar")
    alone.settle()
    assert alone.has("m") == {"foo": [0, 1]}

    alone.topics.put("bar", 1, topic_id="second-id")
    alone.settle()
    assert alone.has("m") == {"foo": [0, 1], "second": [0]}


def test_topics_nobody_subscribes_to(alone: GroupsAlone) -> None:
    """A change of other topics is no reason for a new target."""
    alone.join("m", "foo")
    alone.topics.put("other", 3)

    assert alone.tick(1) == 0


def test_a_pattern_matches_whole_names(alone: GroupsAlone) -> None:
    """G23: full matches of topics that are not internal; what appears later comes by itself."""
    alone.topics.put("foobar", 1)
    alone.topics.put("__foo", 1, internal=True)
    alone.join("m", subscribed_topic_regex=".*foo")
    assert alone.has("m") == {"foo": [0, 1]}

    alone.topics.put("myfoo", 1)
    alone.settle()
    assert alone.has("m") == {"foo": [0, 1], "myfoo": [0]}


def test_a_pattern_is_taken_back(alone: GroupsAlone) -> None:
    """An empty pattern takes the earlier one back; an absent one leaves it."""
    alone.topics.put("bar", 1)
    alone.join("m", "bar", subscribed_topic_regex="fo+")
    assert alone.has("m") == {"bar": [0], "foo": [0, 1]}

    alone.beat("m")
    assert alone.group.epoch == 1
    alone.beat("m", owned=alone.has("m"), subscribed_topic_regex="")
    alone.settle()
    assert alone.has("m") == {"bar": [0]}


def test_a_name_that_does_not_exist_yet(alone: GroupsAlone) -> None:
    """A member may wait for a topic; nothing is assigned until there is one."""
    assert answered_with(alone.join("m", "later")) == (1, {})
    alone.topics.put("later", 1)
    alone.settle()

    assert alone.has("m") == {"later": [0]}


def test_a_new_coordinator_sees_what_changed_meanwhile(alone: GroupsAlone) -> None:
    """G15: topics that changed while no coordinator looked are seen at the first tick after the load."""
    alone.join("m", "foo")
    other = GroupsAlone(Topics(foo=5))
    for record in alone.log:
        other.machine.apply(record)
    other.machine.excuse(other.context)
    other.invariants = alone.invariants

    other.settle()

    assert other.has("m") == {"foo": [0, 1, 2, 3, 4]}


def test_racks_of_members_are_a_reason(alone: GroupsAlone) -> None:
    """G15: a member that moves to another rack raises the epoch; the same rack does not. An empty one takes it back."""
    alone.join("m", "foo", rack_id="r1")
    alone.beat("m", rack_id="r1")
    assert alone.group.epoch == 1
    alone.beat("m", rack_id="r2")
    assert alone.group.epoch == 2
    alone.beat("m")
    assert (alone.group.epoch, alone.group.members["m"].rack_id) == (2, "r2")
    alone.beat("m", rack_id="")
    assert (alone.group.epoch, alone.group.members["m"].rack_id) == (3, None)
