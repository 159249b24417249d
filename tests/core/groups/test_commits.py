"""Commits, fetches and deletion of offsets, and their end by age (T78 to T81, G26 to G30)."""

from __future__ import annotations

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, code, codes, seed, tps

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

    assert codes(alone.commit(epoch=9, member_id="m", of={"foo": [0, 1, 2]})) == [
        "OK",
        "STALE_MEMBER_EPOCH",
        "STALE_MEMBER_EPOCH",
    ]
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

    answer = alone.ask(OffsetFetch(group_id=GROUP, partitions=(tp, TopicPartition("foo-id", 0))))

    first, second = answer.partitions
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
        decision = alone.machine.decide(OffsetFetch(group_id=GROUP, require_stable=stable), alone.context)
        assert decision.barrier is stable


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
    """G29: they go with the topic; one that this node's metadata never had may be newer than that, and stays."""
    alone.commit(of={"foo": [0], "bar": [1]})
    alone.tick()
    alone.topics.drop("foo")
    alone.tick()
    assert [row[:2] for row in _fetch(alone)] == [("bar", 1)]

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
