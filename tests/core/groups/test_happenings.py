"""What a machine of groups shows of itself (G33): each change once, a batch as a whole, nothing of a load."""

from __future__ import annotations

from groups_alone import GROUP, GroupsAlone, Topics, parts, seed

from strandline.core.groups.happenings import GroupChange, MemberChange


def _shown(alone: GroupsAlone) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for each in alone.seen:
        if isinstance(each, GroupChange):
            states = f"{each.old_state} to {each.new_state}"
            rows.append((states, f"{each.group_epoch}/{each.target_epoch}", each.cause))
        else:
            rows.append((each.member_id, str(each.member_epoch), each.phase))
    alone.seen.clear()
    return rows


def test_a_rebalance_from_join_to_stable() -> None:
    """Two members join, one gives up, one is given, and the group is stable again."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m1", "foo")
    assert _shown(alone) == [("m1", "1", "joined"), ("Dead to Stable", "1/1", "join")]

    alone.join("m2", "foo")
    assert _shown(alone) == [("m2", "2", "joined"), ("Stable to Reconciling", "2/2", "join")]

    alone.beat("m1")
    (asked,) = alone.seen
    assert isinstance(asked, MemberChange)
    assert [parts(*held) for held in (asked.assigned, asked.revoking)] == [{"foo": [0]}, {"foo": [1]}]
    assert _shown(alone) == [("m1", "1", "revoking")]

    alone.beat("m1", owned={"foo": [0]})
    alone.beat("m2")
    assert _shown(alone) == [
        ("m1", "2", "assigned"),
        ("m2", "2", "assigned"),
        ("Reconciling to Stable", "2/2", "reconciled"),
    ]


def test_members_that_go() -> None:
    """Leaving, silence, slowness and a restart are distinguished as far as the rows allow."""
    alone = GroupsAlone(Topics(foo=2))
    for member in ("m1", "m2"):
        alone.join(member, "foo", instance_id=member)
    alone.seen.clear()
    alone.beat("m1")
    _shown(alone)

    alone.tick(10_001)
    assert _shown(alone) == [("m1", "1", "fenced"), ("Reconciling to Assigning", "3/2", "fenced")]
    alone.beat("m2", -2, instance_id="m2")
    assert _shown(alone) == [("m2", "2", "away")]
    alone.tick(45_000)
    assert _shown(alone) == [
        ("m1", "None", "gone"),
        ("m2", "None", "gone"),
        ("Assigning to Empty", "4/2", "leave"),
    ]


def test_topics_and_targets() -> None:
    """A topic that grows is one change, the target for it another."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m1", "foo")
    alone.seen.clear()
    alone.topics.put("foo", 3)

    alone.tick(1)
    alone.tick(1)

    assert _shown(alone) == [
        ("Stable to Assigning", "2/1", "interest"),
        ("Assigning to Reconciling", "2/2", "target"),
    ]


def test_a_load_is_no_news() -> None:
    """Rows that are read before the shard serves are shown to nobody; neither is a heartbeat that changes nothing."""
    alone = GroupsAlone(Topics(foo=2))
    alone.machine._is_shown = False
    seed(alone, 3, {"m1": {"foo": [0, 1]}}, ("foo",))
    alone.beat("m1")

    assert alone.seen == []
    assert alone.machine.groups[GROUP].state == "Stable"
