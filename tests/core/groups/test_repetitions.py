"""When a coordinator says again what its groups and members are (G33): once it serves, and once an hour."""

from __future__ import annotations

from typing import Any

from groups_alone import GROUP, GroupsAlone, Topics, seed

from strandline.core.coordinator.machine import Reports
from strandline.core.groups.group import Group, GroupState
from strandline.core.groups.happenings import Cause, GroupChange, MemberChange
from strandline.core.groups.messages import DeleteGroup
from strandline.core.groups.reporting import HOUR_MS, PARTS_PER_TICK, GroupReporting, Repetitions
from strandline.core.log.effects import Effect, Emit
from strandline.core.state_events import GroupChange as GroupChangeEvent
from strandline.core.state_events import MemberChange as MemberChangeEvent
from strandline.core.types import LeaderEpoch, TopicPartition


def _stable(members: int, partitions: int) -> GroupsAlone:
    """A group of members that have as many partitions each."""
    alone = GroupsAlone(Topics(foo=partitions))
    share = partitions // members
    given = {f"m{n:05}": {"foo": range(n * share, (n + 1) * share)} for n in range(members)}
    seed(alone, 3, given, ("foo",))
    return alone


def _all(repetitions: Repetitions, groups: dict[str, Group], unix_ms: int) -> list[GroupChange | MemberChange]:
    """What is reported until a tick reports nothing."""
    found: list[GroupChange | MemberChange] = []
    while rows := list(repetitions.due(groups, unix_ms)):
        found += rows
    return found


def test_every_member_and_group_is_repeated_as_it_is() -> None:
    """The members first, and both states of the group are the one it is in."""
    alone = _stable(2, 4)

    member, other, group = _all(Repetitions(), alone.machine.groups, 0)

    assert isinstance(member, MemberChange)
    assert (member.member_id, member.phase, member.member_epoch, member.cause) == ("m00000", "assigned", 3, "repeated")
    assert [tp.partition for tp in member.assigned] == [0, 1]
    assert isinstance(other, MemberChange)
    assert other.member_id == "m00001"
    stable = GroupState.STABLE
    assert group == GroupChange(GROUP, stable, stable, 3, 3, 2, Cause.REPEATED)


def test_a_member_that_was_asked_for_partitions_is_repeated_as_such() -> None:
    """Its phase is not that of a member that has settled."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.beat("m1")

    rows = _all(Repetitions(), alone.machine.groups, 0)

    phases = {row.member_id: (row.phase, len(row.revoking)) for row in rows if isinstance(row, MemberChange)}
    assert phases == {"m1": ("revoking", 1), "m2": ("assigned", 0)}


def test_it_is_repeated_once_an_hour() -> None:
    """At the first tick, and at the first one of each hour of the wall clock."""
    groups, repetitions = _stable(1, 1).machine.groups, Repetitions()

    counts = [len(_all(repetitions, groups, at_ms)) for at_ms in (5, HOUR_MS - 1, HOUR_MS, 2 * HOUR_MS - 1)]

    assert counts == [2, 0, 2, 0]


def test_a_tick_repeats_a_bounded_part() -> None:
    """1,000 members in one group, and 10,000 groups: none is left out, none comes twice; a tick reports less than its
    bound and one row."""
    large = _stable(1_000, 2_000).machine.groups
    many = {f"g{n}": Group(f"g{n}") for n in range(10_000)}
    for groups, rows in ((large, 1_001), (many, 10_000)):
        repetitions, found = Repetitions(), list[GroupChange | MemberChange]()
        while tick := list(repetitions.due(groups, 0)):
            assert sum(_parts(row) for row in tick[:-1]) < PARTS_PER_TICK
            found += tick
        assert len(found) == len({(row.group_id, getattr(row, "member_id", None)) for row in found}) == rows


def _parts(row: Any) -> int:
    return 1 + len(getattr(row, "assigned", ()))


def test_an_hour_that_begins_before_all_is_repeated_waits() -> None:
    """Or the last groups would never be repeated."""
    groups = {f"g{n}": Group(f"g{n}") for n in range(2 * PARTS_PER_TICK)}
    repetitions = Repetitions()

    first = [row.group_id for row in repetitions.due(groups, 0)]
    second = [row.group_id for row in repetitions.due(groups, HOUR_MS)]

    assert first + second == list(groups)


def test_what_goes_meanwhile_is_left_out() -> None:
    """A member and a group that are gone are not said to be there."""
    alone = _stable(PARTS_PER_TICK, PARTS_PER_TICK)
    groups = alone.machine.groups
    groups["deleted"] = Group("deleted")
    repetitions = Repetitions()
    list(repetitions.due(groups, 0))
    last = f"m{PARTS_PER_TICK - 1:05}"
    alone.beat(last, -1)
    del groups["deleted"]

    rest = _all(repetitions, groups, 0)

    assert last not in {row.member_id for row in rest if isinstance(row, MemberChange)}
    assert [row.group_id for row in rest if isinstance(row, GroupChange)] == [GROUP]


def test_a_group_without_members_is_repeated_until_it_is_deleted() -> None:
    """One that only commits offsets is Empty."""
    alone = GroupsAlone(Topics(foo=1))
    alone.commit()
    repetitions = Repetitions()
    before = _all(repetitions, alone.machine.groups, 0)
    alone.ask(DeleteGroup(group_id=GROUP))

    assert before == [GroupChange(GROUP, GroupState.EMPTY, GroupState.EMPTY, 0, 0, 0, Cause.REPEATED)]
    assert _all(repetitions, alone.machine.groups, HOUR_MS) == []


def test_a_coordinator_that_has_loaded_reports_repetitions_in_its_epoch() -> None:
    """As events at its own partition, marked by their cause, without samples, too."""
    place, epoch = TopicPartition("group-state", 3), LeaderEpoch(8)
    alone = _stable(1, 1)
    reports = Reports(place, epoch)
    GroupReporting(reports, samples=False).ticked(alone.machine.groups, alone.context)
    out: list[Effect] = []
    reports.leave(out)

    member, group = (each for each in out if isinstance(each, Emit))

    assert (member.tp, group.tp) == (place, place)
    assert isinstance(member.event, MemberChangeEvent)
    assert (member.event.cause, member.event.phase, member.event.leader_epoch) == ("repeated", "assigned", epoch)
    assert group.event == GroupChangeEvent(GROUP, "Stable", "Stable", 3, 3, 1, "repeated", epoch)  # type: ignore[arg-type]
