"""Which state events a coordinator of groups reports, when again, and what people are shown of groups (G33)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from groups_alone import GROUP, GroupsAlone, Topics, parts, seed

from strandline.core.coordinator.machine import Record, Reports
from strandline.core.groups import reporting, reporting as groups_reporting
from strandline.core.groups.group import Group, GroupState
from strandline.core.groups.happenings import (
    Cause,
    GroupChange as GroupChangeHappenings,
    GroupChange as GroupChangeRepetitions,
    MemberChange as MemberChangeRepetitions,
)
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import DeleteGroup, DescribeGroup, ListGroups, OffsetCommit, OffsetToCommit
from strandline.core.log.effects import Effect, Emit
from strandline.core.state_events import (
    GroupChange,
    GroupChange as GroupChangeEvent,
    GroupOffsets,
    MemberChange,
    MemberChange as MemberChangeEvent,
)
from strandline.core.types import LeaderEpoch, Offset, TopicPartition

PLACE = TopicPartition("group-state", 3)
EPOCH = LeaderEpoch(7)


class Reported:
    """A machine of groups with its reports."""

    def __init__(self, partitions: int = 2, *, samples: bool = True, log: Sequence[Record] = ()) -> None:
        self.alone = GroupsAlone(Topics(foo=partitions))
        self.reports = Reports(PLACE, EPOCH)
        reporting = groups_reporting.GroupReporting(self.reports, samples=samples)
        self.alone.machine = GroupMachine(self.alone.machine.subscriptions._engine, self.alone.settings, reporting)
        for record in log:
            self.alone.machine.apply(record)
        self.alone.machine.excuse(self.alone.context)

    def left(self) -> list[Emit]:
        """What was reported since the last look."""
        out: list[Effect] = []
        self.reports.leave(out)
        return [each for each in out if isinstance(each, Emit)]

    def samples(self) -> list[tuple[str, int, int | None, int, dict[str, int]]]:
        """Group, partition, offset, commits and refused commits of each sample."""
        rows = []
        for emit in self.left():
            if isinstance(event := emit.event, GroupOffsets):
                rows.append((event.group_id, emit.tp.partition, event.committed, event.n_commits, dict(event.n_error)))
        return rows

    def tick(self, after_ms: int = 0) -> None:
        """Let time pass and tick until nothing is due any more."""
        self.alone.tick(after_ms)
        for _ in range(3):
            self.alone.tick()

    def commit(self, offsets: dict[int, int], **of_member: Any) -> Any:
        """Commit for partitions of ``foo``."""
        topic = self.alone.topics.by_name("foo")
        rows = tuple(OffsetToCommit(TopicPartition(topic.topic_id, p), Offset(o)) for p, o in offsets.items())
        return self.alone.ask(OffsetCommit(group_id=GROUP, offsets=rows, **of_member))


@pytest.fixture
def reported() -> Reported:
    return Reported()


def test_a_join_is_reported_with_the_epoch_and_the_partition_of_the_coordinator(reported: Reported) -> None:
    """The member first, then its group; both at the coordinator's own partition."""
    reported.alone.join("m1", "foo")
    member, group = reported.left()

    assert (member.tp, group.tp) == (PLACE, PLACE)
    topic = reported.alone.topics.by_name("foo")
    assert isinstance(member.event, MemberChange)
    assert (member.event.phase, member.event.member_epoch, member.event.leader_epoch) == ("joined", 1, EPOCH)
    assert set(member.event.assigned) == {f"{topic.topic_id}:0", f"{topic.topic_id}:1"}
    assert group.event == GroupChange(GROUP, "Dead", "Stable", 1, 1, 1, "join", EPOCH)  # type: ignore[arg-type]


def test_commits_of_one_second_are_one_row(reported: Reported) -> None:
    """Each row has the newest offset and how many commits were taken since the row before."""
    for offset in (4, 5, 6):
        reported.commit({0: offset})
    reported.tick()
    assert reported.samples() == [(GROUP, 0, 6, 3, {})]

    reported.commit({0: 7})
    reported.tick(groups_reporting.OPEN_EVERY_MS - 1)
    before = reported.samples()
    reported.tick(1)

    assert (before, reported.samples()) == ([], [(GROUP, 0, 7, 1, {})])


def test_a_row_is_at_the_partition_that_is_consumed(reported: Reported) -> None:
    """The row meets the HW of the consumed partition; the epoch is still the coordinator's."""
    reported.commit({1: 4})
    reported.tick()
    (emit,) = (each for each in reported.left() if isinstance(each.event, GroupOffsets))
    topic = reported.alone.topics.by_name("foo")
    assert emit.tp == TopicPartition(topic.topic_id, 1)
    assert isinstance(emit.event, GroupOffsets)
    assert emit.event.coordinator_epoch == EPOCH


def test_refused_commits_are_counted_by_error(reported: Reported) -> None:
    """A stranger's commit to a group with members is refused, and the row says so without an offset."""
    reported.alone.join("m1", "foo")
    reported.left()
    reported.commit({0: 4})
    reported.commit({0: 5, 1: 5})
    reported.tick()

    assert reported.samples() == [
        (GROUP, 0, None, 0, {"UNKNOWN_MEMBER_ID": 2}),
        (GROUP, 1, None, 0, {"UNKNOWN_MEMBER_ID": 1}),
    ]


def test_refusals_for_groups_that_do_not_exist_are_not_kept(reported: Reported) -> None:
    """Invented names must not fill the room of real groups."""
    reported.commit({0: -1})
    reported.tick()

    assert reported.samples() == []


def test_a_key_without_commits_is_reported_every_minute(reported: Reported) -> None:
    """A group that commits no more stays known."""
    reported.commit({0: 4})
    reported.tick()
    reported.samples()
    reported.tick(groups_reporting.LOOK_EVERY_MS - 1)
    before = reported.samples()
    reported.tick(1)

    assert (before, reported.samples()) == ([], [(GROUP, 0, 4, 0, {})])


def test_what_was_committed_before_a_load_is_reported_by_the_next_coordinator(reported: Reported) -> None:
    """The first look of a coordinator reports all that it loaded."""
    reported.commit({0: 4, 1: 9})
    after = Reported(log=reported.alone.log)
    after.tick()

    assert sorted(after.samples()) == [(GROUP, 0, 4, 0, {}), (GROUP, 1, 9, 0, {})]


def test_an_offset_that_is_forgotten_is_reported_as_absent(reported: Reported) -> None:
    """A deleted group's keys say once that nothing is committed."""
    reported.commit({0: 4})
    reported.tick()
    reported.samples()
    reported.alone.ask(DeleteGroup(group_id=GROUP))
    reported.tick(groups_reporting.OPEN_EVERY_MS)

    assert reported.samples() == [(GROUP, 0, None, 1, {})]


def test_a_tick_reports_a_bounded_number_of_keys() -> None:
    """Many keys leave over several ticks, none twice and none forgotten."""
    reported = Reported(partitions=3 * groups_reporting.KEYS_PER_TICK)
    reported.commit(dict.fromkeys(range(3 * groups_reporting.KEYS_PER_TICK), 4))
    seen: list[int] = []
    for _ in range(8):
        reported.alone.tick()
        now = reported.samples()
        assert len(now) <= groups_reporting.KEYS_PER_TICK
        seen += [partition for _, partition, *_ in now]

    assert sorted(set(seen)) == list(range(3 * groups_reporting.KEYS_PER_TICK))


def test_keys_beyond_the_bound_are_reported_by_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their commits are not counted; what is committed is reported all the same."""
    monkeypatch.setattr(reporting, "MOST_OPEN_KEYS", 2)
    reported = Reported(partitions=3)
    reported.tick()
    reported.commit({0: 4, 1: 4, 2: 4})
    reported.tick(groups_reporting.OPEN_EVERY_MS)
    counted = reported.samples()
    reported.tick(groups_reporting.LOOK_EVERY_MS)

    assert counted == [(GROUP, 0, 4, 1, {}), (GROUP, 1, 4, 1, {})]
    assert reported.samples() == [(GROUP, partition, 4, 0, {}) for partition in range(3)]


def test_without_samples_only_changes_are_reported() -> None:
    """A node that reports transitions only has no rows of commits."""
    reported = Reported(samples=False)
    reported.commit({0: 4})
    reported.tick(groups_reporting.LOOK_EVERY_MS)
    assert reported.samples() == []

    reported.alone.join("m1", "foo")
    assert [type(each.event) for each in reported.left()] == [MemberChange, GroupChange]


# What a machine of groups shows of itself (G33): each change once, a batch as a whole, nothing of a load.


def _shown(alone: GroupsAlone) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for each in alone.seen:
        if isinstance(each, GroupChangeHappenings):
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
    assert _shown(alone) == [("m1", "None", "gone"), ("m2", "None", "gone"), ("Assigning to Empty", "4/2", "leave")]


def test_topics_and_targets() -> None:
    """A topic that grows is one change, the target for it another."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m1", "foo")
    alone.seen.clear()
    alone.topics.put("foo", 3)
    alone.tick(1)
    alone.tick(1)

    assert _shown(alone) == [("Stable to Assigning", "2/1", "interest"), ("Assigning to Reconciling", "2/2", "target")]


def test_a_load_is_no_news() -> None:
    """Rows that are read before the shard serves are not reported; neither is a heartbeat that changes nothing."""
    alone = GroupsAlone(Topics(foo=2))
    alone.machine._is_shown = False
    seed(alone, 3, {"m1": {"foo": [0, 1]}}, ("foo",))
    alone.beat("m1")

    assert alone.seen == []
    assert alone.machine.groups[GROUP].state == "Stable"


# When a coordinator says again what its groups and members are (G33): once it serves, and once an hour.


def _stable(members: int, partitions: int) -> GroupsAlone:
    """A group of members that have as many partitions each."""
    alone = GroupsAlone(Topics(foo=partitions))
    share = partitions // members
    given = {f"m{n:05}": {"foo": range(n * share, (n + 1) * share)} for n in range(members)}
    seed(alone, 3, given, ("foo",))
    return alone


def _all(
    repetitions: groups_reporting.Repetitions, groups: dict[str, Group], unix_ms: int
) -> list[GroupChangeRepetitions | MemberChangeRepetitions]:
    """What is reported until a tick reports nothing."""
    found: list[GroupChangeRepetitions | MemberChangeRepetitions] = []
    while rows := list(repetitions.due(groups, unix_ms)):
        found += rows
    return found


def test_every_member_and_group_is_repeated_as_it_is() -> None:
    """The members first, and both states of the group are the one it is in."""
    alone = _stable(2, 4)
    member, other, group = _all(groups_reporting.Repetitions(), alone.machine.groups, 0)

    assert (member.member_id, member.phase, member.member_epoch, member.cause) == ("m00000", "assigned", 3, "repeated")
    assert [tp.partition for tp in member.assigned] == [0, 1]
    assert other.member_id == "m00001"
    stable = GroupState.STABLE
    assert group == GroupChangeRepetitions(GROUP, stable, stable, 3, 3, 2, Cause.REPEATED)


def test_a_member_that_was_asked_for_partitions_is_repeated_as_such() -> None:
    """Its phase is not that of a member that has settled."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m1", "foo")
    alone.join("m2", "foo")
    alone.beat("m1")
    rows = _all(groups_reporting.Repetitions(), alone.machine.groups, 0)
    phases = {row.member_id: (row.phase, len(row.revoking)) for row in rows if isinstance(row, MemberChangeRepetitions)}
    assert phases == {"m1": ("revoking", 1), "m2": ("assigned", 0)}


def test_it_is_repeated_once_an_hour() -> None:
    """Offsets are repeated at the first tick, and at the first one of each hour of the wall clock."""
    groups, repetitions = _stable(1, 1).machine.groups, groups_reporting.Repetitions()
    counts = [
        len(_all(repetitions, groups, at_ms))
        for at_ms in (5, groups_reporting.HOUR_MS - 1, groups_reporting.HOUR_MS, 2 * groups_reporting.HOUR_MS - 1)
    ]

    assert counts == [2, 0, 2, 0]


def test_a_tick_repeats_a_bounded_part() -> None:
    """1,000 members in one group, and 10,000 groups: none is left out, none comes twice; a tick reports less than its
    bound and one row."""
    large = _stable(1_000, 2_000).machine.groups
    many = {f"g{n}": Group(f"g{n}") for n in range(10_000)}
    for groups, rows in ((large, 1_001), (many, 10_000)):
        repetitions, found = groups_reporting.Repetitions(), list[GroupChangeRepetitions | MemberChangeRepetitions]()
        while tick := list(repetitions.due(groups, 0)):
            assert sum(_parts(row) for row in tick[:-1]) < groups_reporting.PARTS_PER_TICK
            found += tick
        assert len(found) == len({(row.group_id, getattr(row, "member_id", None)) for row in found}) == rows


def _parts(row: Any) -> int:
    return 1 + len(getattr(row, "assigned", ()))


def test_an_hour_that_begins_before_all_is_repeated_waits() -> None:
    """The next hour's repetition waits for this one, or the last groups would never be repeated."""
    groups = {f"g{n}": Group(f"g{n}") for n in range(2 * groups_reporting.PARTS_PER_TICK)}
    repetitions = groups_reporting.Repetitions()
    first = [row.group_id for row in repetitions.due(groups, 0)]
    second = [row.group_id for row in repetitions.due(groups, groups_reporting.HOUR_MS)]

    assert first + second == list(groups)


def test_what_goes_meanwhile_is_left_out() -> None:
    """A member and a group that are gone are not said to be there."""
    alone = _stable(groups_reporting.PARTS_PER_TICK, groups_reporting.PARTS_PER_TICK)
    groups = alone.machine.groups
    groups["deleted"] = Group("deleted")
    repetitions = groups_reporting.Repetitions()
    list(repetitions.due(groups, 0))
    last = f"m{groups_reporting.PARTS_PER_TICK - 1:05}"
    alone.beat(last, -1)
    del groups["deleted"]
    rest = _all(repetitions, groups, 0)

    assert last not in {row.member_id for row in rest if isinstance(row, MemberChangeRepetitions)}
    assert [row.group_id for row in rest if isinstance(row, GroupChangeRepetitions)] == [GROUP]


def test_a_group_without_members_is_repeated_until_it_is_deleted() -> None:
    """One that only commits offsets is Empty."""
    alone = GroupsAlone(Topics(foo=1))
    alone.commit()
    repetitions = groups_reporting.Repetitions()
    before = _all(repetitions, alone.machine.groups, 0)
    alone.ask(DeleteGroup(group_id=GROUP))

    assert before == [GroupChangeRepetitions(GROUP, GroupState.EMPTY, GroupState.EMPTY, 0, 0, 0, Cause.REPEATED)]
    assert _all(repetitions, alone.machine.groups, groups_reporting.HOUR_MS) == []


def test_a_coordinator_that_has_loaded_reports_repetitions_in_its_epoch() -> None:
    """A loaded coordinator repeats events at its own partition, marked by their cause, also without samples."""
    place, epoch = TopicPartition("group-state", 3), LeaderEpoch(8)
    alone = _stable(1, 1)
    reports = Reports(place, epoch)
    groups_reporting.GroupReporting(reports, samples=False).ticked(alone.machine.groups, alone.context)
    out: list[Effect] = []
    reports.leave(out)
    member, group = (each for each in out if isinstance(each, Emit))

    assert (member.tp, group.tp) == (place, place)
    assert isinstance(member.event, MemberChangeEvent)
    assert (member.event.cause, member.event.phase, member.event.leader_epoch) == ("repeated", "assigned", epoch)
    assert group.event == GroupChangeEvent(GROUP, "Stable", "Stable", 3, 3, 1, "repeated", epoch)  # type: ignore[arg-type]


# What people are shown of groups.


def test_a_group_is_listed_by_its_state() -> None:
    """ListGroups filters by state and type, in any case of letters."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m", "foo")

    def found(**filters: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
        return [tuple(each) for each in alone.ask(ListGroups(**filters)).groups]

    assert found() == [(GROUP, "consumer", "Stable", "Consumer")]
    assert found(states=("stable", "Empty"), types=("CONSUMER",)) == found()
    assert found(states=("Empty",)) == found(types=("classic",)) == []


def test_a_member_is_described_with_what_it_gives_up() -> None:
    """DescribeGroups shows epochs, what is held, revoked and wanted, and how long ago the member was heard of."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m1", "foo", client_id="app")
    alone.join("m2", "foo")
    alone.beat("m1")
    alone.commit(member_id="m1", epoch=1)
    alone.now_ms += 250
    shown = alone.ask(DescribeGroup(group_id=GROUP))

    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch) == ("Reconciling", 2, 2)
    first, second = shown.members
    assert (first.member_id, first.member_state, first.said.client_id) == ("m1", "unrevoked_partitions", "app")
    assert [parts(*x) for x in (first.assignment, first.revoking)] == [{"foo": [0]}, {"foo": [1]}]
    assert (first.last_heartbeat_age_ms, first.last_commit_age_ms) == (250, 250)
    assert (second.member_state, parts(*second.target_assignment)) == ("unreleased_partitions", {"foo": [1]})
    assert alone.ask(DescribeGroup(group_id="nobody")).code == 69
