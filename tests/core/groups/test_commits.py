"""Commits, fetches and deletion of offsets (T78 to T81, G26 to G30), and late copies (G19)."""

from __future__ import annotations

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, aim, answered_with, code, codes, seed, tps

from strandline.core.coordinator.machine import Decision, Record
from strandline.core.groups.messages import (
    DeleteGroup,
    GroupSettings,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
)
from strandline.core.groups.records import AssignedPartition, CurrentKey, CurrentValue, MemberState
from strandline.core.types import LeaderEpoch, Offset, TopicPartition


@pytest.fixture
def alone() -> GroupsAlone:
    return GroupsAlone(Topics(foo=6, bar=3))


def _fetch(alone: GroupsAlone, **named: object) -> list[tuple[str, int, int | None]]:
    answer = alone.ask(OffsetFetch(group_id=GROUP, **named))  # type: ignore[arg-type]
    return [(each.tp.topic_id.removesuffix("-id"), each.tp.partition, each.offset) for each in answer.partitions]


def test_t78_epochs_of_a_commit(alone: GroupsAlone) -> None:
    """T78, KIP-1251: taken from the epoch in which the partition was assigned up to the member's, each for itself."""
    seed(alone, 10, {"m": {}}, ("foo",))
    p, q, r = tps({"foo": [0, 1, 2]})
    row = CurrentValue(10, 9, MemberState.STABLE, (AssignedPartition(p, 8), AssignedPartition(q, 10)))
    # The invariants' own model counts from when it saw the partitions.
    early = CurrentValue(8, 7, MemberState.STABLE, (AssignedPartition(p, 8),))
    alone.machine.apply(Record(CurrentKey(GROUP, "m"), row))
    alone.invariants.__init__()  # type: ignore[misc]
    alone.invariants.decided(None, [alone.log[:1], (Record(CurrentKey(GROUP, "m"), early),)])  # type: ignore[list-item]
    alone.invariants.decided(None, [(Record(CurrentKey(GROUP, "m"), row),)])
    found = codes(alone.commit(epoch=9, member_id="m", of={"foo": [0, 1, 2]}))

    assert found == ["OK", "STALE_MEMBER_EPOCH", "STALE_MEMBER_EPOCH"]
    assert codes(alone.commit(epoch=11, member_id="m")) == ["STALE_MEMBER_EPOCH"]
    assert codes(alone.commit(epoch=7, member_id="m")) == ["STALE_MEMBER_EPOCH"]
    assert codes(alone.commit(epoch=10, member_id="m", of={"foo": [0, 1, 2]})) == ["OK", "OK", "STALE_MEMBER_EPOCH"]
    assert r not in dict(alone.group.offset_rows())


def test_a_partition_that_is_given_up_can_be_committed(alone: GroupsAlone) -> None:
    """G20: a member commits what it is asked to give up until it has given it up, in its old epoch."""
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.beat("m1")
    (going, *_) = alone.group.current["m1"].revoking
    index = going.tp.partition

    assert codes(alone.commit(epoch=1, member_id="m1", of={"foo": [index]})) == ["OK"]
    alone.beat("m1", owned=alone.has("m1"))
    assert codes(alone.commit(epoch=1, member_id="m1", of={"foo": [index]})) == ["STALE_MEMBER_EPOCH"]


def test_t79_without_a_member(alone: GroupsAlone) -> None:
    """T79: a commit without a member is taken while the group has none, else UNKNOWN_MEMBER_ID (25)."""
    assert codes(alone.commit()) == ["OK"]
    assert alone.group.state == "Empty"
    alone.join("m", "foo")

    assert alone.commit().code == 25
    alone.beat("m", -1)
    assert codes(alone.commit(7)) == ["OK"]


def test_t79_metadata_too_large(alone: GroupsAlone) -> None:
    """T79: 4,097 bytes of metadata are OFFSET_METADATA_TOO_LARGE (12) for that partition; the other is committed."""
    p0, p1 = tps({"foo": [0, 1]})
    offsets = (OffsetToCommit(p0, Offset(1), None, "x" * 4_097), OffsetToCommit(p1, Offset(2), None, "x" * 4_096))
    answer = alone.ask(OffsetCommit(group_id=GROUP, offsets=offsets))

    assert [each.refusal and int(each.refusal.code) for each in answer.partitions] == [12, None]
    assert _fetch(alone) == [("foo", 1, 2)]


def test_bad_offsets(alone: GroupsAlone) -> None:
    """G26: below 0 is refused, beyond any end is taken; so are topics and partitions that do not exist refused."""
    assert codes(alone.commit(-1)) == ["INVALID_REQUEST"]
    assert codes(alone.commit(10**15)) == ["OK"]
    assert codes(alone.commit(of={"foo": [6], "nope": [0]})) == ["UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"]
    assert code(alone.ask(OffsetCommit(group_id=" ", offsets=()))) == "INVALID_GROUP_ID"
    assert code(alone.ask(OffsetFetch(group_id=""))) == "INVALID_GROUP_ID"


def test_what_a_fetch_shows(alone: GroupsAlone) -> None:
    """OffsetFetch returns offset, leader epoch, text and time; a partition without a commit, or a group, has none."""
    (tp,) = tps({"foo": [3]})
    assert _fetch(alone) == []
    alone.ask(OffsetCommit(group_id=GROUP, offsets=(OffsetToCommit(tp, Offset(9), LeaderEpoch(2), "note"),)))
    first, second = alone.ask(OffsetFetch(group_id=GROUP, partitions=(tp, TopicPartition("foo-id", 0)))).partitions
    assert (first.offset, first.leader_epoch, first.metadata, first.commit_ms) == (9, 2, "note", alone.now_ms)
    assert (second.offset, second.refusal) == (None, None)


def test_fetch_with_another_epoch(alone: GroupsAlone) -> None:
    """G28: a member that asks in another epoch is STALE_MEMBER_EPOCH (113), a stranger UNKNOWN_MEMBER_ID (25)."""
    alone.join("m", "foo")

    assert alone.ask(OffsetFetch(group_id=GROUP, member_id="m", member_epoch=0)).code == 113
    assert alone.ask(OffsetFetch(group_id=GROUP, member_id="x", member_epoch=1)).code == 25
    assert _fetch(alone, member_id="m", member_epoch=1) == []


def test_only_a_stable_fetch_waits_for_a_barrier(alone: GroupsAlone) -> None:
    """G10: require_stable asks for a read barrier."""
    for stable in (False, True):
        assert alone.machine.decide(OffsetFetch(group_id=GROUP, require_stable=stable), alone.context).barrier is stable


def test_t80_retention() -> None:
    """T80: retention of 1 min spares what a member subscribes to; then the rest goes, and then the group."""
    alone = GroupsAlone(
        Topics(first=3, second=3),
        GroupSettings(offsets_retention_ms=60_000, offsets_retention_check_ms=1, assignment_interval_ms=0),
    )
    began_ms = alone.now_ms
    alone.commit(of={"first": [0], "second": [0]})
    alone.now_ms = began_ms + 500
    alone.commit(of={"second": [1]})
    alone.join("m", "first", session_timeout_ms=1_000_000)
    alone.now_ms = began_ms + 60_000
    alone.tick()
    assert [row[:2] for row in _fetch(alone)] == [("first", 0), ("second", 1)]
    alone.tick(500)
    assert [row[:2] for row in _fetch(alone)] == [("first", 0)]

    alone.beat("m", -1)
    left_ms = alone.now_ms
    alone.commit(of={"first": [1], "second": [0]})
    alone.now_ms = left_ms + 59_999
    alone.tick()
    assert [row[:2] for row in _fetch(alone)] == [("first", 0), ("first", 1), ("second", 0)]
    alone.tick(1)
    assert alone.machine.groups == {}
    assert alone.folded() == {}


def test_an_empty_group_without_offsets_goes() -> None:
    """G29: a group of which nothing is left goes at the next check."""
    alone = GroupsAlone(Topics(foo=1), GroupSettings(offsets_retention_check_ms=10))
    alone.join("m", "foo")
    alone.beat("m", -1)
    alone.tick(1)
    alone.tick(10)

    assert alone.machine.groups == {}


def test_offsets_of_a_deleted_topic_go(alone: GroupsAlone) -> None:
    """G29: they go with the topic, and so does its id; one that this node's metadata never had may be newer."""
    alone.commit(of={"foo": [0], "bar": [1]})
    alone.tick()
    alone.topics.drop("foo")
    alone.tick()
    assert [row[:2] for row in _fetch(alone)] == [("bar", 1)]
    assert alone.machine._seen_topics == {"bar-id"}

    late = GroupsAlone(Topics(other=1))
    late.take(Decision(batches=(tuple(alone.log[:2]),)), OffsetCommit(group_id=GROUP, offsets=()))
    late.tick()
    assert len(_fetch(late)) == 2


def test_t81_offset_delete(alone: GroupsAlone) -> None:
    """T81: a topic that is subscribed to is GROUP_SUBSCRIBED_TO_TOPIC (86), an unknown partition no error."""
    alone.commit(of={"foo": [0], "bar": [0]})
    alone.join("m", "foo")
    partitions = tps({"foo": [0], "bar": [0, 2]})
    answer = alone.ask(OffsetDelete(group_id=GROUP, partitions=partitions))

    assert [each.refusal and int(each.refusal.code) for each in answer.partitions] == [86, None, None]
    assert [row[:2] for row in _fetch(alone)] == [("foo", 0)]
    assert alone.ask(OffsetDelete(group_id="nobody", partitions=())).code == 69


def test_delete_group(alone: GroupsAlone) -> None:
    """G30: NON_EMPTY_GROUP (68) with members; without, all goes; GROUP_ID_NOT_FOUND (69) after that."""
    alone.join("m", "foo")
    alone.commit(member_id="m", epoch=1)
    assert alone.ask(DeleteGroup(group_id=GROUP)).code == 68
    alone.beat("m", -1)
    alone.ask(DeleteGroup(group_id=GROUP))

    assert alone.machine.groups == alone.folded() == {}
    assert alone.ask(DeleteGroup(group_id=GROUP)).code == 69


def test_a_group_is_not_deleted_while_a_lease_may_run(alone: GroupsAlone) -> None:
    """G21, G30: partitions of a removed member are free with the end of its session, also by way of a deletion."""
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.beat("m1")
    alone.tick(10_001)
    alone.beat("m2", -1)
    assert alone.group.members == {}
    assert alone.ask(DeleteGroup(group_id=GROUP)).code == 68
    alone.tick(45_000)
    assert not hasattr(alone.ask(DeleteGroup(group_id=GROUP)), "code")


def test_orders_rise_over_deletions(alone: GroupsAlone) -> None:
    """G26: an order that was given is never given again, also when its offset was deleted before a failover."""
    alone.commit()
    alone.commit(of={"bar": [0]})
    alone.ask(OffsetDelete(group_id=GROUP, partitions=tps({"bar": [0]})))

    # A sweep has written the live rows again and cut off the front.
    newest = dict(alone.log)
    alone.log = [Record(key, value) for key, value in newest.items() if value is not None]
    assert alone.folded()[GROUP]["top_order"] == alone.group.top_order == 2


# Late copies of heartbeats and commits change nothing (G19, trace TR41).


@pytest.fixture
def alone_late() -> GroupsAlone:
    return GroupsAlone(Topics(foo=4))


def test_tr41_a_report_from_before_a_partition_came(alone_late: GroupsAlone) -> None:
    """TR41: M reports {1,2}, slow; again, and gets 3; is asked to give 3 up; the first report gives nothing up."""
    seed(alone_late, 10, {"m": {"foo": [1, 2]}, "n": {"foo": [0]}}, ("foo",))
    alone_late.beat("m", 10, {"foo": [1, 2]}, sequence=2)
    aim(alone_late, 10, {"m": {"foo": [1, 2, 3]}})
    aim(alone_late, 11, {"m": {"foo": [1, 2, 3]}})
    assert answered_with(alone_late.beat("m", 10, {"foo": [1, 2]}, sequence=3)) == (11, {"foo": [1, 2, 3]})
    aim(alone_late, 12, {"m": {"foo": [1, 2]}, "n": {"foo": [0, 3]}})
    assert answered_with(alone_late.beat("m", 11, sequence=4)) == (11, {"foo": [1, 2]})

    late = alone_late.beat("m", 11, {"foo": [1, 2]}, sequence=1)
    answered = answered_with(alone_late.beat("n", owned={"foo": [0]}))
    assert alone_late.has("n") == {"foo": [0]}, "I32: N is given partition 3, which M still reads"
    assert (code(late), answered) == ("REQUEST_TIMED_OUT", (12, None))
    alone_late.beat("m", 11, {"foo": [1, 2]}, sequence=5)
    assert answered_with(alone_late.beat("n", owned={"foo": [0]})) == (12, {"foo": [0, 3]})


def test_a_late_join_releases_nothing(alone_late: GroupsAlone) -> None:
    """G19: the second copy of a join would give up all that the member holds."""
    alone_late.join("m", "foo", sequence=1)
    before = len(alone_late.log)

    assert code(alone_late.join("m", "foo", sequence=1)) == "REQUEST_TIMED_OUT"
    assert len(alone_late.log) == before


def test_a_late_join_of_one_that_left_makes_no_member(alone_late: GroupsAlone) -> None:
    """G19: the sequence of a member that left is remembered for a while."""
    alone_late.join("m", "foo", sequence=1)
    alone_late.beat("m", -1, sequence=2)

    assert code(alone_late.join("m", "foo", sequence=1)) == "REQUEST_TIMED_OUT"
    assert alone_late.group.members == {}


def test_sequences_are_forgotten(alone_late: GroupsAlone) -> None:
    """What is remembered of members that are gone is bounded in time."""
    alone_late.join("m", "foo", sequence=1)
    alone_late.beat("m", -1, sequence=2)
    alone_late.tick(599_999)
    assert alone_late.machine.timers.is_late_heartbeat((GROUP, "m"), 2)
    alone_late.tick(1)
    assert not alone_late.machine.timers.is_late_heartbeat((GROUP, "m"), 2)


def test_a_late_commit(alone_late: GroupsAlone) -> None:
    """G19: commits have sequences of their own; a late copy does not set the offset back."""
    alone_late.join("m", "foo", sequence=9)
    assert codes(alone_late.commit(3, 1, "m", sequence=1)) == ["OK"]
    assert codes(alone_late.commit(7, 1, "m", sequence=2)) == ["OK"]
    assert code(alone_late.commit(3, 1, "m", sequence=1)) == "REQUEST_TIMED_OUT"
    assert alone_late.group.offsets["foo-id"][0].offset == 7


def test_a_gateway_sends_no_sequence(alone_late: GroupsAlone) -> None:
    """G19: one ordered connection needs none; it is not checked."""
    alone_late.join("m", "foo")

    assert alone_late.join("m", "foo").member_epoch == 1
