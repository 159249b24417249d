"""Which state events a coordinator of groups reports (G33): changes at once, commits in samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from groups_alone import GROUP, GroupsAlone, Topics

from strandline.core.coordinator.machine import Record, Reports
from strandline.core.groups import reporting
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.messages import DeleteGroup, OffsetCommit, OffsetToCommit
from strandline.core.groups.reporting import KEYS_PER_TICK, LOOK_EVERY_MS, OPEN_EVERY_MS, GroupReporting
from strandline.core.log.effects import Effect, Emit
from strandline.core.state_events import GroupChange, GroupOffsets, MemberChange
from strandline.core.types import LeaderEpoch, Offset, TopicPartition

PLACE = TopicPartition("group-state", 3)
EPOCH = LeaderEpoch(7)


class Reported:
    """A machine of groups with its reports."""

    def __init__(self, partitions: int = 2, *, samples: bool = True, log: Sequence[Record] = ()) -> None:
        self.alone = GroupsAlone(Topics(foo=partitions))
        self.reports = Reports(PLACE, EPOCH)
        reporting = GroupReporting(self.reports, samples=samples)
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
        """Of each sample: group, partition, offset, commits, refused commits."""
        rows = []
        for emit in self.left():
            if isinstance(event := emit.event, GroupOffsets):
                assert emit.tp is not None
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
        assert topic is not None
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
    assert topic is not None
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
    reported.tick(OPEN_EVERY_MS - 1)
    before = reported.samples()
    reported.tick(1)

    assert (before, reported.samples()) == ([], [(GROUP, 0, 7, 1, {})])


def test_a_row_is_at_the_partition_that_is_consumed(reported: Reported) -> None:
    """So that it meets that partition's HW; the epoch is the coordinator's all the same."""
    reported.commit({1: 4})
    reported.tick()

    (emit,) = (each for each in reported.left() if isinstance(each.event, GroupOffsets))

    topic = reported.alone.topics.by_name("foo")
    assert topic is not None
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

    reported.tick(LOOK_EVERY_MS - 1)
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
    reported.tick(OPEN_EVERY_MS)

    assert reported.samples() == [(GROUP, 0, None, 1, {})]


def test_a_tick_reports_a_bounded_number_of_keys() -> None:
    """Many keys leave over several ticks, none twice and none forgotten."""
    reported = Reported(partitions=3 * KEYS_PER_TICK)
    reported.commit(dict.fromkeys(range(3 * KEYS_PER_TICK), 4))
    seen: list[int] = []
    for _ in range(8):
        reported.alone.tick()
        now = reported.samples()
        assert len(now) <= KEYS_PER_TICK
        seen += [partition for _, partition, *_ in now]

    assert sorted(set(seen)) == list(range(3 * KEYS_PER_TICK))


def test_keys_beyond_the_bound_are_reported_by_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their commits are not counted; what is committed is reported all the same."""
    monkeypatch.setattr(reporting, "MOST_OPEN_KEYS", 2)
    reported = Reported(partitions=3)
    reported.tick()
    reported.commit({0: 4, 1: 4, 2: 4})
    reported.tick(OPEN_EVERY_MS)
    counted = reported.samples()
    reported.tick(LOOK_EVERY_MS)

    assert counted == [(GROUP, 0, 4, 1, {}), (GROUP, 1, 4, 1, {})]
    assert reported.samples() == [(GROUP, partition, 4, 0, {}) for partition in range(3)]


def test_without_samples_only_changes_are_reported() -> None:
    """A node that reports transitions only has no rows of commits."""
    reported = Reported(samples=False)
    reported.commit({0: 4})
    reported.tick(LOOK_EVERY_MS)
    assert reported.samples() == []

    reported.alone.join("m1", "foo")
    assert [type(each.event) for each in reported.left()] == [MemberChange, GroupChange]
