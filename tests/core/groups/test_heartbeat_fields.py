"""Which heartbeats are refused for their fields, with exact numbers (T103, G12)."""

from __future__ import annotations

from typing import Any

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, code, tps

from strandline.core.errors import ErrorCode
from strandline.core.groups.messages import ConsumerGroupHeartbeat, GroupSettings

JOIN: dict[str, Any] = {
    "group_id": GROUP,
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "topic_partitions": (),
    "subscribed_topic_names": ("foo",),
}


@pytest.fixture
def alone() -> GroupsAlone:
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
def test_t103_invalid_fields(alone: GroupsAlone, changed: dict[str, Any], field: str) -> None:
    """T103: each is INVALID_REQUEST (42) and names its field; nothing is written."""
    answer = alone.ask(ConsumerGroupHeartbeat(**(JOIN | changed)))

    assert answer.code == 42
    assert answer.field == field
    assert answer.message.startswith(field)
    assert alone.log == []


def test_t103_unknown_assignor(alone: GroupsAlone) -> None:
    """T103: an assignor that does not exist is UNSUPPORTED_ASSIGNOR (112), with those that do."""
    answer = alone.ask(ConsumerGroupHeartbeat(**JOIN, server_assignor="sticky"))

    assert answer.code == 112
    assert "range, uniform" in answer.message


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "(a{1000}){1000}", "x" * 1_025])
def test_patterns_that_re2_refuses(alone: GroupsAlone, pattern: str) -> None:
    """G23: a malformed pattern, one with look-ahead or back-references, and one above 1 KiB are refused (128)."""
    answer = alone.ask(
        ConsumerGroupHeartbeat(**(JOIN | {"subscribed_topic_names": None}), subscribed_topic_regex=pattern)
    )

    assert answer.code == 128
    assert answer.field == "subscribed_topic_regex"
    assert alone.log == []


def test_the_member_above_the_limit() -> None:
    """G13: one member more than the group may have is GROUP_MAX_SIZE_REACHED (81); the others may join again."""
    alone = GroupsAlone(Topics(foo=3), GroupSettings(max_members=2, assignment_interval_ms=0))
    alone.join("m1", "foo")
    alone.join("m2", "foo")

    assert alone.join("m3", "foo").code == 81
    assert alone.join("m2", "foo").member_epoch == 2


def test_members_nobody_knows(alone: GroupsAlone) -> None:
    """G19: an unknown id with an epoch above 0, or that leaves, is UNKNOWN_MEMBER_ID (25)."""
    alone.join("m1", "foo")

    assert alone.beat("m2", 1).code == 25
    assert alone.beat("m2", -1).code == 25


def test_another_coordinator_epoch(alone: GroupsAlone) -> None:
    """G19: a heartbeat or a commit for another coordinator epoch is NOT_COORDINATOR (16), and changes nothing."""
    alone.join("m1", "foo")
    before = len(alone.log)

    assert alone.beat("m1", 1, coordinator_epoch=6).code == 16
    assert alone.beat("m1", -1, coordinator_epoch=8).code == 16
    assert alone.commit(member_id="m1", epoch=1, coordinator_epoch=6).code == 16
    assert len(alone.log) == before
    assert alone.beat("m1", 1, coordinator_epoch=7).member_epoch == 1


def test_the_defaults_are_kafkas(alone: GroupsAlone) -> None:
    """G13: session 45 s and heartbeat 5 s, or a third of a shorter session that the member chose."""
    assert alone.join("m1", "foo").heartbeat_interval_ms == 5_000
    answer = alone.join("m2", "foo", session_timeout_ms=6_000)

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


def test_a_group_of_one_bad_name_is_not_kept(alone: GroupsAlone) -> None:
    """A refused request leaves no trace of its group."""
    alone.beat("m1", 4)

    assert alone.machine.groups == {}
    assert code(alone.commit(epoch=3, member_id="m1")) == "UNKNOWN_MEMBER_ID"
    assert alone.machine.groups == {}
